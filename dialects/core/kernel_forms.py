"""Kernel forms of graph-level ops: one for each family of ops, and `form_of`, which finds an op's.

A form is a function `form(make, op)`: it builds the kernel at the current insertion point, from
`k = make(parallel, inner, label)` (KernelBuilder, or something that behaves like it), and returns the values that
replace the op's results. An op class with a form of its own has it as the static method `kernel`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, Reduction, attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.graph_ops import Constant, Copy, Iota, Size, View
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_ops import POSITIONAL
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of, opmath

COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
Form = Callable[[Callable[..., KernelBuilder], Any], Sequence[ir.Value]]


def form_of(cls: type) -> Form | None:
    """The kernel form of an op class; None where it has none (views, constants, matmuls, ATen calls, composites)."""
    own = getattr(cls, "kernel", None)
    if own is not None:
        return own
    mnemonic = getattr(cls, "mnemonic", None)
    if mnemonic in ("cast", "bitcast"):
        return cast if mnemonic == "cast" else bitcast
    for base, form in ((Elementwise, elementwise), (Reduction, reduction), (Iota, iota), (Copy, copy)):
        if issubclass(cls, base):
            return form
    return None


def operand(k: KernelBuilder, x: ir.Value, dims: Sequence[Int], rounded: bool = False) -> ir.Value:
    """The element of `x` at `dims`, to which it broadcasts: aligned right, index 0 in a dimension of size 1.
    `rounded`: see KernelBuilder.read.

    What depends on nothing but sizes is computed in the kernel instead of read.
    """
    index = broadcast_map(x, dims)
    scalar = _immediate(k, x, index)
    return k.read(x, index, rounded=rounded) if scalar is None else k.cast(scalar, opmath(info_of(x).dtype))


def broadcast_map(x: ir.Value, dims: Sequence[Int]) -> tuple[Int, ...]:
    """The index of the element of `x` that is used at index `dims` of a space to which `x` is broadcast."""
    shape = info_of(x).shape
    return tuple(0 if n == 1 else d for n, d in zip(shape, dims[len(dims) - len(shape) :], strict=True))


def _immediate(k: KernelBuilder, x: ir.Value, index: Sequence[Int]) -> ir.Value | None:
    """The element of `x` at `index` if sizes alone decide it: constants, iotas, views and casts of them, 0-d work."""
    op = x.owner
    if isinstance(op, ir.Block) or k.is_read(x):
        return None  # an argument of the function, or made of one
    info = info_of(x)
    if isinstance(op, Constant):
        value = read_constant(attribute_value(op.attributes["value"]))
        if info.dtype != opmath(info.dtype):
            value = torch.tensor(value, dtype=info.dtype).item()  # the text may be more precise than the half type
        return k.constant(value, info.dtype)
    if isinstance(op, Size):
        return k.size(symbols.parse(attribute_value(op.attributes["expr"])))
    if isinstance(op, Iota):
        return convert(k, iota_at(k, op, index), info.dtype)
    if isinstance(op, Copy):
        return _immediate(k, op.operands[0], index)
    if isinstance(op, View):
        map_ = attribute_value(op.attributes["map"])
        if not map_ and info_of(op.operands[0]).rank:
            return None
        place = {f"d{d}": at for d, at in enumerate(index)}
        return _immediate(k, op.operands[0], [symbols.substitute(at, place) for at in symbols.parse_list(map_)])
    if isinstance(op, Elementwise) and (info.rank == 0 or type(op).mnemonic == "cast"):
        scalars = []
        for y in op.operands:
            scalar = _immediate(k, y, index)
            if scalar is None:
                return None
            scalars.append(k.cast(scalar, opmath(info_of(y).dtype)))
        return convert(k, scalars[0] if type(op).mnemonic == "cast" else k.apply(type(op), *scalars), info.dtype)
    return None


def iota_at(k: KernelBuilder, op: Any, index: Sequence[Int]) -> ir.Value:
    """The int64 of an iota at `index`."""
    expr = symbols.parse(attribute_value(op.attributes["expr"]))
    return k.size(symbols.substitute(expr, {f"d{d}": place for d, place in enumerate(index)}))


def convert(k: KernelBuilder, x: ir.Value, dtype: torch.dtype) -> ir.Value:
    """`x` rounded to `dtype` as eager's `to` does: a half type by way of float32, where the result stays as stored."""
    return k.cast(k.cast(k.cast(x, opmath(info_of(x).dtype)), opmath(dtype)), dtype)


def elementwise(make: Callable[..., KernelBuilder], op: Any) -> Sequence[ir.Value]:
    info = info_of(op.results[0])
    k = make(info.shape, label=type(op).mnemonic)
    attributes = {name: value for name, value in op.attributes.items() if not name.startswith("mlirc.")}
    result = k.apply(type(op), *(operand(k, x, k.dims, type(op).jumps) for x in op.operands), attributes=attributes)
    return k.finish([(result, k.dims, info)])


def cast(make: Callable[..., KernelBuilder], op: Any) -> Sequence[ir.Value]:
    info = info_of(op.results[0])
    k = make(info.shape, label="cast")
    return k.finish([(convert(k, operand(k, op.operands[0], k.dims, True), info.dtype), k.dims, info)])


def bitcast(make: Callable[..., KernelBuilder], op: Any) -> Sequence[ir.Value]:
    """On the bits as they are stored: half types are not widened."""
    info = info_of(op.results[0])
    k = make(info.shape, label="bitcast")
    stored = k.read(op.operands[0], broadcast_map(op.operands[0], k.dims), widen=False)
    return k.finish([(k.bitcast(stored, info.dtype), k.dims, info)])


def copy(make: Callable[..., KernelBuilder], op: Any) -> Sequence[ir.Value]:
    info = info_of(op.results[0])
    k = make(info.shape, label="copy")
    x = op.operands[0]
    value = _immediate(k, x, k.dims)
    return k.finish([(k.read(x, k.dims, widen=False) if value is None else value, k.dims, info)])


def iota(make: Callable[..., KernelBuilder], op: Any) -> Sequence[ir.Value]:
    info = info_of(op.results[0])
    k = make(info.shape, label="iota")
    return k.finish([(convert(k, iota_at(k, op, k.dims), info.dtype), k.dims, info)])


def reduction(make: Callable[..., KernelBuilder], op: Any) -> Sequence[ir.Value]:
    """Kept dimensions are parallel, reduced ones inner. Accumulates in the result's dtype, half types in float32."""
    kind, label = type(op).kind, type(op).mnemonic
    if kind in ("first_max", "first_min") and not shows_zero_sign(op.results[0]):
        kind, label = kind.removeprefix("first_"), label.replace("first_", "a")
    info, x = info_of(op.results[0]), op.operands[0]
    dims = symbols.parse_numbers(attribute_value(op.attributes["dims"]))
    keepdim = attribute_value(op.attributes["keepdim"])
    shape = info_of(x).shape
    parallel = [d for d in range(len(shape)) if d not in dims]
    k = make([shape[d] for d in parallel], [shape[d] for d in dims], label=label)
    place = dict(zip([*parallel, *dims], k.dims, strict=True))  # tensor dimension -> iteration dimension
    rounded = kind in POSITIONAL or info.dtype != info_of(x).dtype  # an order, truth, or a sum in another dtype
    value = operand(k, x, [place[d] for d in range(len(shape))], rounded)
    if kind in ("any", "all"):
        value = k.cast(value, torch.bool)
    elif kind not in ("argmax", "argmin"):
        value = k.cast(value, opmath(info.dtype))
    if kind == "mean" and info.device == "cpu":
        elements = k.cast(k.size(symbols.product(shape[d] for d in dims)), opmath(info.dtype))
        value = k.div(fold(k, "sum", value), elements)
    else:
        value = fold(k, kind, value)
    map_ = [place[d] if d in parallel else 0 for d in range(len(shape)) if keepdim or d in parallel]
    return k.finish([(k.cast(value, opmath(info.dtype)), map_, info)])


def shows_zero_sign(x: ir.Value, depth: int = 4) -> bool:
    """Whether the program may see the sign of a zero in `x`, as far as `depth` kernels away; the users of `x` are kernels already.

    A softmax that a program writes itself does not show it: e^(y - x) is 1 for both.
    """
    for use in x.uses:
        op, number, left = use.owner.operation, use.operand_number, depth
        name = op.name.partition(".")[2]
        if name == "kernel":
            then = op.regions[0].blocks[0].arguments[number]
        elif name == "yield" and depth > 1:
            then, left = op.parent.results[number], depth - 1
        elif name in ("read", "view", "sub", "add", "cast"):
            then = op.results[0]
        elif name in ("exp", *COMPARISONS):
            continue
        else:
            return True
        if shows_zero_sign(then, left):
            return True
    return False


def fold(k: KernelBuilder, kind: str, x: ir.Value) -> ir.Value:
    """k.reduce, also over no dimensions at all, and for the largest and smallest of booleans."""
    if not k.inner:
        return k.constant(0, torch.int64) if kind in ("argmax", "argmin") else x
    if info_of(x).dtype == torch.bool:
        kind = {"max": "any", "min": "all"}.get(kind, kind)
    return k.reduce(kind, x)
