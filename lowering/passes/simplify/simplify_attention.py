"""simplify-attention: masks that hide nothing, or what comes later, and keys that are repeated for each head."""

import math
from dataclasses import replace
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_ops import Copy, View
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.element_expressions import ALWAYS, Elements, view_index
from mlirc.lowering.analysis.index_maps import identity
from mlirc.lowering.cpu.attention.call import read_attention, refusal
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class SimplifyAttention:
    """Drop attention masks whose elements are known from positions, and copies of keys that several heads share.

    before:  %m = "mlirc.select"(%k_le_q, %zero, %minus_inf)                %k_le_q: iota along d3 <= iota along d2
             %1:2 = "mlirc.attention"(%q, %k, %v, %m) {causal = "none", ...}
    after:   %1:2 = "mlirc.attention"(%q, %k, %v) {causal = "upper_left", ...}

    ALWAYS SEEN       a mask that is true, or 0, at every index: gone (element_expressions.py finds out)
    CAUSAL            key <= query: causal = "upper_left"; key <= query + S - L: "lower_right"
    REPEATED          keys and values repeated along the heads are read where they were before: [B, G, S, D]
    A mask by the lowest finite number averages a row that it hides whole, where one by -inf gives 0: it stays unless each
    row sees some key. So does a causal one where the scale is 0 or less: ATen's causal kernel multiplies its -inf by that.
    Every mask stays where no kernel of ours is for the call: a row of scores that are all NaN gives NaN by ATen's kernel, but
    0 where it is given no mask.
    """

    name = "simplify-attention"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name != "mlirc.attention":
                continue
            if len(op.operands) > 3:
                causal, rule = without_mask(op)
                if causal is not None and not ledger.allows(self.name, op):
                    causal, rule = None, "REWRITES"
                ledger.record(self.name, "simplify", "attention", rule or "NOT KNOWN", causal is not None, op)
                if causal is not None:
                    op = rebuilt(op, list(op.operands)[:3], causal)
            shared = shared_heads(op)
            if shared and ledger.allows(self.name, op):
                ledger.record(self.name, "simplify", "attention", "REPEATED", True, op)
                rebuilt(op, [op.operands[0], *shared, *list(op.operands)[3:]], op.causal.value)


def rebuilt(op: Any, operands: list[ir.Value], causal: str) -> Any:
    """The op with other operands, in its place."""
    attributes = {"scale": op.attributes["scale"], "causal": causal}
    with ir.InsertionPoint(op), op.location:
        made = create("attention", operands, [r.type for r in op.results], attributes)
    for old, new in zip(op.results, made.results, strict=True):
        old.replace_all_uses_with(new)
    op.operation.erase()
    return made


def without_mask(op: Any) -> tuple[str | None, str]:
    """What `causal` is to be without the mask, None if it must stay; and the rule."""
    call = read_attention(op)
    if refusal(call):
        return None, ""
    mask = op.operands[3]
    space = (*call.q.shape[:3], call.k.shape[2])
    index = tuple(0 if n == 1 else d for n, d in zip(space, identity(4), strict=True))
    known = Elements({f"d{k}": size for k, size in enumerate(space)}).seen(mask, broadcast_map(mask, index))
    if known is None:
        return None, ""
    condition, is_finite = known
    if condition == ALWAYS:
        return call.causal, "ALWAYS SEEN"
    rows, keys = space[2:]
    forms = {index[2] - index[3] + (keys - rows): "lower_right", index[2] - index[3]: "upper_left"}
    causal = forms.get(next(iter(condition))) if len(condition) == 1 else None
    if causal is None or call.causal not in ("none", causal):
        return None, ""
    if not 0 < call.scale < math.inf:
        return None, ""
    if causal == "lower_right" and is_finite and not symbols.known_nonnegative(keys - rows):
        return None, ""
    return causal, "CAUSAL"


def shared_heads(op: Any) -> list[ir.Value] | None:
    """What keys and values are repeated from along the heads, [B, G, S, D] and [B, G, S, Dv]."""
    found = [before_repeat(x) for x in list(op.operands)[1:3]]
    shared = [x for x in found if x is not None]
    if len(shared) < 2 or info_of(shared[0]).shape[1] != info_of(shared[1]).shape[1]:
        return None
    keys, values = map(info_of, shared)
    # ATen's kernel would need them repeated again
    return None if refusal(replace(read_attention(op), k=keys, v=values)) else shared


def before_repeat(value: ir.Value) -> ir.Value | None:
    """The [B, G, S, D] tensor whose head h // n is head h of `value`, if views and copies lead there."""
    shape = info_of(value).shape
    ranges: dict[str, Int] = {f"d{k}": size for k, size in enumerate(shape)}
    index: tuple[Int, ...] = identity(4)
    while not isinstance(value.owner, ir.Block):
        op = value.owner
        if isinstance(op, View):
            moved = view_index(op, index, ranges)
            if moved is None:
                return None
            index = moved
        elif not isinstance(op, Copy):
            return None
        value = op.operands[0]
        info = info_of(value)
        heads, groups = shape[1], info.shape[1] if info.rank == 4 else None
        if isinstance(heads, int) and isinstance(groups, int) and 0 < groups < heads and heads % groups == 0:
            batch, head, row, element = identity(4)
            place = symbols.floordiv(head, heads // groups, ranges) if groups > 1 else 0
            wanted = tuple(0 if n == 1 else at for n, at in zip(shape, (batch, place, row, element), strict=True))
            same = (shape[0], *shape[2:]) == (info.shape[0], *info.shape[2:])
            have = tuple(0 if n == 1 else at for n, at in zip(shape, index, strict=True))
            if same and have == wanted:
                return value
    return None
