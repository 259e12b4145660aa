"""FMA contraction: adds a product to a sum unrounded, in one operation.

before:  s += (x - mean) * (x - mean)      a rounding for the product, and one for the sum
after:   s = fma(x - mean, x - mean, s)
"""

from typing import TYPE_CHECKING

import torch

from mlirc.lowering.cpu.loops.reductions import LaneFold
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder

if TYPE_CHECKING:
    from mlirc.lowering.cpu.emitter.emitter import VectorEmitter


def factors(e: "VectorEmitter", fold: LaneFold) -> tuple[Value, Value] | None:
    """Two numbers whose product is what `fold` adds up here; None: it is no product, or is there already."""
    node, wide = fold.node.operands[0], fold.lanes > 1
    sums_floats = fold.node.kind == "reduce" and fold.kind == "sum" and fold.dtype in (torch.float32, torch.float64)
    if not sums_floats or node.dtype != fold.dtype or node in e.env or node in e.saved:
        return None
    if node.kind == "mul":
        x, y = node.operands
        return e.operand(x, wide), e.operand(y, wide)
    given = getattr(node.cls, "factors", None)
    return given(e.builder(node.dtype, wide), *(e.operand(x, wide) for x in node.operands)) if given else None


def with_product(b: VectorBuilder, sum_: Value, product: tuple[Value, Value], mask: Value | None) -> Value:
    """The sum after this point; as it was in lanes outside `mask`."""
    grown = b.fma(*product, sum_)
    return grown if mask is None else b.select(mask, grown, sum_)
