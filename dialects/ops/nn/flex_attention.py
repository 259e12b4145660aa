"""flex_attention: attention whose scores and mask are computed element by element.

Two forms. As traced it is several ops, with score_mod and mask_mod as ops on [B, H, L, S] between them:

    %s = "mlirc.flex_scores"(%q, %k)                %m, %seen = ... of %s
    %out, %lse, %max = "mlirc.flex_attend"(%m, %seen, %q, %k, %v, ...)

The pass fuse-flex-attention makes one op of that, with what is between as its region, a kernel's body. Its operands are %scores, and in
gradients %slopes, which nobody stores, and tensors that score_mod and mask_mod read:

    %out, %lse = "mlircx.flex_attention"(%q, %k, %v, %counts, %indices, %bias) ({
    ^bb0(%scores: tensor<BxHxLxSxf32>, %b: tensor<H>):
      ...
      "mlircx.yield"(%changed, %seen) {maps = ["d0, d1, d2, d3", "d0, d1, d2, d3"]} : (f32, i1) -> ()
    }) {parallel = "B, H, L, S", inner = "", label = "flex_attention", scale = 0.125 : f64, rows = 128, columns = 128, full = false}

What no kernel is made of calls the operators of dialects/ops/nn/flex_operators.py, which says what each computes.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import aten_arguments
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Composite, ListOp, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.ops.nn import flex_operators as dense

FLEX = ("flex_attention", "flex_attention_query_gradient", "flex_attention_key_gradients")
"""The ops that are kernels."""


class FlexScores(Composite, name="flex_scores"):
    """scale * q @ k^T for q [B, H, L, D] and k [B or 1, G, S, D], in float32 or wider: [B, H, L, S]."""

    q: ext.Operand[Any]
    k: ext.Operand[Any]
    scale: ir.FloatAttr
    out: ext.Result[Any]

    reference = staticmethod(lambda q, k, *, scale: dense.flex_scores(q, k, scale))

    @staticmethod
    def expand(g, q, k, *, scale):
        batch, heads, rows, _ = info_of(q).shape
        wide = torch.float64 if info_of(q).dtype == torch.float64 else torch.float32
        result = TensorInfo(wide, (batch, heads, rows, info_of(k).shape[2]), device=info_of(q).device)
        return called("flex_scores", (q, k, scale), [result])[0]


class FlexAttend(Composite, name="flex_attend"):
    """Attention over what score_mod and mask_mod gave: the result [B, H, L, Dv], lse and the largest score [B, H, L].

    full   whether the last two lists are of full blocks; else they are not read
    order  the result's dimensions as they lie in memory
    """

    scores: ext.Operand[Any]
    seen: ext.Operand[Any]
    q: ext.Operand[Any]
    k: ext.Operand[Any]
    v: ext.Operand[Any]
    counts: ext.Operand[Any]
    indices: ext.Operand[Any]
    full_counts: ext.Operand[Any]
    full_indices: ext.Operand[Any]
    full: Any
    rows: ir.IntegerAttr
    columns: ir.IntegerAttr
    scale: ir.FloatAttr
    order: ir.StringAttr
    out: ext.Result[Any]
    lse: ext.Result[Any]
    largest: ext.Result[Any]

    @staticmethod
    def reference(scores, seen, q, k, v, *lists, full, rows, columns, scale, order):
        return dense.flex_attend(scores, seen, q, k, v, lists[: 2 + 2 * full], rows, columns, scale, numbers(order))

    @staticmethod
    def expand(g, scores, seen, q, k, v, *lists, full, rows, columns, scale, order):
        info, wide = info_of(q), info_of(scores).dtype
        sums = TensorInfo(wide, info.shape[:3], device=info.device)
        shape = (*info.shape[:3], info_of(v).shape[3])
        results = [laid_out(TensorInfo(info.dtype, shape, device=info.device), numbers(order)), sums, sums]
        arguments = scores, seen, q, k, v, list(lists[: 2 + 2 * full]), rows, columns, scale, numbers(order)
        return called("flex_attend", arguments, results)


class FlexSlopes(Composite, name="flex_slopes"):
    """The gradient of what score_mod gives, [B, H, L, S]."""

    scores: ext.Operand[Any]
    seen: ext.Operand[Any]
    q: ext.Operand[Any]
    k: ext.Operand[Any]
    v: ext.Operand[Any]
    dout: ext.Operand[Any]
    lse: ext.Operand[Any]
    delta: ext.Operand[Any]
    counts: ext.Operand[Any]
    indices: ext.Operand[Any]
    full_counts: ext.Operand[Any]
    full_indices: ext.Operand[Any]
    full: Any
    rows: ir.IntegerAttr
    columns: ir.IntegerAttr
    scale: ir.FloatAttr
    out: ext.Result[Any]

    @staticmethod
    def reference(scores, seen, q, k, v, dout, lse, delta, *lists, full, rows, columns, scale):
        lists = lists[: 2 + 2 * full]
        return dense.flex_slopes(scores, seen, q, k, v, dout, lse, delta, lists, rows, columns, scale)

    @staticmethod
    def expand(g, scores, seen, q, k, v, dout, lse, delta, *lists, full, rows, columns, scale):
        info = info_of(scores)
        arguments = scores, seen, q, k, v, dout, lse, delta, list(lists[: 2 + 2 * full]), rows, columns, scale
        return called("flex_slopes", arguments, [TensorInfo(info.dtype, info.shape, device=info.device)])[0]


class FlexGradients(Composite, name="flex_gradients"):
    """The gradients of q, k and v, given that of the scores before score_mod. The lists of queries follow those of keys."""

    slopes: ext.Operand[Any]
    scores: ext.Operand[Any]
    seen: ext.Operand[Any]
    q: ext.Operand[Any]
    k: ext.Operand[Any]
    v: ext.Operand[Any]
    dout: ext.Operand[Any]
    lse: ext.Operand[Any]
    delta: ext.Operand[Any]
    counts: ext.Operand[Any]
    indices: ext.Operand[Any]
    full_counts: ext.Operand[Any]
    full_indices: ext.Operand[Any]
    query_counts: ext.Operand[Any]
    query_indices: ext.Operand[Any]
    full_query_counts: ext.Operand[Any]
    full_query_indices: ext.Operand[Any]
    full: Any
    rows: ir.IntegerAttr
    columns: ir.IntegerAttr
    scale: ir.FloatAttr
    order: ir.StringAttr
    dq: ext.Result[Any]
    dk: ext.Result[Any]
    dv: ext.Result[Any]

    @staticmethod
    def reference(slopes, scores, seen, q, k, v, dout, lse, delta, *lists, full, rows, columns, scale, order):
        blocks, transposed = lists[: 2 + 2 * full], lists[4 : 6 + 2 * full]
        more = blocks, transposed, rows, columns, scale, numbers(order)
        return dense.flex_gradients(slopes, scores, seen, q, k, v, dout, lse, delta, *more)

    @staticmethod
    def expand(g, slopes, scores, seen, q, k, v, dout, lse, delta, *lists, full, rows, columns, scale, order):
        blocks, transposed = list(lists[: 2 + 2 * full]), list(lists[4 : 6 + 2 * full])
        orders = numbers(order)
        infos = [TensorInfo(info.dtype, info.shape, device=info.device) for info in map(info_of, (q, k, v))]
        results = [laid_out(info, orders[4 * n : 4 * n + 4]) for n, info in enumerate(infos)]
        more = blocks, transposed, rows, columns, scale, orders
        return called("flex_gradients", (slopes, scores, seen, q, k, v, dout, lse, delta, *more), results)


# ---- as kernels


class FlexAttention(ListOp, name="flex_attention", regions=1):
    """Attention as one kernel.

    operands   q, k, v, counts, indices, with `full` full counts and full indices, then what the body reads
    results    out, lse, and the largest scores where somebody reads them
    body       takes the scores in float32 and what it reads; yields the scores after score_mod, and what mask_mod says
    """


class FlexQueryGradient(ListOp, name="flex_attention_query_gradient", regions=1):
    """The gradient of q.

    operands   q, k, v, dout, lse, delta, then as for flex_attention
    body       takes scores and slopes, the gradient of what score_mod gives, and what it reads; yields the scores after score_mod, what
               mask_mod says, and the gradient of the scores
    """


class FlexKeyGradients(ListOp, name="flex_attention_key_gradients", regions=1):
    """The gradients of k and v. Operands and body are those of flex_attention_query_gradient, but the lists are those of queries."""


# ---- import


@imports("mlirc.flex_scores.default")
def flex_scores(g, q, k, scale):
    return create("flex_scores", [q, k], [type_of(g.out)], {"scale": float(scale)}).out


@imports("mlirc.flex_attend.default")
def flex_attend(g, scores, seen, q, k, v, blocks, rows, columns, scale, order):
    attributes = list_attributes(blocks, rows, columns, scale) | {"order": ", ".join(map(str, order))}
    operands = [scores, seen, q, k, v, *four(blocks)]
    return list(create("flex_attend", operands, [type_of(x) for x in g.outs], attributes).results)


@imports("mlirc.flex_slopes.default")
def flex_slopes(g, scores, seen, q, k, v, dout, lse, delta, blocks, rows, columns, scale):
    operands = [scores, seen, q, k, v, dout, lse, delta, *four(blocks)]
    return create("flex_slopes", operands, [type_of(g.out)], list_attributes(blocks, rows, columns, scale)).out


@imports("mlirc.flex_gradients.default")
def flex_gradients(
    g, slopes, scores, seen, q, k, v, dout, lse, delta, blocks, transposed, rows, columns, scale, orders
):
    attributes = list_attributes(blocks, rows, columns, scale) | {"order": ", ".join(map(str, orders))}
    operands = [slopes, scores, seen, q, k, v, dout, lse, delta, *four(blocks), *four(transposed)]
    return list(create("flex_gradients", operands, [type_of(x) for x in g.outs], attributes).results)


def list_attributes(blocks: Sequence[ir.Value], rows: Any, columns: Any, scale: float) -> dict[str, Any]:
    if not isinstance(rows, int) or not isinstance(columns, int):
        raise NotOurs("the sizes of a block mask's blocks are symbols")
    return {"full": len(blocks) == 4, "rows": rows, "columns": columns, "scale": float(scale)}


def four(blocks: Sequence[ir.Value]) -> list[ir.Value]:
    """Four lists, the last two of which are not read where there are two."""
    return [*blocks, *blocks][:4]


def numbers(order: str) -> list[int]:
    return [int(n) for n in order.split(",")]


def laid_out(info: TensorInfo, order: Sequence[int]) -> TensorInfo:
    """Row-major, with the dimensions in that order in memory."""
    stride: list[Any] = [0] * info.rank
    step: Any = 1
    for d in reversed(order):
        stride[d] = step
        step = step * info.shape[d]
    return TensorInfo(info.dtype, info.shape, tuple(stride), info.device)


def called(name: str, arguments: Sequence[Any], results: Sequence[TensorInfo]) -> list[ir.Value]:
    """A call of the operator, which computes it on whole matrices of scores."""
    flat = [x for item in arguments for x in (item if isinstance(item, list) else [item])]
    operands = list(dict.fromkeys(x for x in flat if isinstance(x, ir.Value)))
    text = aten_arguments.encode(tuple(arguments), {}, operands.index, [])
    aliases = ", ".join(["-1"] * len(results))
    attributes = {"op": f"mlirc.{name}.default", "args": text, "aliases": aliases}
    return list(create("aten", operands, [type_of(info) for info in results], attributes).operation.results)
