"""Values of integer and boolean tensors as expressions of their index: positions, comparisons of them, masks.

    iota, arithmetic, concatenation, gathers    a number   at (d0, d1): d1 - 1
    comparisons and logic                       a condition: expressions that are all at least 0 where it holds

Expressions are those of symbols.py. Their dimensions d0, d1, ... are those of one space, whose sizes bound them. What is not certain
is None.
"""

import math
from dataclasses import field
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.graph_ops import Constant, Copy, Iota, Size, View
from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.dialects.core.symbols import Int, symbol
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.dialects.ops.movement.indexing import Indexed
from mlirc.lowering.analysis.constant_values import number_of

SMALL = 1 << 31  # larger numbers might make index arithmetic wrap around
Index = tuple[Int, ...]
Condition = frozenset[Int]  # all of these are >= 0; none: it always holds
ALWAYS: Condition = frozenset()
NEVER: Condition = frozenset((-1,))
INTEGERS = (torch.int64, torch.int32)
LOWEST = {dtype: torch.finfo(dtype).min for dtype in (torch.float32, torch.float64, torch.bfloat16)}


@dataclass
class Elements:
    """Finds elements of tensors at indices of one space. `ranges` has the size of each dimension of the space, by name."""

    ranges: dict[str, Int]
    _numbers: dict[tuple[ir.Value, Index], Int | None] = field(default_factory=dict)
    _conditions: dict[tuple[ir.Value, Index], Condition | None] = field(default_factory=dict)

    # ---- integers

    def number(self, value: ir.Value, index: Index) -> Int | None:
        """The element of an integer or boolean tensor at `index`; a boolean as 0 or 1."""
        key = value, index
        if key not in self._numbers:
            self._numbers[key] = self._number(value, index)
        return self._numbers[key]

    def _number(self, value: ir.Value, index: Index) -> Int | None:
        value, index = self.source(value, index)
        op, dtype = value.owner, info_of(value).dtype
        if dtype == torch.bool:
            return self.truth(value, index)
        if isinstance(op, ir.Block) or dtype not in INTEGERS:
            return None
        if isinstance(op, Constant):
            return self.small(int(read_constant(op.value.value)))
        if isinstance(op, Size | Iota):
            named = {f"d{k}": at for k, at in enumerate(index)}
            return self.small(symbols.substitute(symbols.parse(op.expr.value), named, self.ranges))
        mnemonic = getattr(type(op), "mnemonic", "")
        if mnemonic == "cast" and (info_of(op.x).dtype == torch.bool or info_of(op.x).dtype in INTEGERS):
            return self.small(self.operand(op, 0, index))
        if mnemonic in ("add", "sub", "mul"):
            return self.small(self.arithmetic(op, mnemonic, index))
        if mnemonic == "cumsum":
            return self.running_sum(op, index)
        if mnemonic == "cat2":
            return self.behind_first(op, index)
        return None

    def small(self, x: Int | None) -> Int | None:
        """`x` where it cannot overflow: a small number, or a linear expression with small factors. Else None."""
        if x is None or isinstance(x, int):
            return x if x is not None and abs(x) < SMALL else None
        linear = all(len(monomial) <= 1 for monomial in x.terms)
        return x if linear and all(abs(c) < SMALL for c in x.terms.values()) else None

    def operand(self, op: Any, position: int, index: Index) -> Int | None:
        x = op.operands[position]
        return self.number(x, broadcast_map(x, index))

    def arithmetic(self, op: Any, mnemonic: str, index: Index) -> Int | None:
        x, y = (self.operand(op, k, index) for k in (0, 1))
        if x is None or y is None:
            return None
        if mnemonic == "mul":
            return x * y if isinstance(x, int) or isinstance(y, int) else None
        return x + y if mnemonic == "add" else x - y

    def running_sum(self, op: Any, index: Index) -> Int | None:
        """The element of a running sum: 0 where the operand is 0 along the whole dimension, else None."""
        dim = attribute_value(op.attributes["dim"])
        inner = f"d{100 + len(self.ranges)}"
        shape = info_of(op.x).shape
        if not shape:
            return None
        within = Elements(self.ranges | {inner: shape[dim]})
        summed = within.number(op.x, (*index[:dim], symbol(inner), *index[dim + 1 :]))
        return 0 if isinstance(summed, int) and summed == 0 else None

    def behind_first(self, op: Any, index: Index) -> Int | None:
        """The value of two concatenated tensors at `index`, where one formula holds for both: the first has one element along the
        dimension, and the second continues from it.

        [:, 0] = -1 and [:, 1:] = d1 - 1 are d1 - 1 everywhere.
        """
        x, y = op.operands[:2]
        dim = attribute_value(op.attributes["dim"])
        at, first = index[dim], info_of(x).shape[dim]
        later = self.number(y, (*index[:dim], at - first, *index[dim + 1 :]))
        if later is None or first != 1 or not isinstance(at, symbols.Expr) or not str(at).isidentifier():
            return None
        start = self.number(x, (*index[:dim], 0, *index[dim + 1 :]))
        return later if start is not None and symbols.substitute(later, {str(at): 0}) == start else None

    # ---- where an element comes from

    def source(self, value: ir.Value, index: Index) -> tuple[ir.Value, Index]:
        """The value that the element is moved from by views, copies, gathers and concatenations, and its index there."""
        while True:
            op = value.owner
            moved = None if isinstance(op, ir.Block) else self.step(op, index)
            if moved is None:
                return value, index
            value, index = moved

    def step(self, op: Any, index: Index) -> tuple[ir.Value, Index] | None:
        if isinstance(op, Copy):
            return op.x, index
        if isinstance(op, View):
            moved = view_index(op, index, self.ranges)
            return None if moved is None else (op.x, moved)
        if isinstance(op, Indexed):
            return self.gathered(op, index)
        if getattr(type(op), "mnemonic", "") == "cat2":
            x, y = op.operands[:2]
            dim = attribute_value(op.attributes["dim"])
            first = info_of(x).shape[dim]
            if self.at_least(first - 1 - index[dim]):
                return x, index
            if self.at_least(index[dim] - first):
                return y, (*index[:dim], index[dim] - first, *index[dim + 1 :])
        return None

    def gathered(self, op: Any, index: Index) -> tuple[ir.Value, Index] | None:
        """Only where every index is known to be in bounds."""
        x, *at = op.operands
        dims, place = symbols.parse_numbers(op.dims.value), attribute_value(op.attributes["place"])
        rank = max(info_of(i).rank for i in at)
        places = [self.number(i, broadcast_map(i, index[place : place + rank])) for i in at]
        others = iter(index[:place] + index[place + rank :])
        found: list[Int] = []
        for d, size in enumerate(info_of(x).shape):
            given = places[dims.index(d)] if d in dims else next(others)
            if given is None or not (self.at_least(given) and self.at_least(size - 1 - given)):
                return None
            found.append(given)
        return x, tuple(found)

    # ---- conditions

    def truth(self, value: ir.Value, index: Index) -> Int | None:
        condition = self.condition(value, index)
        return None if condition is None or condition not in (ALWAYS, NEVER) else int(condition == ALWAYS)

    def condition(self, value: ir.Value, index: Index) -> Condition | None:
        """When the element of a boolean tensor at `index` is true."""
        key = value, index
        if key not in self._conditions:
            found = self._condition(*self.source(value, index))
            self._conditions[key] = None if found is None else self.settled(found)
        return self._conditions[key]

    def _condition(self, value: ir.Value, index: Index) -> Condition | None:
        op = value.owner
        if isinstance(op, ir.Block) or info_of(value).dtype != torch.bool:
            return None
        number = number_of(value)
        if number is not None:
            return ALWAYS if number else NEVER
        mnemonic = getattr(type(op), "mnemonic", "")
        if mnemonic in ("eq", "ne", "lt", "le", "gt", "ge"):
            return self.comparison(op, mnemonic, index)
        if mnemonic in ("logical_and", "bitwise_and", "logical_or", "bitwise_or"):
            return self.logic(op, mnemonic.endswith("and"), index)
        if mnemonic in ("logical_not", "bitwise_not"):
            return negated(self.of_operand(op, 0, index))
        if mnemonic == "cast" and info_of(op.x).dtype in INTEGERS:
            number = self.operand(op, 0, index)
            return None if not isinstance(number, int) else ALWAYS if number else NEVER
        return None

    def of_operand(self, op: Any, position: int, index: Index) -> Condition | None:
        x = op.operands[position]
        return self.condition(x, broadcast_map(x, index)) if info_of(x).dtype == torch.bool else None

    def comparison(self, op: Any, name: str, index: Index) -> Condition | None:
        x, y = (self.operand(op, k, index) for k in (0, 1))
        if x is None or y is None:
            return None
        if name in ("eq", "ne"):
            same = self.settled(frozenset((x - y, y - x)))
            return same if name == "eq" else negated(same) if same in (ALWAYS, NEVER) else None
        return frozenset(({"ge": x - y, "gt": x - y - 1, "le": y - x, "lt": y - x - 1}[name],))

    def logic(self, op: Any, is_and: bool, index: Index) -> Condition | None:
        x, y = (self.of_operand(op, k, index) for k in (0, 1))
        decides, other = (NEVER, ALWAYS) if is_and else (ALWAYS, NEVER)
        if decides in (x, y):
            return decides
        if x is None or y is None:
            return None
        if other in (x, y):
            return y if x == other else x
        return x | y if is_and else None

    def settled(self, condition: Condition) -> Condition:
        """Without what always holds; NEVER if some part never does."""
        left = frozenset(e for e in condition if not self.at_least(e))
        return NEVER if any(self.at_least(-1 - e) for e in left) else left

    def at_least(self, x: Int) -> bool:
        """Whether x >= 0 at every point of the space."""
        most = symbols.upper_bound(x * -1, self.ranges)
        return most is not None and symbols.known_nonnegative(most * -1)

    # ---- masks

    def seen(self, mask: ir.Value, index: Index) -> tuple[Condition, bool] | None:
        """The condition under which an attention mask keeps a score, where it hides all others; None where that is not known.

        Masks are booleans, or numbers to add: 0 keeps a score, -inf or the lowest number of the dtype hides it. The second result says
        whether it is the lowest number.
        """
        if info_of(mask).dtype == torch.bool:
            condition = self.condition(mask, index)
            return None if condition is None else (condition, False)
        value, index = self.source(mask, index)
        number, op = number_of(value), value.owner
        if number is not None:
            return (ALWAYS, False) if number == 0 else (NEVER, number != -math.inf) if hides(value, number) else None
        mnemonic = getattr(type(op), "mnemonic", "")
        if mnemonic == "cast":
            return self.seen(op.x, broadcast_map(op.x, index)) if info_of(op.x).dtype.is_floating_point else None
        if mnemonic != "select":
            return None
        condition = self.of_operand(op, 0, index)
        parts = [self.seen(x, broadcast_map(x, index)) for x in op.operands[1:]]
        if condition is None or None in parts:
            return None
        (yes, yes_finite), (no, no_finite) = parts  # type: ignore[misc]
        if (yes, no) == (ALWAYS, NEVER):
            return condition, no_finite
        opposite = negated(condition)
        return (opposite, yes_finite) if (yes, no) == (NEVER, ALWAYS) and opposite is not None else None


def hides(value: ir.Value, number: float | int | bool) -> bool:
    """Whether a softmax gives 0 for a score that the number was added to."""
    return number == -math.inf or number == LOWEST.get(info_of(value).dtype)


def negated(condition: Condition | None) -> Condition | None:
    if condition is None or len(condition) > 1:
        return None
    return NEVER if not condition else frozenset(-1 - e for e in condition)


def view_index(op: View, index: Index, ranges: dict[str, Int]) -> Index | None:
    """The index in its operand of a view's element; None where that is not known."""
    x, out = info_of(op.x), info_of(op.out)
    if x.dtype != out.dtype:
        return None
    if op.map.value or not x.rank:
        named = {f"d{k}": at for k, at in enumerate(index)}
        return tuple(symbols.substitute(at, named, ranges) for at in symbols.parse_list(op.map.value))
    offset = symbols.parse(op.offset.value)
    if x.stride != out.stride or not isinstance(offset, int) or x.stride[-1] != 1 or out.shape[:-1] != x.shape[:-1]:
        return None
    # part of each row, where it stays within the row
    inside = isinstance(offset, int) and symbols.known_nonnegative(x.shape[-1] - out.shape[-1] - offset)
    return (*index[:-1], index[-1] + offset) if inside and offset >= 0 else None
