"""Native calls of operators that take a Scalar, which the dispatcher's stack has no form for, by others that take none.

before:  index_add(%x: [8, 4], 0, %index: [3], %source: [3, 4], alpha=1)
after:   scatter_add(%x, 0, %index seen as [3, 4] with strides [1, 0], %source)

before:  scatter(%x: [8, 4], 1, %index: [8, 2], 0.5)
after:   scatter(%x, 1, %index, 0.5 in memory, seen as [8, 2] with strides [0, 0])

before:  linspace(0, 1, 10, dtype=None)
after:   linspace(0 in memory, 1 in memory, 10, dtype=None)      of the overload that takes tensors, and reads the same numbers of them

before:  special_zeta.other_scalar(%x, 2.5)
after:   special_zeta(%x, 2.5 in memory)                         likewise

before:  full([8, s0], 1 + 2i)
after:   expand_copy(1 + 2i in memory, [8, s0])

before:  constant_pad_nd(%x, [0, s1], 7)
after:   pad(%x, [0, s1], "constant", 7.0)

index_add and scatter_add add rows one after another, and ATen's scatter_add knows such an index. Complex rows ATen's index_add multiplies by alpha,
but for those along the first or last dimension of several, which it leaves to scatter_add as here. Where a call fails, the operator itself is
called from Python, and raises or not.
"""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import torch

from mlirc.codegen.abi.shim import double_text
from mlirc.codegen.aten.dispatcher_call import bits, listed, optional, owned_string, owned_tensor, step_of, with_slots
from mlirc.codegen.aten.overridden_kernels import computes_otherwise
from mlirc.codegen.aten.shim_call import (
    NativeCall,
    NotNative,
    Step,
    given_arguments,
    gives_real_numbers,
    integer,
    kinds_of,
    number_in_memory,
    one_device,
    operand_of,
    real,
    routines,
    tensor,
)
from mlirc.codegen.aten.stored_numbers import StoredNumber, number_of, stored
from mlirc.codegen.frame.frame import Frame, HostBuffer, Number
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of

aten = torch.ops.aten
SUMS = {aten.index_add.default: aten.scatter_add.default, aten.index_add_.default: aten.scatter_add_.default}
VALUES = {
    aten.scatter.value: aten.scatter.src,
    aten.scatter_.value: aten.scatter_.src,
    aten.scatter.value_reduce: aten.scatter_reduce.two,
    aten.index_fill.int_Scalar: aten.index_fill.int_Tensor,
    aten.index_fill_.int_Scalar: aten.index_fill_.int_Tensor,
}
SPACES = {
    aten.linspace.default: aten.linspace.Tensor_Tensor,
    aten.linspace.Scalar_Tensor: aten.linspace.Tensor_Tensor,
    aten.linspace.Tensor_Scalar: aten.linspace.Tensor_Tensor,
    aten.logspace.default: aten.logspace.Tensor_Tensor,
    aten.logspace.Scalar_Tensor: aten.logspace.Tensor_Tensor,
    aten.logspace.Tensor_Scalar: aten.logspace.Tensor_Tensor,
}
REVERSED = (aten.rsub.Scalar, aten.rsub.Tensor)
APART = (
    aten.lerp.Scalar,
    aten.clamp_min.default,
    aten.clamp_max.default,
    aten.pow.Tensor_Scalar,
    aten.float_power.Tensor_Scalar,
)
"""Elementwise operators that refuse numbers which their overload of tensors takes, or compute with some in another way."""
DIFFERENCES = (aten.sub.Tensor, aten.sub.Scalar, *REVERSED)
ADD = ("AtenTensorHandle", "AtenTensorHandle", "double", "AtenTensorHandle*")
FILLS = {
    aten.full.default: "fill_value",
    aten.full_like.default: "fill_value",
    aten.new_full.default: "fill_value",
    aten.fill.Scalar: "value",
    aten.scalar_tensor.default: "s",
}
"""Operators that fill a tensor with one number, and the name of that argument."""


def scalar_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call on a CPU. Writes nothing yet; raises NotNative."""
    way = way_of(function)
    if way is None:
        raise NotNative("another operator")
    kinds = kinds_of(function, op)
    if {info_of(x).device for x in op.results} != {"cpu"}:
        raise NotNative("its result is not on the CPU")
    instead, write = way
    if computes_otherwise(instead):
        raise NotNative(f"{instead}, in whose place it is called, has a kernel that is not PyTorch's")
    return with_slots(frame, instead, write(frame, op, function, instead, operands), kinds)


def way_of(function: Any) -> tuple[Any, Callable[..., list[Step]]] | None:
    """The operator that is called in place of this one, and what writes the slots of its arguments."""
    for instead, write in (
        (SUMS.get(function), sum_slots),
        (VALUES.get(function), value_slots),
        (SPACES.get(function), space_slots),
        (aten.expand_copy.default if function in FILLS else None, fill_slots),
        (aten.pad.default if function is aten.constant_pad_nd.default else None, pad_slots),
    ):
        if instead is not None:
            return instead, write
    return None


def elementwise_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call of the overload of tensors, for an elementwise operator. Writes nothing yet; raises NotNative."""
    instead = overload_of_tensors(function)
    if instead is None:
        raise NotNative("another operator")
    if computes_otherwise(instead):
        raise NotNative(f"{instead}, in whose place it is called, has a kernel that is not PyTorch's")
    return with_slots(frame, instead, elementwise_slots(frame, op, function, instead, operands), kinds_of(function, op))


def difference_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """x - alpha * y as x + (-alpha) * y by the C shim's routine, which is what eager computes. Writes nothing yet; raises NotNative."""
    if function not in DIFFERENCES:
        raise NotNative("another operator")
    kinds, device = kinds_of(function, op), one_device(op)
    if not gives_real_numbers(op) or routines(device).get("add_Tensor") != ADD:
        raise NotNative("a difference of integers, or the C shim has no routine for it")
    if computes_otherwise(aten.add.Tensor):
        raise NotNative(f"{aten.add.Tensor}, in whose place it is called, has a kernel that is not PyTorch's")
    *sides, (_, alpha) = given_arguments(function, op)
    factor = number_of(alpha)
    if factor is None or isinstance(factor, complex):
        raise NotNative("argument alpha is of type number")
    steps = []
    for argument, given in reversed(sides) if function in REVERSED else sides:
        value = number_of(given) if str(argument.real_type) == "number" else None
        x = operand_of(given, operands)
        if isinstance(x, HostBuffer) and x.info.dtype == torch.bool:
            raise NotNative("eager refuses to subtract booleans")
        steps.append(tensor(frame, given if value is None else number_in_memory(function, op, value), operands))

    def write(places: list[str]) -> str:
        given = [x for step in steps for x in step()]
        return frame.text.call(
            f"aoti_torch_{device}_add_Tensor", "i32 (ptr, ptr, double, ptr)", *given, double_text(-factor), *places
        )

    return NativeCall(kinds, write)


@cache
def overload_of_tensors(function: Any) -> Any:
    """The overload of an elementwise operator that takes tensors in place of its Scalars, or None."""
    if not isinstance(function, torch._ops.OpOverload) or torch.Tag.pointwise not in function.tags:
        return None
    if function in APART:
        return None
    types = [str(x.real_type) for x in function._schema.arguments]
    if "number" not in types:
        return None
    packet = getattr(torch.ops.aten, function._schema.name.removeprefix("aten::"), None)
    for other in (getattr(packet, name) for name in (packet.overloads() if packet else ())):
        others = [str(x.real_type) for x in other._schema.arguments]
        if others == ["Tensor" if kind == "number" else kind for kind in types]:
            return other
    return None


def elementwise_slots(frame: Frame, op: Any, function: Any, instead: Any, operands: Sequence) -> list[Step]:
    steps = []
    for (argument, given), taken in zip(given_arguments(function, op), instead._schema.arguments, strict=True):
        value = number_of(given) if str(argument.real_type) == "number" else None
        if value is not None and function is aten.masked_fill.Scalar:
            given = number_for(given, info_of(op.results[0]).dtype)  # its mask is a tensor of another dtype
        elif value is not None:
            given = number_in_memory(function, op, value)
        steps.append(step_of(taken, given)(frame, given, operands))
    return steps


def space_slots(frame: Frame, op: Any, function: Any, instead: Any, operands: Sequence) -> list[Step]:
    steps = []
    for argument, given in given_arguments(function, op):
        convert = number if str(argument.real_type) == "number" else step_of(argument, given)
        steps.append(convert(frame, given, operands))
    return steps


def fill_slots(frame: Frame, op: Any, function: Any, instead: Any, operands: Sequence) -> list[Step]:
    """aten.expand_copy of the number in memory, to the sizes of the result."""
    given = {argument.name: value for argument, value in given_arguments(function, op)}
    info = info_of(op.results[0])
    filled = owned_tensor(frame, number_for(given[FILLS[function]], info.dtype), operands)
    sizes = listed(lambda frame, size, operands: lambda: [frame.sizes.of(size)])(frame, list(info.shape), operands)
    return [filled, sizes, lambda: ["0"]]


def pad_slots(frame: Frame, op: Any, function: Any, instead: Any, operands: Sequence) -> list[Step]:
    """aten.pad in the mode "constant", whose number is a float."""
    tensor, pads, (_, given) = given_arguments(function, op)
    value = number_of(given)
    if isinstance(value, complex) or (type(value) is int and abs(value) > 2**53):
        raise NotNative(f"padding with {value}, which is no float")
    steps = [step_of(argument, x)(frame, x, operands) for argument, x in (tensor, pads)]
    number = given if value is None else float(value)
    return [*steps, owned_string(frame, "constant", operands), optional(bits)(frame, number, operands)]


def sum_slots(frame: Frame, op: Any, function: Any, instead: Any, operands: Sequence) -> list[Step]:
    given, x, dim, index = along_dimension(op, function, operands)
    source = tensor_of(given["source"], operands)
    index = spread(x.info, dim, index, source.info, given["alpha"])
    return [slot_of(frame, x), lambda: [str(dim)], slot_of(frame, index), slot_of(frame, source)]


def value_slots(frame: Frame, op: Any, function: Any, instead: Any, operands: Sequence) -> list[Step]:
    given, x, dim, index = along_dimension(op, function, operands)
    shape = () if str(instead).startswith("aten.index_fill") else index.info.shape
    value = owned_tensor(frame, number_for(given["value"], x.info.dtype, shape), operands)
    steps = [slot_of(frame, x), lambda: [str(dim)], slot_of(frame, index), value]
    if instead is aten.scatter_reduce.two:  # scatter itself warns of a reduction of tensors
        reduction = {"add": "sum", "multiply": "prod"}.get(given["reduce"])
        steps += [owned_string(frame, reduction, operands), lambda: ["1"]]  # with the tensor's own elements
    return steps


def along_dimension(op: Any, function: Any, operands: Sequence) -> tuple[dict[str, Any], HostBuffer, int, HostBuffer]:
    """The call's arguments by name; its tensor, dimension and index."""
    given = {argument.name: value for argument, value in given_arguments(function, op)}
    x, index = (tensor_of(given[name], operands) for name in ("self", "index"))
    dim = given["dim"]
    if {x.info.device, index.info.device} != {"cpu"} or type(dim) is not int:
        raise NotNative("its tensors are not all on the CPU, or its dimension is no number")
    return given, x, dim, index


def tensor_of(given: Any, operands: Sequence[HostBuffer | Number]) -> HostBuffer:
    x = operand_of(given, operands)
    if not isinstance(x, HostBuffer) or x.root.kind == "number":
        raise NotNative("a number stands for a tensor")
    return x


def slot_of(frame: Frame, x: HostBuffer) -> Step:
    return owned_tensor(frame, {"$": 0}, [x])


def spread(x: TensorInfo, dim: int, index: HostBuffer, source: TensorInfo, alpha: Any) -> HostBuffer:
    """The index of the rows of `source`, as one of each of its elements."""
    if type(alpha) is not int or alpha != 1:
        raise NotNative("argument alpha is of type number")
    if x.dtype.is_complex and (x.rank < 2 or dim % x.rank not in (0, x.rank - 1)):
        raise NotNative("eager multiplies the rows by 1 + 0i, which makes NaN of infinities")
    need_alike(x, index.info, source, dim)
    strides = tuple([index.info.stride[0] if d == dim % x.rank else 0 for d in range(x.rank)])
    return HostBuffer(TensorInfo(index.info.dtype, source.shape, strides), index.root, index.offset, whole=False)


def number_for(given: Any, dtype: torch.dtype, shape: Sequence[Any] = ()) -> StoredNumber:
    """The Scalar as a tensor of `dtype`."""
    value = number_of(given)
    if value is None:
        raise NotNative("a number that only a call says")
    try:
        return stored(value, dtype, shape)
    except ValueError as reason:
        raise NotNative(str(reason)) from reason


def number(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    """A tensor of rank 0 in memory, whose item is the Scalar: int64 or float64."""
    try:
        value, dtype, kind = integer(frame, given, operands), torch.int64, "i64"
    except NotNative:
        value, dtype, kind = real(frame, given, operands), torch.float64, "double"
    return lambda: owned_tensor(frame, StoredNumber(dtype, (f"{kind} {value()[0]}",)), operands)()


def need_alike(x: TensorInfo, index: TensorInfo, source: TensorInfo, dim: int) -> None:
    """Raises NotNative where scatter_add takes what index_add may refuse."""
    if source.device != "cpu":
        raise NotNative("its tensors are not all on the CPU")
    if index.dtype != torch.int64 or index.rank != 1 or source.rank != x.rank or not -x.rank <= dim < x.rank:
        raise NotNative("an index of another kind, or rows of another rank")
    if x.dtype != source.dtype or not (x.dtype in KERNEL_DTYPES or x.dtype.is_complex) or x.dtype == torch.bool:
        raise NotNative(f"sums of {x.dtype}")
    wanted = [index.shape[0] if d == dim % x.rank else n for d, n in enumerate(x.shape)]
    if list(source.shape) != wanted:
        raise NotNative("its rows have other sizes than the tensor's")
