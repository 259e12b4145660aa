"""select-attention: attention that our own kernels do not cover becomes a call of ATen's."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.nn.attention import aten_call
from mlirc.lowering.cpu.attention.call import (
    AttentionProblem,
    aten_takes,
    backward_refusal,
    read_attention,
    read_gradients,
    refusal,
)
from mlirc.lowering.cpu.attention.coverage import MOST_HEAD
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.pipeline.ledger import Ledger

FEW_QUERIES, MANY_KEYS = 8, 64


@dataclass(frozen=True)
class SelectAttention:
    """Leave attention and its gradients to ATen where no kernel of ours is written for them; attention/call.py says when.

    before:  %1:2 = "mlirc.attention"(%q, %k, %v) {causal = "none", scale = 1.250000e-01 : f64} : (tensor<..xf64>, ...)
    after:   %1:2 = "mlircx.aten"(%q, %k, %v) {op = "aten._scaled_dot_product_flash_attention_for_cpu.default", ...}

    FEW QUERIES       the gradients of a few queries with many keys, or of one query, are ATen's too: ours would compute many lanes in
                      vain. So is the attention whose `lse` they read: gradients compute the scores again, which cancel with lse only
                      where both are summed in one order. Scores of 100 had gradients of 20 times eager's error else.
    """

    name = "select-attention"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            name = op.operation.name.removeprefix("mlirc.")
            if name == "attention":
                call = read_attention(op)
                differentiated = any(True for _ in op.results[1].uses)
                rule = refusal(call) or (few_queries(call) if differentiated else "")
            elif name == "attention_backward":
                gradients = read_gradients(op)
                call, rule = gradients.call, backward_refusal(gradients) or few_queries(gradients.call)
            else:
                continue
            numbers = compared(call, rule)
            ledger.record(self.name, "generate", name, rule or "COVERED", not rule, op, **numbers)
            if not rule or not ledger.allows(self.name, op):
                continue
            if not aten_takes(call):
                raise UnsupportedByPass(op, f"attention that neither ATen nor a kernel of ours computes ({rule})")
            with ir.InsertionPoint(op), op.location:
                made = aten_call(op)
            for old, new in zip(op.results, made, strict=name == "attention"):  # nobody reads a backward pass's scratch
                old.replace_all_uses_with(new)
            op.operation.erase()


def compared(a: AttentionProblem, rule: str) -> dict[str, int | str]:
    """The numbers that a rule compares: sizes, those in symbols as text."""
    shown = lambda n: n if isinstance(n, int) else str(n)
    if rule == "FEW QUERIES":
        numbers = {"queries": shown(a.q.shape[2]), "keys": shown(a.k.shape[2])}
        return {**numbers, "least_queries": FEW_QUERIES, "many_keys": MANY_KEYS}
    if rule == "HEAD SIZE":
        return {"head": shown(a.q.shape[3]), "head_of_values": shown(a.v.shape[3]), "most": MOST_HEAD}
    return {}


def few_queries(a: AttentionProblem) -> str:
    """The rule by which ATen's gradients are faster than ours, or "". In bfloat16 they are not."""
    queries, keys = a.q.shape[2], a.k.shape[2]
    few = isinstance(queries, int) and isinstance(keys, int) and queries < FEW_QUERIES and keys >= MANY_KEYS
    return "FEW QUERIES" if (few or queries == 1) and a.q.dtype == torch.float32 and aten_takes(a) else ""
