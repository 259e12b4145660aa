"""Checks that a kernel's reads and writes stay within its tensors, at every point and for every value of the symbols.

index_proofs.py proves each access in bounds, from the sizes, from masks that compare positions, and from check_index. Masks that depend
on data prove nothing.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.symbols import Expr, Int, free_symbols, substitute, symbol
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.rules import expect, list_attribute
from mlirc.lowering.verify.index_proofs import Facts, Space
from mlirc.lowering.verify.kernel import is_dim
from mlirc.lowering.verify.magnitude import LARGEST, magnitude
from mlirc.lowering.verify.memory import MemoryVerifier

POINTS = 1 << 14  # the most points at which a map is evaluated one by one
CASES = 32  # the most cases into which a value or a condition is split, each with facts of its own

Case = tuple[Int, Facts]  # a value, and the expressions that are at least 0 in this case
COMPARED = {
    "mlirc.ge": lambda x, y: (x - y,),
    "mlirc.gt": lambda x, y: (x - y - 1,),
    "mlirc.le": lambda x, y: (y - x,),
    "mlirc.lt": lambda x, y: (y - x - 1,),
    "mlirc.eq": lambda x, y: (x - y, y - x),
}
OPPOSITE = {"mlirc.ge": "mlirc.lt", "mlirc.gt": "mlirc.le", "mlirc.le": "mlirc.gt", "mlirc.lt": "mlirc.ge"}
ARITHMETIC = {
    "mlirc.add": lambda x, y: x + y,
    "mlirc.sub": lambda x, y: x - y,
    "mlirc.mul": lambda x, y: x * y,
    "mlirc.minimum": symbols.minimum,
    "mlirc.maximum": symbols.maximum,
}


def verify_accesses(
    op: Any, inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], memory: MemoryVerifier
) -> None:
    """Raises StageError for an access that leaves its tensor, or that is not shown to stay within, as `memory` asks for."""
    parallel, inner = list_attribute(op, "parallel"), list_attribute(op, "inner")
    sizes = {f"d{k}": n for k, n in enumerate((*parallel, *inner))}
    known = list(memory.facts)
    for info in (*inputs, *outputs):
        known += [n for n in info.shape if isinstance(n, Expr)]
    shapes = [info.shape for info in (*inputs, *outputs)]
    checker = _Accesses(op, sizes, frozenset(list(sizes)[len(parallel) :]), tuple(known), memory, shapes)
    memory.known(op, sizes.values())
    for n in sizes.values():
        checker.need(op, Space({}, tuple(known)), n, "an iteration dimension has a size")
    block = op.regions[0].blocks[0]
    infos = dict(zip(block.arguments, inputs, strict=True))
    for item in block.operations:
        name = item.operation.name
        memory.known(item, (symbols.symbol(x) for n in written(item) for x in free_symbols(n) if not is_place(x)))
        if name == "mlirc.read":
            checker.read(item, infos[item.operands[0]])
        elif name == "mlircx.yield":
            checker.write(item, outputs)


def written(item: Any) -> list[Int]:
    """The expressions among the attributes of an op of a body."""
    texts = [attribute_value(item.attributes[x]) for x in ("map", "expr", "size") if x in item.attributes]
    texts += attribute_value(item.attributes["maps"]) if "maps" in item.attributes else ()
    return [n for text in texts if isinstance(text, str) for n in symbols.parse_list(text)]


def is_place(name: str) -> bool:
    """A dimension, or an index that was read."""
    return name[0] in "di" and name[1:].isdigit()


@dataclass
class _Accesses:
    kernel: Any
    sizes: dict[str, Int]
    inner: frozenset[str]
    facts: Facts
    memory: MemoryVerifier
    shapes: Sequence[Sequence[Int]]  # of the tensors
    numbers: dict[ir.Value, list[Case]] = field(default_factory=dict)
    conditions: dict[ir.Value, list[Facts] | None] = field(default_factory=dict)
    checked: dict[ir.Value, str] = field(default_factory=dict)

    def need(self, op: Any, space: Space, goal: Int, what: str) -> None:
        self.memory.at_points(op, space, goal, what, "mask it, clamp it by minimum and maximum, or check_index")

    def fits(self, expr: Int, sizes: Mapping[str, Int]) -> bool:
        return magnitude(expr, sizes, self.shapes) < LARGEST

    def inside(self, op: Any, space: Space, index: Int, size: Int, what: str) -> None:
        expect(self.fits(index, space.sizes), op, f"the index {index} may overflow", "keep it below 2**62")
        if any(self.sizes[d] == 0 for d in self.sizes if is_dim(d) and d not in self.inner):
            return  # no code is made for a kernel without a point
        for goal in (index, size - 1 - index):
            self.need(op, space, goal, f"{what} at {index}, which leaves its size of {size}")

    # ---- reads

    def read(self, op: Any, info: TensorInfo) -> None:
        scalars = list(op.operands)[1:]
        masked = attribute_value(op.attributes["masked"]) is True
        given: list[Facts] | None = [()]
        if masked:
            given = self.condition(scalars.pop())
            given = [()] if given is None else given
        map_ = list_attribute(op, "map")
        for d, (index, size) in enumerate(zip(map_, info.shape, strict=True)):
            named = [int(name[1:]) for name in free_symbols(index) if name[0] == "i" and name[1:].isdigit()]
            for known in given:
                for value, facts in self.indexed(index, [(k, scalars[k]) for k in named]):
                    space = self.space((*known, *facts), (value, size))
                    if not space.impossible():
                        self.inside(op, space, value, size, f"reads dimension {d}")

    def indexed(self, index: Int, scalars: list[tuple[int, ir.Value]]) -> list[Case]:
        """The index with the numbers that i0, i1, ... are."""
        cases: list[Case] = [(index, ())]
        for k, x in scalars:
            cases = [
                (substitute(value, {f"i{k}": number}), (*facts, *more))
                for value, facts in cases
                for number, more in self.number(x)
            ][:CASES]
            if x not in self.checked or any(is_dim(name) for name in free_symbols(self.sizes[self.checked[x]])):
                self.nowhere_empty()
        return cases

    def nowhere_empty(self) -> None:
        """A failed check gives 0, which is an index only of what is not empty; emitters see to that for indices that are
        checks themselves, of a size that is one number."""
        for value, name in self.checked.items():
            self.need(
                value.owner, Space(self.sizes, self.facts), self.sizes[name] - 1, "checks an index in what may be empty"
            )

    def space(self, facts: Facts, exprs: Sequence[Int]) -> Space:
        return Space(self.sizes, (*self.facts, *facts))

    # ---- writes

    def write(self, op: Any, outputs: Sequence[TensorInfo]) -> None:
        texts = attribute_value(op.attributes["maps"])
        space = Space(self.sizes, self.facts)
        for k, (text, info) in enumerate(zip(texts, outputs, strict=True)):
            map_ = symbols.parse_list(text)
            self.count(op, info, map_, k)
            for d, (index, size) in enumerate(zip(map_, info.shape, strict=True)):
                self.inside(op, space, index, size, f"writes dimension {d} of result {k}")

    def count(self, op: Any, info: TensorInfo, map_: Sequence[Int], k: int) -> None:
        """Checks that the number of writing points is the number of elements."""
        named = {name for index in map_ for name in free_symbols(index)}
        inner = [d for d in self.sizes if d in self.inner]
        points = symbols.product([n for d, n in self.sizes.items() if d not in self.inner and is_dim(d)])
        if named & set(inner):
            points = points * symbols.product([self.sizes[d] for d in inner])
        wanted = info.numel
        if points != wanted:
            for goal in (points - wanted, wanted - points):
                self.need(
                    op, Space({}, self.facts), goal, f"writes {points} values to the {wanted} elements of result {k}"
                )
        if self.memory.demand:
            self.each_once(op, map_, k)

    def each_once(self, op: Any, map_: Sequence[Int], k: int) -> None:
        """No two points write one element, so that each is written. Of sizes that are symbols it is seen that the map tells the
        points of each dimension apart at all."""
        named = {name for index in map_ for name in free_symbols(index)}
        dims = {d: n for d, n in self.sizes.items() if is_dim(d) and (d not in self.inner or named & self.inner)}
        wrong, advice = f"writes elements of result {k} twice, and others never", "write each once"
        for d, n in dims.items():
            expect(n == 1 or d in named, op, wrong, advice)
        if {d for d, n in dims.items() if n != 1} <= set(map(str, map_)):
            return
        if named <= dims.keys() and all(isinstance(n, int) for n in dims.values()):
            sizes = [int(str(n)) for n in dims.values()]
            if 0 < math.prod(sizes) <= POINTS:
                grids = itertools.product(*map(range, sizes))
                points = (dict(zip(dims, point, strict=True)) for point in grids)
                places = {tuple(symbols.evaluate(index, at) for index in map_) for at in points}
                expect(len(places) == math.prod(sizes), op, wrong, advice)

    # ---- numbers

    def number(self, value: ir.Value) -> list[Case]:
        """The cases of an i64 scalar; what is not known is a symbol of its own."""
        found = self.numbers.get(value)
        if found is None:
            found = self.numbers[value] = self._number(value)[:]
        return found

    def _number(self, value: ir.Value) -> list[Case]:
        op = value.owner
        unknown: list[Case] = [(symbol(f"u_{len(self.numbers)}'"), ())]
        if isinstance(op, ir.Block):
            return unknown
        name = op.name
        if name == "mlirc.check_index":
            size = symbols.parse(attribute_value(op.attributes["size"]))
            made = f"c{len(self.checked)}'"
            self.checked[value] = made
            self.sizes = {**self.sizes, made: size}
            return [(symbol(made), ())]
        if name == "mlirc.size":
            expr = symbols.parse(attribute_value(op.attributes["expr"]))
            return [(expr, ())] if self.fits(expr, self.sizes) else unknown
        if name == "mlirc.constant" and str(value.type) in ("i64", "i32"):
            number = read_constant(attribute_value(op.attributes["value"]))
            return [(int(number), ())] if isinstance(number, int) else unknown
        if name == "mlirc.cast" and str(value.type) == "i64" and str(op.operands[0].type) in ("i32", "i64"):
            return self.number(op.operands[0])
        if name in ARITHMETIC and str(value.type) == "i64":
            cases = [
                (ARITHMETIC[name](x, y), (*a, *b))
                for x, a in self.number(op.operands[0])
                for y, b in self.number(op.operands[1])
            ]
            fits = len(cases) <= CASES and all(self.fits(x, self.sizes) for x, _ in cases)
            return cases if fits else unknown
        if name == "mlirc.select" and str(value.type) == "i64":
            yes, no = self.condition(op.operands[0]), self.condition(op.operands[0], True)
            cases = [
                (x, (*facts, *known))
                for given, operand in ((yes, op.operands[1]), (no, op.operands[2]))
                for facts in (given if given is not None else [()])
                for x, known in self.number(operand)
            ]
            return cases if len(cases) <= CASES else unknown
        return unknown

    # ---- conditions

    def condition(self, value: ir.Value, negated: bool = False) -> list[Facts] | None:
        """The cases in which a boolean scalar holds (or does not); None where nothing is known."""
        op = value.owner
        if isinstance(op, ir.Block):
            return None
        name = op.name
        if name == "mlirc.constant":
            holds = (attribute_value(op.attributes["value"]) == "true") != negated
            return [()] if holds else []
        if name in ("mlirc.logical_not", "mlirc.bitwise_not"):
            return self.condition(op.operands[0], not negated)
        if name in COMPARED or name == "mlirc.ne":
            return self.comparison(op, name, negated)
        if name in ("mlirc.logical_and", "mlirc.bitwise_and", "mlirc.logical_or", "mlirc.bitwise_or"):
            if str(value.type) != "i1":
                return None
            x, y = (self.condition(operand, negated) for operand in op.operands)
            if name.endswith("and") != negated:
                if x is None or y is None:
                    return y if x is None else x
                both = [(*a, *b) for a in x for b in y]
                return both if len(both) <= CASES else x
            return None if x is None or y is None or len(x) + len(y) > CASES else x + y
        return None

    def comparison(self, op: Any, name: str, negated: bool) -> list[Facts] | None:
        if str(op.operands[0].type) not in ("i64", "i32"):
            return None
        if name == "mlirc.ne":
            name, negated = "mlirc.eq", not negated
        found: list[Facts] = []
        for x, a in self.number(op.operands[0]):
            for y, b in self.number(op.operands[1]):
                if not negated:
                    found.append((*a, *b, *COMPARED[name](x, y)))
                elif name == "mlirc.eq":
                    found += [(*a, *b, x - y - 1), (*a, *b, y - x - 1)]
                else:
                    found.append((*a, *b, *COMPARED[OPPOSITE[name]](x, y)))
        return found if len(found) <= CASES else None
