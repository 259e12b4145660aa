"""Accumulators of reductions and scans, as text: each is a list of vectors or scalars.

A sum has two levels where it is long: blocks of at most BLOCK additions a lane, their sums in float64. So its error does
not grow with the length, as eager's does not. Of float64 the upper level is compensated: what each of its additions rounds
away is summed beside it.
"""

import math
from collections.abc import Callable
from dataclasses import replace

import torch

from mlirc.dialects.core.dialect import COMBINED
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder
from mlirc.lowering.kernel.fold import Fold
from mlirc.lowering.kernel.nodes import Node

BLOCK = 16  # additions of float32 to one lane before it is added to the float64 level
BLOCK_OF_FLOAT64 = 64


def block_of(reductions: list[Node]) -> int:
    return BLOCK if any(n.dtype == torch.float32 for n in reductions) else BLOCK_OF_FLOAT64


@dataclass(frozen=True)
class LaneFold(Fold):
    """A fold whose accumulators are vectors of `lanes` lanes.

    upper   whether it is the upper level of a sum, float64 for float32
    exact   whether an upper level of float64 is compensated
    twin    the reduction to the position of the extreme that this fold finds: one accumulator has both
    """

    lanes: int
    upper: bool = False
    exact: bool = False
    twin: Node | None = None

    @property
    def each(self) -> "list[LaneFold]":
        """The fold of each node whose result the accumulator has."""
        return [self, replace(self, node=self.twin, twin=None)] if self.twin else [self]

    @property
    def compensated(self) -> bool:
        """Whether the accumulator is a float64 sum and, beside it, the sum of what was rounded away."""
        is_sum = self.kind == "sum" and self.node.kind == "reduce"
        return self.upper and self.exact and is_sum and self.source == torch.float64

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the accumulator's values."""
        is_wider = self.upper and self.kind == "sum" and self.node.kind == "reduce"  # a scan has one level
        return torch.float64 if self.source == torch.float32 and is_wider else self.source

    @property
    def dtypes(self) -> list[torch.dtype]:
        if self.compensated:
            return [self.dtype, self.dtype]
        return [self.dtype, torch.int64] if self.positional else [self.dtype]

    def start(self, b: VectorBuilder) -> list[Value]:
        first = b.constant(self.identity, self.dtype)
        if self.compensated:
            return [first, first]
        return [first, b.constant(0, torch.int64)] if self.positional else [first]

    def step(self, b: VectorBuilder, state: list[Value], x: Value, index: Value | None) -> list[Value]:
        """Folds x (at row-major position `index`, which an arg reduction needs) into the accumulator."""
        if index is None:
            return [self.combine(b, state[0], b.cast(x, self.dtype))]
        best, position = state
        closer = b.gt(x, best) if self.kind.endswith("max") else b.lt(x, best)
        if self.dtype.is_floating_point:  # the first NaN wins
            closer = b.or_(closer, b.and_(b.ne(x, x), b.eq(best, best)))
        return [b.select(closer, x, best), b.select(closer, index, position)]

    def along(self, b: VectorBuilder, state: list[Value], x: Value) -> tuple[list[Value], Value]:
        """A scan whose next points are the lanes of x: the accumulator, the same in all lanes, and the scan's value in each lane."""
        (before,), x, type_ = state, b.cast(x, self.dtype), b.type_text(self.dtype)
        first, shift = b.constant(self.identity, self.dtype), 1
        while shift < b.lanes:
            moved = [k if k < shift else b.lanes + k - shift for k in range(b.lanes)]
            x = self.combine(b, b.emit(f"vector.shuffle {first}, {x} {moved} : {type_}, {type_}", self.dtype), x)
            shift *= 2
        last = b.emit(f"vector.shuffle {x}, {x} {[b.lanes - 1] * b.lanes} : {type_}, {type_}", self.dtype)
        return [self.combine(b, before, last)], self.combine(b, before, x)

    def merge(self, b: VectorBuilder, state: list[Value], other: list[Value]) -> list[Value]:
        """Combines two accumulators. `other` is cast to this level first."""
        if self.compensated:
            return self.compensate(b, state, other)
        if len(state) == 1:
            return [self.combine(b, state[0], b.cast(other[0], self.dtype))]
        (x, i), (y, j) = state, other
        closer = b.gt(y, x) if self.kind.endswith("max") else b.lt(y, x)
        tie = b.eq(x, y)
        if self.dtype.is_floating_point:
            first, second = b.ne(x, x), b.ne(y, y)
            closer = b.or_(closer, b.and_(second, b.not_(first)))
            tie = b.or_(tie, b.and_(first, second))
        closer = b.or_(closer, b.and_(tie, b.lt(j, i)))
        return [b.select(closer, y, x), b.select(closer, j, i)]

    def compensate(self, b: VectorBuilder, state: list[Value], other: list[Value]) -> list[Value]:
        """s = x + y, rounded, and e with s + e = x + y exactly (Knuth's sum of two)."""
        (x, lost), y = state, other[0]
        s = b.add(x, y)
        moved = b.sub(s, x)
        error = b.add(b.sub(x, b.sub(s, moved)), b.sub(y, moved))
        lost = b.add(lost, error)
        return [s, b.add(lost, other[1]) if len(other) > 1 else lost]

    def combine(self, b: VectorBuilder, x: Value, y: Value) -> Value:
        if self.kind in COMBINED:
            return COMBINED[self.kind].combine(b, x, y)
        method = {"sum": b.add, "prod": b.mul, "max": b.maximum, "min": b.minimum, "any": b.or_, "all": b.and_}
        return method[self.kind](x, y)

    def across(self, b: VectorBuilder, state: list[Value]) -> list[Value]:
        """The lanes of an accumulator folded into scalars."""
        if b.lanes == 1:
            return state
        if self.kind in COMBINED:
            return [self.lanes_combined(b, *state)]
        if not self.positional:
            return [lanes_folded(b, self.kind, x) for x in state]
        value, position = state
        extreme = "max" if self.kind.endswith("max") else "min"
        best = lanes_folded(b, extreme, value)
        same = b.emit(f"vector.broadcast {best} : {_scalar(b, best)} to {b.type_text(best.dtype)}", best.dtype)
        hits = b.eq(value, same)
        if self.dtype.is_floating_point:
            hits = b.or_(hits, b.and_(b.ne(value, value), b.ne(same, same)))
        position = b.select(hits, position, b.constant(torch.iinfo(torch.int64).max, torch.int64))
        first = lanes_folded(b, "min", position)
        if self.gives_position:
            return [best, first]
        same = b.emit(f"vector.broadcast {first} : i64 to {b.type_text(torch.int64)}", torch.int64)
        value = b.select(b.eq(position, same), value, b.constant(self.identity, self.dtype))
        return [lanes_folded(b, extreme, value), first]  # of one lane, so that a zero keeps its sign

    def lanes_combined(self, b: VectorBuilder, x: Value) -> Value:
        """The lanes combined by a kind that an op defines: halves of the vector with each other, until all lanes are in the first one."""
        type_, half = b.type_text(self.dtype), b.lanes // 2
        while half:
            moved = [(k + half) % b.lanes for k in range(b.lanes)]
            x = self.combine(b, x, b.emit(f"vector.shuffle {x}, {x} {moved} : {type_}, {type_}", self.dtype))
            half //= 2
        return b.emit(f"vector.extract {x}[0] : {_scalar(b, x)} from {type_}", self.dtype)

    def result(self, b: VectorBuilder, state: list[Value]) -> Value:
        if self.compensated:  # of an infinite sum what was lost is NaN
            s, lost = state
            return b.cast(b.select(b.eq(lost, lost), b.add(s, lost), s), self.node.dtype)
        return state[-1] if self.gives_position else b.cast(state[0], self.node.dtype)


def folds_of(nodes: list[Node], lanes: Callable[[Node], int]) -> list[LaneFold]:
    """The folds of a pass: one for both results of `max` or `min`, whose accumulators are the same."""
    positions = {
        (n.attributes["kind"][3:], n.operands): n for n in nodes if n.attributes["kind"] in ("argmax", "argmin")
    }
    folds = []
    for node in nodes:
        kind, _, extreme = node.attributes["kind"].partition("_")
        twin = positions.get((extreme, node.operands)) if kind == "first" else None
        folds.append(LaneFold(node, lanes(node), twin=twin))
    twins = [f.twin for f in folds]
    return [f for f in folds if f.node not in twins]


def merged(builder: Callable[[LaneFold], VectorBuilder], folds: list[LaneFold], state: list[Value]) -> list[Value]:
    """Merges the copies of each fold's accumulator, which stand side by side, into one."""
    width = sum(len(f.dtypes) for f in folds)
    total = state[:width]
    if not folds:
        return total
    for first in range(width, len(state), width):
        other, result = state[first : first + width], []
        for fold in folds:
            at = slice(len(result), len(result) + len(fold.dtypes))
            result += fold.merge(builder(fold), total[at], other[at])
        total = result
    return total


def lanes_folded(b: VectorBuilder, kind: str, x: Value) -> Value:
    dtype = x.dtype
    if kind in ("max", "min") and dtype.is_floating_point:
        return _extremum_of_lanes(b, kind, x)
    if kind in ("max", "min"):
        word = f"{kind}{'s' if dtype.is_signed else 'u'}i"
    else:
        word = {"sum": "or" if dtype == torch.bool else "add", "prod": "mul", "any": "or", "all": "and"}[kind]
    # without leave to reassociate, a sum would go through the lanes one by one
    order = " fastmath<reassoc>" if word in ("add", "mul") and dtype.is_floating_point else ""
    return b.emit(f"vector.reduction <{word}>, {x}{order} : {b.type_text(dtype)} into {_scalar(b, x)}", dtype)


def _extremum_of_lanes(b: VectorBuilder, kind: str, x: Value) -> Value:
    """The extremum of the lanes, NaN if any lane is NaN. NaN is looked for apart: an instruction that propagates it takes four times as long."""
    unordered = b.ne(x, x)
    scalar = VectorBuilder(b.text, b.lines, x.dtype, 1)
    vector, bools = b.type_text(x.dtype), b.type_text(torch.bool)
    found = b.emit(f"vector.reduction <or>, {unordered} : {bools} into i1", torch.bool)
    word = f"vector.reduction <{kind}numf>, {x} fastmath<nnan> : {vector} into {_scalar(b, x)}"
    return scalar.select(found, scalar.constant(math.nan, x.dtype), b.emit(word, x.dtype))


def _scalar(b: VectorBuilder, x: Value) -> str:
    return VectorBuilder(b.text, b.lines, x.dtype, 1).type_text(x.dtype)
