"""Native calls of matmuls with Scalars, beta and alpha, by the C shim's routines that write into a tensor which is given.

    addmm(%bias, %x, %y, beta=0.5, alpha=2)
    %out = aoti_torch_empty_strided(...)       as the result's type says
    aoti_torch_cpu_addmm_out(%out, %bias, %x, %y, 0.5, 2.0)

The routine takes beta and alpha as doubles. An integer of the graph's is passed so, too: the dtype of the result is that of the given tensor.
Where it succeeds, that tensor is the result. Where it fails, it is dropped, and the operator is called from Python.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.aten.overridden_kernels import computes_otherwise
from mlirc.codegen.aten.shim_call import (
    NativeCall,
    NotNative,
    given_arguments,
    kinds_of,
    one_device,
    routines,
    scalar_of_real,
    tensor,
)
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.dialects.core.tensor_types import info_of

aten = torch.ops.aten
CONVERTERS = (
    tensor,
    tensor,
    tensor,
    scalar_of_real,
    scalar_of_real,
)  # of the arguments: self, two factors, beta, alpha
OUT = {aten.addmm.default: aten.addmm.out, aten.baddbmm.default: aten.baddbmm.out}


def out_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call. Writes no text yet: `write` of the result writes the call, `take` what follows its success. Raises NotNative."""
    if function not in OUT:
        raise NotNative("another operator")
    kinds, device = kinds_of(function, op), one_device(op)
    name = f"{function._schema.name.removeprefix('aten::')}_out"
    if routines(device).get(name) != ("AtenTensorHandle",) * 4 + ("double",) * 2:
        raise NotNative("the C shim has no routine for it")
    if computes_otherwise(OUT[function]):
        raise NotNative(f"{OUT[function]}, which the routine calls, has a kernel that is not PyTorch's")
    given = [value for _, value in given_arguments(function, op)]
    steps = [convert(frame, value, operands) for convert, value in zip(CONVERTERS, given, strict=True)]
    info, made = info_of(op.results[0]), frame.new_handle()
    signature = "i32 (ptr, ptr, ptr, ptr, double, double)"

    def write(places: list[str]) -> str:
        frame.shim("aoti_torch_empty_strided", *frame.layout(info), *frame.kind(info), made)
        arguments = [frame.load("ptr", made), *(x for step in steps for x in step())]
        return frame.text.call(f"aoti_torch_{device}_{name}", signature, *arguments)

    def take(places: list[str]) -> None:
        frame.text.line(f"store ptr {frame.load('ptr', made)}, ptr {places[0]}")
        frame.text.line(f"store ptr null, ptr {made}")

    return NativeCall(kinds, write, take)
