"""accumulate-embeddings: the gradient of an embedding is added to rows of one tensor, not made beside it."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import product, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.indexing import indexed
from mlirc.lowering.fusion.aten_calls import arguments, call_aten, called
from mlirc.lowering.pipeline.ledger import Ledger

BACKWARD = "aten.embedding_dense_backward.default"
MATMULS = ("mlirc.matmul", "mlirc.addmm")


@dataclass(frozen=True)
class AccumulateEmbeddings:
    """Write the dense gradient of an embedding as additions to the rows of zeros, or of the gradient that it is added to.

    before:  %0 = "mlirc.matmul"(%g, %x)                                  the gradient of the decoder that shares the weight
             %1 = "mlircx.aten"(%rows, %tokens) {op = "aten.embedding_dense_backward.default", ...}
             %2 = "mlirc.add"(%0, %1)
    after:   %t = "mlircx.aten"(%zeros, %tokens, %iota) {op = "aten.index_put.default", ...}   one row for each token
             %n = "mlirc.index"(%t, %tokens)
             %s = "mlircx.aten"(%zeros, %n, %rows) {op = "aten.index_add.default", ...}        sums of equal tokens' rows
             %2 = "mlircx.aten"(%0, %tokens, %s) {op = "aten.index_add.default", ...}

    TIED     the other addend is a matmul that nothing else reads. Rows of equal tokens are added up first, as eager
             does: a long chain of additions to a large number would lose digits.
    elide-copies then lets the additions write where the zeros or the matmul are: a vocabulary's gradient is
    written once. Float32 and float64 on a CPU; scaling by frequency, and a padding index that is a symbol, stay with ATen.
    """

    name = "accumulate-embeddings"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        ops = [op for op in function.regions[0].blocks[0].operations if called(op) == BACKWARD and is_ours(op)]
        for op in ops:
            if not ledger.allows(self.name, op):
                continue
            add = tied_sum(op.results[0])
            ledger.record(self.name, "accumulate", BACKWARD, "TIED" if add else "ZEROS", True, op)
            last = add or op
            with ir.InsertionPoint(last), last.location:
                made = accumulated(op, add)
            last.results[0].replace_all_uses_with(made)
            if add:
                add.operation.erase()
            op.operation.erase()


def is_ours(op: Any) -> bool:
    padding, by_frequency = arguments(op)[3:5]
    info = info_of(op.results[0])
    index = info_of(op.operands[1])
    return (
        info.device == "cpu"
        and info.dtype in (torch.float32, torch.float64)
        and info == TensorInfo(info.dtype, info.shape)
        and index.dtype in (torch.int64, torch.int32)
        and isinstance(padding, int)
        and not by_frequency
    )


def tied_sum(x: ir.Value) -> Any | None:
    """The addition of `x`, which has no other use, to a matmul that has none either."""
    add = only_user(x)
    if add is None or add.operation.name != "mlirc.add" or add.results[0].type != x.type:
        return None
    others = [v for v in add.operands if v != x]
    if len(others) != 1 or others[0].type != x.type or isinstance(others[0].owner, ir.Block):
        return None
    return add if others[0].owner.name in MATMULS and only_user(others[0]) is not None else None


def only_user(x: ir.Value) -> Any | None:
    """The op that uses the value, if it is used once. Views that nobody reads are left behind by other passes."""
    users = [use.owner for use in x.uses if use.owner.name != "mlirc.view" or is_read(use.owner.results[0])]
    return users[0].opview if len(users) == 1 else None


def is_read(x: ir.Value) -> bool:
    return next(iter(x.uses), None) is not None


def accumulated(op: Any, add: Any | None) -> ir.Value:
    """The gradient, plus what `add` adds to it."""
    g, info = GraphBuilder(), info_of(op.results[0])
    grad, tokens = op.operands
    padding = arguments(op)[3]
    n = product(info_of(tokens).shape)
    rows = flat(g, grad, [n, info.shape[1]])
    tokens = g.cast(flat(g, tokens, [n]), torch.int64)
    if padding >= 0:
        seen = g.unsqueeze(g.ne(tokens, padding), 1)
        rows = g.select(seen, rows, 0.0)
    if add is None:
        zeros = g.fill(0.0, info.shape, info.dtype)
        return call_aten("aten.index_add.default", [zeros, 0, tokens, rows], info)
    base = next(v for v in add.operands if v != op.results[0])
    table = g.fill(0, info.shape[:1], torch.int64)
    order = g.copy(g.iota([n], symbol("d0")))
    table = call_aten("aten.index_put.default", [table, [tokens], order, False], info_of(table))
    place = indexed(table, [0], [tokens], 0, False, "index out of range in self")
    none = g.fill(0.0, [n, info.shape[1]], info.dtype)
    sums = call_aten("aten.index_add.default", [none, 0, place, rows], info_of(none))
    return call_aten("aten.index_add.default", [base, 0, tokens, sums], info)


def flat(g: GraphBuilder, x: ir.Value, shape: list) -> ir.Value:
    """`x`, row-major, with its first dimensions as one."""
    info = info_of(x)
    plain = TensorInfo(info.dtype, info.shape)
    x = x if info == plain else g.copy(x)
    strides = TensorInfo(info.dtype, tuple(shape)).stride
    return x if info.shape == tuple(shape) else g.view(x, shape, strides, None)
