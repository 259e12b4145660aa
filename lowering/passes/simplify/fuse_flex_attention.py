"""fuse-flex-attention: flex_attention, with its score_mod and mask_mod, becomes one kernel; its gradients two."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.attention.flex import flex_refusal
from mlirc.lowering.fusion.flex_bodies import FlexBody, NotOneBody, flex_body
from mlirc.lowering.kernel.flex_attention import FORWARD, QUERIES
from mlirc.lowering.pipeline.ledger import Ledger

SHARED = ("full", "rows", "columns", "scale")


@dataclass(frozen=True)
class FuseFlexAttention:
    """Make one op of attention and what is computed on its scores, which are then stored nowhere.

    before:  %s = "mlirc.flex_scores"(%q, %k) {scale = 0.125}             tensor<BxHxLxSxf32>
             %c = "mlirc.mul"(%s, %slopes)                                score_mod
             %m = "mlirc.ge"(%i, %j)                                      mask_mod
             %o:3 = "mlirc.flex_attend"(%c, %m, %q, %k, %v, %counts, %indices, ...)
    after:   %o:2 = "mlircx.flex_attention"(%q, %k, %v, %counts, %indices, %slopes) ({ read, mul, ge, yield }) {...}

    Gradients become `mlircx.flex_attention_query_gradient` and `mlircx.flex_attention_key_gradients`. Where what is between is no kernel's body,
    the call stays, and is computed on whole matrices of scores by operators of PyTorch's; the rule is its reason:

    NO KERNEL OF ...   an op that kernels do not have, such as a call of ATen's
    SEVERAL KERNELS    they are not one pass over the scores
    A REDUCTION        likewise

    On a CPU they stay, too, where cpu/attention/flex.py has no kernel: GRADIENTS ON A CPU, LARGEST SCORES, FEW QUERIES, HEAD SIZE,
    STATIC HEADS, DTYPE, ROWS SIDE BY SIDE.
    """

    name = "fuse-flex-attention"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            build = BUILDERS.get(op.operation.name)
            if build is None:
                continue
            label = op.operation.name.removeprefix("mlirc.")
            if info_of(op.q).device == "cpu" and (rule := refused(op)):
                ledger.record(self.name, "generate", label, rule, False, op)
                continue
            if not ledger.allows(self.name, op):
                continue
            try:
                values = build(op)
            except NotOneBody as rule:
                ledger.record(self.name, "generate", label, str(rule), False, op)
                continue
            ledger.record(self.name, "generate", label, "ONE KERNEL", True, op)
            for old, new in zip(op.results, values, strict=True):
                if new is not None:
                    old.replace_all_uses_with(new)
            op.operation.erase()


def refused(op: Any) -> str:
    """Why no kernel for CPUs computes the call, or ""."""
    forward = op.operation.name == "mlirc.flex_attend"
    results = 3 if forward and is_read(op.largest) else 2
    name = FORWARD if forward else QUERIES
    return flex_refusal(name, info_of(op.q), info_of(op.k), info_of(op.v), info_of(op.results[0]), results)


def attend(op: Any) -> list[ir.Value | None]:
    """The forward pass."""
    scores = scores_of(op)
    body = flex_body(op, [op.scores, op.seen], [scores], space_of(op))
    results = [x.type for x in op.results][: 3 if is_read(op.largest) else 2]
    operands = [op.q, op.k, op.v, *lists(op, "counts", "indices"), *body.captured]
    made = kernel_op(op, "flex_attention", operands, results, body)
    return [*made, None][:3]


def gradients(op: Any) -> list[ir.Value | None]:
    """The backward pass."""
    slopes = [x for x in uses_among(op, "mlirc.flex_slopes") if same_call(x, op)]
    virtual = [scores_of(op), (scores_of(op)[0], [x.out for x in slopes])]
    body = flex_body(op, [op.operands[1], op.seen, op.operands[0]], virtual, space_of(op))
    tensors = [op.q, op.k, op.v, op.dout, op.lse, op.delta]
    made: list[ir.Value | None] = []
    if is_read(op.dq):
        operands = [*tensors, *lists(op, "counts", "indices"), *body.captured]
        again = flex_body(op, [op.operands[1], op.seen, op.operands[0]], virtual, space_of(op))
        made += kernel_op(op, "flex_attention_query_gradient", operands, [op.dq.type], again)
    else:
        made += [None]
    if is_read(op.dk) or is_read(op.dv):
        operands = [*tensors, *lists(op, "query_counts", "query_indices"), *body.captured]
        made += kernel_op(op, "flex_attention_key_gradients", operands, [op.dk.type, op.dv.type], body)
    else:
        made += [None, None]
    return made


BUILDERS = {"mlirc.flex_attend": attend, "mlirc.flex_gradients": gradients}


def space_of(op: Any) -> tuple[Int, ...]:
    """The sizes [B, H, L, S]."""
    return (*info_of(op.q).shape[:3], info_of(op.k).shape[2])


def scores_of(op: Any) -> tuple[ir.Type, Sequence[ir.Value]]:
    """The type of the scores before score_mod, and the values that they are."""
    info = TensorInfo(torch.float32, space_of(op), device=info_of(op.q).device)
    found = [x for x in uses_among(op, "mlirc.flex_scores") if (x.q, x.k, x.scale) == (op.q, op.k, op.scale)]
    return type_of(info), [x.out for x in found]


def uses_among(op: Any, name: str) -> list[Any]:
    """The ops of that name that read the same queries."""
    owners = {use.owner.operation: use.owner for use in op.q.uses}
    return [x.opview if hasattr(x, "opview") else x for x in owners.values() if x.operation.name == name]


def same_call(slopes: Any, op: Any) -> bool:
    names = (
        "scores",
        "seen",
        "q",
        "k",
        "v",
        "dout",
        "lse",
        "delta",
        "counts",
        "indices",
        "full_counts",
        "full_indices",
    )
    return all(getattr(slopes, n) == getattr(op, n) for n in (*names, *SHARED))


def lists(op: Any, counts: str, indices: str) -> list[ir.Value]:
    names = [counts, indices, f"full_{counts}", f"full_{indices}"]
    return [getattr(op, name) for name in names[: 4 if attribute_value(op.full) else 2]]


def is_read(x: ir.Value) -> bool:
    return next(iter(x.uses), None) is not None


def kernel_op(
    op: Any, name: str, operands: Sequence[ir.Value], results: Sequence[ir.Type], body: FlexBody
) -> list[ir.Value]:
    """The op that is a kernel, with the body as its region."""
    attributes = {n: op.attributes[n] for n in SHARED}
    attributes |= {"parallel": symbols.print_list(space_of(op)), "inner": "", "label": name}
    with ir.InsertionPoint(op), op.location:
        made = create(name, list(operands), list(results), attributes, regions=1)
    body.block.append_to(made.regions[0])
    return list(made.operation.results)
