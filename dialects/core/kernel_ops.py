"""Kernel level: `mlircx.kernel` holds one fused group as scalar work in an iteration space. Both targets are generated from it.

    %r:2 = "mlircx.kernel"(%x) ({
    ^bb0(%a: tensor<256x768xf32>):
      %0 = "mlirc.read"(%a) {map = "d0, d1", masked = false} : (tensor<256x768xf32>) -> f32
      %1 = "mlirc.reduce"(%0) {kind = "sum"} : (f32) -> f32
      %2 = "mlirc.constant"() {value = "0x1.8000000000000p+9"} : () -> f32
      %3 = "mlirc.div"(%1, %2) : (f32, f32) -> f32
      %4 = "mlirc.sub"(%0, %3) : (f32, f32) -> f32
      "mlircx.yield"(%4, %3) {maps = ["d0, d1", "d0"]} : (f32, f32) -> ()
    }) {parallel = "256", inner = "768", label = "sub"} : (tensor<256x768xf32>) -> (tensor<256x768xf32>, tensor<256xf32>)

The iteration dimensions are d0, d1, ...: first the parallel ones, then the inner ones (a kernel without reductions has
parallel ones only). A value is *inner* when it depends on an inner dimension: a read whose map or mask names one, a `size`
that does, or scalar work on an inner value. Every other value is *outer*: one for each point of the parallel space.
`reduce` folds an inner value over all inner dimensions into an outer one. `yield` writes an inner value at every point,
an outer one once for each point of the parallel space (or at every point, if its map names inner dimensions).

Scalars have the computed dtype: half types are read as f16 or bf16 and widened by a `cast`. Casts that `widen` or `narrow`
for that reason only carry {implicit = true}: fusion drops a narrowing followed by a widening, and keeps the precision.
"""

import math
from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import COMBINED, ListOp, Mlirc, Reduction

# kind -> what it gives: "same" dtype as its operand, or a dtype's text. NaN wins in max, min, argmax and argmin, as in eager;
# argmax and argmin give the first index, counted row-major over the inner dimensions, first_max and first_min the element there:
# of -0.0 and 0.0, which are equal, max and min give either. mean is of floating-point numbers, on a GPU: the sum through the number of
# elements, but between the least and the largest element, also where the sum overflows.
REDUCTIONS = {
    "sum": "same",
    "mean": "same",
    "prod": "same",
    "max": "same",
    "min": "same",
    "any": "i1",
    "all": "i1",
    "argmax": "i64",
    "argmin": "i64",
    "first_max": "same",
    "first_min": "same",
}
SCANS = ("sum", "prod", "max", "min")
POSITIONAL = ("argmax", "argmin", "first_max", "first_min")  # those that need the order of the elements


def reductions() -> dict[str, str]:
    """REDUCTIONS, and the kinds that ops define (dialect.FoldOp)."""
    return REDUCTIONS | {kind: "same" for kind, op in COMBINED.items() if issubclass(op, Reduction)}


def scans() -> tuple[str, ...]:
    """SCANS, and the kinds that ops define (dialect.FoldOp)."""
    return (*SCANS, *(kind for kind, op in COMBINED.items() if not issubclass(op, Reduction)))


def identity(kind: str, dtype: torch.dtype) -> float | int | bool:
    """What a fold of nothing gives, in the dtype that it folds in; of extremes, what no element is beyond."""
    number: float | int | bool
    if kind in COMBINED:
        number = COMBINED[kind].identity
    elif kind in ("sum", "mean", "any", "prod", "all"):
        number = kind in ("prod", "all")
    elif dtype == torch.bool:
        number = kind.endswith("min")
    elif dtype.is_floating_point:
        number = math.inf if kind.endswith("min") else -math.inf
    else:
        number = torch.iinfo(dtype).max if kind.endswith("min") else torch.iinfo(dtype).min
    return float(number) if dtype.is_floating_point else number if dtype == torch.bool else int(number)


ROUNDED = "mlirc.rounded"


class KernelOp(ListOp, name="kernel", regions=1):
    """A kernel. Its block arguments are the operands, with the same types; a `mlircx.yield` gives the results.

    parallel, inner   text lists of sizes: the iteration space
    label             what people see in reports and profiles: the ops in it, "add_layer_norm"
    mlirc.rounded     there where all it writes goes into results of half types, though it is float32 itself
    """


class ReadOp(Mlirc.Operation, name="read", traits=[ext.Pure]):
    """Reads one element of a tensor.

    map      the tensor's index at each point of the iteration space: one expression a dimension of the tensor, in d0, d1, ...,
             the sizes' symbols, and i0, i1, ...: the i64 scalars that follow the tensor among the operands (gathers)
    masked   whether the last operand is an i1 mask: where it is false nothing is read and the result is 0
             (a masked read has no indices i0, i1, ...: all members of the list have one type)

    Every index is in bounds wherever the mask holds (`check_index` sees to it for i0, i1, ...).
    """

    tensor: ext.Operand[Any]
    scalars: Sequence[ext.Operand[Any]]
    map: ir.StringAttr
    masked: Any
    out: ext.Result[Any]


class CheckIndex(Mlirc.Operation, name="check_index", traits=[ext.Pure]):
    """The i64 index `x`, in [0, size): a negative one counts from the end where `wraps`; any other raises IndexError after
    the kernel, with `message` (in which {index} and {size} may stand), and reads as 0."""

    x: ext.Operand[Any]
    size: ir.StringAttr
    wraps: Any
    message: ir.StringAttr
    out: ext.Result[Any]


class Reduce(Mlirc.Operation, name="reduce", traits=[ext.Pure]):
    """Folds an inner value over all inner dimensions, with one of the kinds reductions(). Of nothing: 0, 1, -inf or lowest, +inf or highest,
    false, true. The order of a sum is free: several accumulators, threads."""

    x: ext.Operand[Any]
    kind: ir.StringAttr
    out: ext.Result[Any]


class Scan(Mlirc.Operation, name="scan", traits=[ext.Pure]):
    """The running fold (inclusive) of an inner value along the one inner dimension, with one of the kinds scans()."""

    x: ext.Operand[Any]
    kind: ir.StringAttr
    out: ext.Result[Any]


class Yield(ListOp, name="yield"):
    """A kernel's results: `maps[k]` is result k's index at each point of the iteration space, and reaches each element once."""
