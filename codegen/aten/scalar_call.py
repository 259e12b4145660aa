"""Native calls of operators that take a Scalar, which the dispatcher's stack has no form for, by others that take none.

before:  index_add(%x: [8, 4], 0, %index: [3], %source: [3, 4], alpha=1)
after:   scatter_add(%x, 0, %index seen as [3, 4] with strides [1, 0], %source)

before:  scatter(%x: [8, 4], 1, %index: [8, 2], 0.5)
after:   scatter(%x, 1, %index, 0.5 in memory, seen as [8, 2] with strides [0, 0])

before:  linspace(0, 1, 10, dtype=None)
after:   linspace(0 in memory, 1 in memory, 10, dtype=None)      of the overload that takes tensors, and reads the same numbers of them

index_add and scatter_add add rows one after another, and ATen's scatter_add knows such an index. Where a call fails, the operator itself is
called from Python, and raises or not.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.codegen.aten.dispatcher_call import owned_tensor, step_of, with_slots
from mlirc.codegen.aten.overridden_kernels import computes_otherwise
from mlirc.codegen.aten.shim_call import NativeCall, NotNative, Step, check, given_arguments, integer, operand_of, real
from mlirc.codegen.frame.frame import Frame, HostBuffer, HostRoot, Number
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of

aten = torch.ops.aten
SUMS = {aten.index_add.default: aten.scatter_add.default, aten.index_add_.default: aten.scatter_add_.default}
VALUES = {
    aten.scatter.value: aten.scatter.src,
    aten.scatter_.value: aten.scatter_.src,
    aten.index_fill.int_Scalar: aten.index_fill.int_Tensor,
    aten.index_fill_.int_Scalar: aten.index_fill_.int_Tensor,
}
SPACES = {aten.linspace.default: aten.linspace.Tensor_Tensor, aten.logspace.default: aten.logspace.Tensor_Tensor}


def scalar_call(frame: Frame, op: Any, function: Any, operands: Sequence[HostBuffer | Number]) -> NativeCall:
    """The call on a CPU. Writes nothing yet; raises NotNative."""
    instead = SUMS.get(function) or VALUES.get(function) or SPACES.get(function)
    if instead is None:
        raise NotNative("another operator")
    kinds = check(function, op)
    if computes_otherwise(instead):
        raise NotNative(f"{instead}, in whose place it is called, has a kernel that is not PyTorch's")
    if function in SPACES:
        if {info_of(x).device for x in op.results} != {"cpu"}:
            raise NotNative("its result is not on the CPU")
        arguments = given_arguments(function, op)
        ends = [number(frame, value, operands) for _, value in arguments[:2]]
        others = [step_of(argument, value)(frame, value, operands) for argument, value in arguments[2:]]
        return with_slots(frame, instead, [*ends, *others], kinds)
    given = {argument.name: value for argument, value in given_arguments(function, op)}
    x, index = (tensor_of(given[name], operands) for name in ("self", "index"))
    dim = given["dim"]
    if {x.info.device, index.info.device} != {"cpu"} or type(dim) is not int:
        raise NotNative("its tensors are not all on the CPU, or its dimension is no number")
    if function in SUMS:
        source = tensor_of(given["source"], operands)
        index, last = spread(x.info, dim, index, source.info, given["alpha"]), slot_of(frame, source)
    else:
        shape = index.info.shape if instead in (aten.scatter.src, aten.scatter_.src) else ()
        last = filled(frame, given["value"], x.info.dtype, shape)
    return with_slots(frame, instead, [slot_of(frame, x), lambda: [str(dim)], slot_of(frame, index), last], kinds)


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
    need_alike(x, index.info, source, dim)
    strides = tuple([index.info.stride[0] if d == dim % x.rank else 0 for d in range(x.rank)])
    return HostBuffer(TensorInfo(index.info.dtype, source.shape, strides), index.root, index.offset, whole=False)


def filled(frame: Frame, value: Any, dtype: torch.dtype, shape: Sequence[Any]) -> Step:
    """A tensor of one element in memory, seen as `shape`."""
    if (
        dtype not in KERNEL_DTYPES
        or (isinstance(value, dict) and "float" not in value)
        or isinstance(value, str | list)
    ):
        raise NotNative(f"a number {value} of {dtype}")
    number = float(value["float"]) if isinstance(value, dict) else value
    try:
        bits = torch.full((), number, dtype=dtype)
    except RuntimeError as error:
        raise NotNative(f"{number} does not fit into {dtype}") from error
    size = 8 * dtype.itemsize
    text = str(bits.view({8: torch.int8, 16: torch.int16, 32: torch.int32, 64: torch.int64}[size]).item())
    return stored(frame, dtype, lambda: [f"i{size} {text}"], shape)


def number(frame: Frame, given: Any, operands: Sequence[HostBuffer | Number]) -> Step:
    """A tensor of rank 0 in memory, whose item is the Scalar: int64 or float64."""
    try:
        value, dtype, kind = integer(frame, given, operands), torch.int64, "i64"
    except NotNative:
        value, dtype, kind = real(frame, given, operands), torch.float64, "double"
    return stored(frame, dtype, lambda: [f"{kind} {value()[0]}"], ())


def stored(frame: Frame, dtype: torch.dtype, value: Step, shape: Sequence[Any]) -> Step:
    """A tensor of one element in memory, seen as `shape`; `value` gives it as LLVM's text, with its type."""

    def write() -> list[str]:
        at = frame.text.place("i64", "value")
        frame.text.line(f"store {value()[0]}, ptr {at}")
        info = TensorInfo(dtype, tuple(shape), (0,) * len(shape))
        return slot_of(frame, HostBuffer(info, HostRoot("arena", address=at), whole=False))()

    return write


def need_alike(x: TensorInfo, index: TensorInfo, source: TensorInfo, dim: int) -> None:
    """Raises NotNative where scatter_add takes what index_add may refuse."""
    if source.device != "cpu":
        raise NotNative("its tensors are not all on the CPU")
    if index.dtype != torch.int64 or index.rank != 1 or source.rank != x.rank or not -x.rank <= dim < x.rank:
        raise NotNative("an index of another kind, or rows of another rank")
    if x.dtype != source.dtype or x.dtype not in KERNEL_DTYPES or x.dtype == torch.bool:
        raise NotNative(f"sums of {x.dtype}")
    wanted = [index.shape[0] if d == dim % x.rank else n for d, n in enumerate(x.shape)]
    if list(source.shape) != wanted:
        raise NotNative("its rows have other sizes than the tensor's")
