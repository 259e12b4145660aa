"""Native calls of functional collectives (`_c10d_functional`): by the C shim's routines, which serve tensors on any device, else by the dispatcher.

What has neither (operators whose group is of type Any in the schema, which the dispatcher's C interface has no form for) is called from Python.
"""

from collections.abc import Sequence
from typing import Any

from mlirc.codegen.abi import shim
from mlirc.codegen.aten import dispatcher_call
from mlirc.codegen.aten.shim_call import WANTED, NativeCall, NotNative, given_arguments, string, tensor
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number

NAMESPACE = "_c10d_functional"
ROUTINES = ("all_reduce", "all_reduce_", "wait_tensor")


def collective_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call of the collective. Writes nothing yet; raises NotNative."""
    name = function._schema.name.rpartition("::")[2]
    if [str(result.type) for result in function._schema.returns] != ["Tensor"]:
        raise NotNative("it gives lists of tensors")
    routine = f"aoti_torch_cpu__c10d_functional_{name}"
    if name not in ROUTINES or not hasattr(shim.library(), routine):
        return dispatcher_call.by_stack(frame, op, function, operands, [WANTED])
    steps = [
        (string if isinstance(given, str) else tensor)(frame, given, operands)
        for _, given in given_arguments(function, op)
    ]
    signature = f"i32 ({', '.join(['ptr'] * (len(steps) + 1))})"

    def write(places: list[str]) -> str:
        arguments = [x for step in steps for x in step()]
        return frame.text.call(routine, signature, *arguments, *places)

    return NativeCall([WANTED], write)
