"""Graph-level ops that are neither scalar work nor reductions: constants, sizes, views, copies, matmuls, ATen calls."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import ListOp, Op


class Constant(Op, name="constant", traits=[ext.Pure]):
    """A number: a 0-d tensor at graph level, a scalar inside a kernel. `value` is text: Python's int, float.hex, true, false."""

    value: ir.StringAttr
    out: ext.Result[Any]


class Size(Op, name="size", traits=[ext.Pure]):
    """The size expression `expr` as an i64: a 0-d tensor or a plain i64 (a SymInt output) at graph level, a scalar in a kernel.

    Inside a kernel it may name iteration dimensions too: `expr = "d0*4 + s0"` is an iota.
    """

    expr: ir.StringAttr
    out: ext.Result[Any]


class Iota(Op, name="iota", traits=[ext.Pure]):
    """A tensor whose element at index (d0, d1, ...) is the int64 `expr`, converted to the result's dtype (arange)."""

    expr: ir.StringAttr
    out: ext.Result[Any]


class View(Op, name="view", traits=[ext.Pure]):
    """The operand's memory with other sizes and strides (the result type's), `offset` elements further on: as_strided.

    map      the operand's index for each result index (d0, d1, ...), or "" where there is none to give
    offset   a size expression, in elements

    before:  %1 = "mlirc.view"(%0) {map = "d1, d0", offset = "0"} : (tensor<4x8xf32>) -> tensor<8x4xf32, {stride = "1, 8"}>
    """

    x: ext.Operand[Any]
    map: ir.StringAttr
    offset: ir.StringAttr
    out: ext.Result[Any]


class Copy(Op, name="copy", traits=[ext.Pure]):
    """The operand's elements in the memory layout of the result type (clone, contiguous). Same dtype, same shape."""

    x: ext.Operand[Any]
    out: ext.Result[Any]


class Assign(Op, name="assign"):
    """Overwrites the memory of `target`, an input of the graph or a view of one, with `value`. Same dtype; value broadcasts."""

    target: ext.Operand[Any]
    value: ext.Operand[Any]


class Matmul(Op, name="matmul", traits=[ext.Pure]):
    """x @ y for x [M, K] and y [K, N], or with one batch dimension: [B, M, K] @ [B, K, N]. Float32 accumulation for half types."""

    x: ext.Operand[Any]
    y: ext.Operand[Any]
    out: ext.Result[Any]

    reference = staticmethod(torch.matmul)


class AddMatmul(Op, name="addmm", traits=[ext.Pure]):
    """bias + x @ y; bias broadcasts to [M, N] (or [B, M, N])."""

    bias: ext.Operand[Any]
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    out: ext.Result[Any]

    reference = staticmethod(lambda bias, x, y: torch.addmm(bias, x, y) if x.dim() == 2 else torch.baddbmm(bias, x, y))


class AddMatmulGelu(Op, name="addmm_gelu", traits=[ext.Pure]):
    """GELU by tanh of bias + x @ y, rounded once, for a bias [N] and half types: what cuBLAS does in one kernel."""

    bias: ext.Operand[Any]
    x: ext.Operand[Any]
    y: ext.Operand[Any]
    out: ext.Result[Any]

    @staticmethod
    def reference(bias, x, y):
        total = torch.addmm(bias.float(), x.float(), y.float())
        return torch.nn.functional.gelu(total, approximate="tanh").to(x.dtype)


class Aten(ListOp, name="aten"):
    """Calls the ATen operator (or other torch operator) `op` as eager would: what makes every operator of PyTorch work.

    op       "aten.erfinv.default"
    args     its arguments as JSON text, in which {"$": i} stands for operand i; aten_arguments.py has the encoding
    aliases  for each result, the operand that it is a view of, or -1: "0, -1"
    Result strides are those of the types; the callee's result is copied into them should it come out otherwise.
    overridden  (where it is there) the operator's kernel is not PyTorch's: no pass may put anything in the call's place
    A list or tuple of results is flat here, without those that are None (an output mask left them out).
    A call without effects: it may be dropped.
    """


class AtenEffect(ListOp, name="aten_effect"):
    """Calls an ATen operator with an effect, as `aten` does. The call is never dropped, and keeps its order: random numbers, mutation,
    collectives, prints."""
