"""Native ATen calls through PyTorch's dispatcher, for operators without a routine in the C shim.

The arguments, and then the results, lie on a stack of slots of 8 bytes (StableIValue in torch/csrc/stable):

    Tensor   a handle that the call consumes        int, bool, ScalarType   the number        float   its bits
    T?       0, or the address of a slot from `new`, which the call deletes
    Device   its index in the lower half, its type in the upper one        Layout, MemoryFormat   the number
    T[]      a list that the call consumes
    str      a handle that the call consumes, where the shim has strings

A Scalar and a Generator have no such form: scalar_call.py has other operators for some that are given a Scalar, the rest are called from
Python (host/aten.py). An argument that is left out is 0, whatever its type: `torch.multinomial(x, 2)` draws from the process's generator.
A result that is a list comes as one, which the call gives away; its tensors are taken out of it.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.abi import shim
from mlirc.codegen.aten.shim_call import (
    NativeCall,
    NotNative,
    Step,
    boolean,
    conversion_of,
    dtype,
    given_arguments,
    gives_list,
    integer,
    items,
    kinds_of,
    operand_of,
    reads_storage,
    real,
    tensor,
)
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number


def dispatcher_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call of `function` by the dispatcher. Writes nothing yet; raises NotNative."""
    return by_stack(frame, op, function, operands, kinds_of(function, op))


def by_stack(
    frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number], kinds: list[str]
) -> NativeCall:
    """A call through the dispatcher's stack, of an operator with results of these kinds, whatever it does with its operands."""
    steps = []
    for argument, given in given_arguments(function, op):
        convert = step_of(argument, given)
        if convert is owned_tensor and reads_storage(function):
            convert = owned_part
        steps.append(convert(frame, given, operands))
    return with_slots(frame, function, steps, kinds)


def with_slots(frame: Frame, function: Any, steps: Sequence[Step], kinds: list[str]) -> NativeCall:
    """The call of `function` with the slots that `steps` write, one for each argument of its schema."""
    text = frame.text
    stack = text.place(f"[{max(len(steps), len(kinds), 1)} x i64]", "stack")

    def write(places: list[str]) -> str:
        for k, slot in enumerate([step()[0] for step in steps]):
            text.line(f"store i64 {slot}, ptr {frame.at(stack, k)}")
        overload = "" if function._overloadname == "default" else function._overloadname
        names = text.string(function._schema.name), text.string(overload)
        call = "torch_call_dispatcher"
        return text.call(call, shim.SIGNATURES[call], *names, stack, str(shim.abi_version()))

    def take(places: list[str]) -> None:
        if gives_list(function):
            take_items(frame, frame.load("ptr", stack, "list"), places)
            return
        for k, place in enumerate(places):
            text.line(f"store i64 {frame.load('i64', frame.at(stack, k))}, ptr {place}")

    return NativeCall(kinds, write, take)


def take_items(frame: Frame, made: str, places: list[str]) -> None:
    """Brings the tensors of a list to their places. Its length is what the meta function promised."""
    for k, place in enumerate(places):
        frame.shim("torch_list_get_item", made, str(k), place)
    frame.shim("torch_delete_list", made)


def in_memory_call(frame: Frame, place: str) -> None:
    """Puts a tensor whose values are in its memory in place of the handle at `place`."""
    stack = frame.text.place("i64", "stack")
    for name in ("aten::resolve_conj", "aten::resolve_neg"):
        frame.text.line(f"store i64 {frame.load('i64', place)}, ptr {stack}")
        frame.text.line(f"store ptr null, ptr {place}")  # the call consumes it
        call = frame.text.string(name), frame.text.string(""), stack, str(shim.abi_version())
        frame.shim("torch_call_dispatcher", *call)
        frame.text.line(f"store i64 {frame.load('i64', stack)}, ptr {place}")


def step_of(argument: Any, given: Any) -> Callable[..., Step]:
    """The conversion of what an argument is given."""
    if given is None and str(argument.real_type).startswith("Optional["):
        return lambda frame, given, operands: lambda: ["0"]
    return conversion_of(argument, CONVERSIONS)


def owned_tensor(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    step = tensor(frame, given, operands)

    def write() -> list[str]:
        frame.shim("aoti_torch_new_tensor_handle", step()[0], "%scratch")
        return [frame.load("i64", "%scratch")]

    return write


def owned_part(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    """A tensor of all of the operand's storage."""
    x = operand_of(given, operands)
    if not isinstance(x, HostBuffer) or x.whole or x.root.kind not in ("argument", "owned"):
        return owned_tensor(frame, given, operands)

    def write() -> list[str]:
        place = frame.part(x)
        slot = frame.load("i64", place)
        frame.text.line(f"store ptr null, ptr {place}")
        return [slot]

    return write


def owned_string(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if not isinstance(given, str) or not hasattr(shim.library(), "torch_new_string_handle"):
        raise NotNative(f"{given} is no text that the C shim takes")

    def write() -> list[str]:
        frame.shim("torch_new_string_handle", frame.text.string(given), str(len(given.encode())), "%scratch")
        return [frame.load("i64", "%scratch")]

    return write


def bits(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    step = real(frame, given, operands)
    return lambda: [frame.text.value(f"bitcast double {step()[0]} to i64")]


def device(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    if not isinstance(given, dict) or "device" not in given:
        raise NotNative(f"{given} is no device")
    named = torch.device(given["device"])
    type_, _ = shim.device_codes(given["device"])
    index = (-1 if named.index is None else named.index) & 0xFFFFFFFF
    return lambda: [str(type_ << 32 | index)]


def named(kind: str) -> Callable:
    """Reads the number that the C shim gives for the name of a layout or a memory format."""

    def read(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
        ask = (
            getattr(shim.library(), f"aoti_torch_{kind}_{given[kind]}", None)
            if isinstance(given, dict) and kind in given
            else None
        )
        if ask is None:
            raise NotNative(f"{given} is no {kind} that the C shim knows")
        return lambda: [str(ask())]

    return read


def listed(convert: Callable) -> Callable:
    def read(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
        steps = [convert(frame, x, operands) for x in items(given)]

        def write() -> list[str]:
            slots = [step()[0] for step in steps]
            frame.shim("torch_new_list_reserve_size", str(len(slots)), "%scratch")
            made = frame.load("ptr", "%scratch", "list")
            for slot in slots:
                frame.shim("torch_list_push_back", made, slot)
            return [frame.text.value(f"ptrtoint ptr {made} to i64")]

        return write

    return read


def optional(convert: Callable) -> Callable:
    def read(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
        if given is None:
            return lambda: ["0"]
        step = convert(frame, given, operands)

        def write() -> list[str]:
            slot = step()[0]
            at = frame.text.call("_Znwm", "ptr (i64)", "8")  # operator new
            frame.text.line(f"store i64 {slot}, ptr {at}")
            return [frame.text.value(f"ptrtoint ptr {at} to i64")]

        return write

    return read


# type in the schema -> conversion to a slot
_PLAIN = {"Tensor": owned_tensor, "int": integer, "float": bits, "bool": boolean}
_LISTS = {f"List[{kind}]": listed(convert) for kind, convert in _PLAIN.items()}
_LISTS["List[Optional[Tensor]]"] = listed(optional(owned_tensor))
_OPTIONS = {"ScalarType": dtype, "Device": device, "Layout": named("layout"), "MemoryFormat": named("memory_format")}
_GIVEN = {**_PLAIN, **_LISTS, **_OPTIONS, "str": owned_string}
CONVERSIONS = {**_GIVEN, **{f"Optional[{kind}]": optional(convert) for kind, convert in _GIVEN.items()}}
