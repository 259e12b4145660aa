"""split-reductions: a reduction of few long rows becomes one of parts of rows and one of the results, on a GPU."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.kernel_builder import dimension
from mlirc.dialects.core.kernel_ops import ROUNDED
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TEXT_DTYPE, TensorInfo, info_of, type_of
from mlirc.lowering.fusion.body import EXPRESSIONS
from mlirc.lowering.fusion.split_pairs import Pair, find_pair, of_part, of_parts
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.ledger import Ledger

LANES = 64  # columns that a program reduces side by side
COLUMN_PROGRAMS = 4  # for each of `programs`: those that go down columns have little in flight each
FEW_COLUMNS = 8  # for each of `programs`: more are not split where that means to read everything twice
SHORTEST, SHORTEST_COLUMN = 4096, 128  # elements that a part of a row has at least
MOST_PARTS = 512  # of a row: what they leave is folded by few programs
FEWEST_PARTS = 4  # of a row that is contiguous: for fewer, another launch takes longer than one program


@dataclass(frozen=True)
class SplitReductions:
    """Reduce few long rows in two steps: parts of rows first, so that every multiprocessor of a GPU has one, then those.

    before:  %0 = "mlircx.kernel"(%x) ({ read "d0, d1", reduce sum, sqrt, yield "d0" })   {parallel = "8", inner = "65536"}
    after:   %1 = "mlircx.kernel"(%x) ({ read "d1, 2048*d0 + d2", reduce sum, yield "d0, d1" })
                                                                         {parallel = "32, 8", inner = "2048"}
             %0 = "mlircx.kernel"(%1) ({ read "d1, d0", reduce sum, sqrt, yield "d0" })   {parallel = "8", inner = "32"}

    FEW ROWS    fewer programs than `programs`, of rows long enough; sizes that are known; no scan, no arg reduction, no
                check_index. What needs one reduction after another is taken apart into as many pairs of kernels, but for
                a mean and the squares around it, and a maximum and the exponentials beneath it (split_pairs.py); what is
                written at each point is written by the first kernel, or where it needs a reduction by one of its own.
    """

    name = "split-reductions"
    takes = "kernel"
    programs: int = 264

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name != "mlircx.kernel" or not info_of(op.results[0]).device.startswith("cuda"):
                continue
            kernel = _Kernel(op.operation)
            if not kernel.reductions:
                continue
            wanted = kernel.wanted_parts(self.programs)
            if wanted < 2:
                continue
            parts = kernel.choose_parts(wanted)
            label = attribute_value(op.attributes["label"])
            ledger.record(self.name, "split", label, "FEW ROWS", parts is not None, source_line(op.location))
            while parts is not None and ledger.allows(self.name, kernel.op):
                op = kernel.split(parts)
                if op is None:
                    break
                kernel = _Kernel(op)


class _Kernel:
    """A kernel, and for each value of its body how many reductions lie below it, and whether it is inner."""

    def __init__(self, op: Any):
        self.op = op
        self.block = op.regions[0].blocks[0]
        self.parallel, self.inner = (
            list(symbols.parse_list(attribute_value(op.attributes[n]))) for n in ("parallel", "inner")
        )
        self.rank = len(self.parallel)
        inner = {f"d{d}" for d in range(self.rank, self.rank + len(self.inner))}
        self.depth: dict[ir.Value, int] = {}
        self.is_inner: dict[ir.Value, bool] = {}
        self.reductions: list[Any] = []
        self.simple = True
        *body, self.end = [x.operation for x in self.block.operations]
        self.body = body
        for item in body:
            below = [x for x in item.operands if x in self.depth]
            names: set[str] = set()
            if expression := EXPRESSIONS.get(item.name.removeprefix("mlirc.")):
                for e in symbols.parse_list(attribute_value(item.attributes[expression])):
                    names |= symbols.free_symbols(e)
            reduces = item.name == "mlirc.reduce"
            self.depth[item.result] = max((self.depth[x] for x in below), default=0) + reduces
            is_inner = any(self.is_inner[x] for x in below) or not inner.isdisjoint(names)
            self.is_inner[item.result] = is_inner and not reduces
            if reduces:
                self.reductions.append(item)
                self.simple &= not attribute_value(item.attributes["kind"]).startswith("arg")
            self.simple &= item.name not in ("mlirc.scan", "mlirc.check_index")
        self.first = [r for r in self.reductions if self.depth[r.result] == 1]
        seconds = [r for r in self.reductions if self.depth[r.result] == 2]
        pairs = [find_pair(r, self.first, self.is_inner) for r in seconds]
        self.pairs: list[Pair] = [p for p in pairs if p is not None and self.depth[p.centre] == 1]

    @property
    def writes_half(self) -> bool:
        """Whether what the kernels that take its place hand on to each other is rounded in the end."""
        dtypes = [info_of(x).dtype for x in self.op.results]
        return all(dtype.is_floating_point and dtype.itemsize == 2 for dtype in dtypes) or ROUNDED in self.op.attributes

    # ---- whether, and how

    @property
    def across(self) -> bool:
        """Whether most of what is read lies side by side along a parallel dimension."""
        votes = 0
        for item in self.body:
            if item.name == "mlirc.read" and self.is_inner[item.result]:
                map_ = symbols.parse_list(attribute_value(item.attributes["map"]))
                info = info_of(item.operands[0])
                bytes_ = self.points(map_) * info.dtype.itemsize
                for index, stride in zip(map_, info.stride, strict=True):
                    if stride == 1:
                        names = symbols.free_symbols(index)
                        votes += bytes_ * any(f"d{d}" in names for d in range(self.rank))
                        votes -= bytes_ * any(f"d{d + self.rank}" in names for d in range(len(self.inner)))
        return votes > 0

    def points(self, map_: Iterable[Int]) -> int:
        """How many elements a map reaches, roughly: a symbolic size counts as 1."""
        names = set().union(*(symbols.free_symbols(e) for e in map_))
        sizes = [n for d, n in enumerate(self.parallel + self.inner) if f"d{d}" in names and isinstance(n, int)]
        return math.prod(sizes)

    def known_sizes(self) -> tuple[int, int] | None:
        """Rows, and elements of a row."""
        rows, length = symbols.product(self.parallel), symbols.product(self.inner)
        return (rows, length) if isinstance(rows, int) and isinstance(length, int) and rows * length > 0 else None

    def wanted_parts(self, programs: int) -> int:
        """How many parts a row should have; 1: it is not worth it, or not understood."""
        sizes = self.known_sizes()
        if sizes is None or not self.simple:
            return 1
        rows, length = sizes
        if not self.across:
            parts = min(programs // rows, length // SHORTEST) if rows < programs // 2 else 1
            return parts if parts >= FEWEST_PARTS else 1
        most = programs * COLUMN_PROGRAMS * LANES
        few = most // 2 if self.once else programs * FEW_COLUMNS
        return min(most // rows, length // SHORTEST_COLUMN, MOST_PARTS) if rows < few else 1

    @property
    def once(self) -> bool:
        """Whether it is read once although it is split: nothing inner needs a reduction."""
        inner = [x for x, map_ in zip(self.end.operands, self.maps, strict=True) if self.is_pointwise(x, map_)]
        return all(self.depth[x] == 0 for x in inner) and self.at_once == len(self.reductions)

    @property
    def at_once(self) -> int:
        """How many reductions the first two kernels do."""
        return len(self.first) + len(self.pairs)

    def is_pointwise(self, value: ir.Value, map_: Iterable[Int]) -> bool:
        """Whether a result is written at each point of a row."""
        return self.is_inner[value] or self.names_inner(map_)

    def choose_parts(self, wanted: int) -> list[int] | None:
        """Into how many parts each inner dimension is taken; None where no numbers that are large enough divide them."""
        sizes = [n for n in self.inner if isinstance(n, int)]
        whole = _divisors(sizes, range(len(sizes)), wanted)  # outer ones first: a part is then contiguous
        parts = _divisors(sizes, sorted(range(len(sizes)), key=lambda d: -_divisor(sizes[d], wanted)), wanted)
        if 2 * math.prod(whole) >= math.prod(parts):
            parts = whole
        enough = min(wanted // 4, LANES // 4) if self.across else wanted // 4  # of few columns a program takes fewer
        return parts if math.prod(parts) > 1 and math.prod(parts) >= enough else None

    # ---- the kernels that take its place

    def split(self, parts: list[int]) -> Any:
        """Writes the kernels of the reductions that need no others. Returns what is left to be split, if anything is."""
        deeper = self.at_once < len(self.reductions)
        results = list(zip(self.end.operands, self.maps, self.op.results, strict=True))
        early = [x for x in results if self.depth[x[0]] == 0 and self.is_pointwise(*x[:2])]
        partial = self.partial(parts, early)
        outer = [x for x in results if not (deeper or self.is_pointwise(*x[:2]))]
        rest = [x for x in results if x not in outer and x not in early]
        folded = [*self.first, *(pair.second for pair in self.pairs)]
        combined = self.combined(parts, partial)
        combined.copy([value for value, _, _ in outer])
        here = list(map(dimension, range(self.rank)))
        totals = [(r.result, here, self.info(r, self.parallel)) for r in folded] if rest else []
        made = combined.finish([(v, m, info_of(out)) for v, m, out in outer] + totals)
        for (_, _, old), new in zip(outer, made, strict=False):
            old.replace_all_uses_with(new)
        if rest:
            tensors = made[len(outer) :]
            inner = self.inner if deeper else []
            last = _Maker(self, self.parallel if deeper else self.parallel + self.inner, inner, tensors)
            for reduction, tensor in zip(folded, tensors, strict=True):
                last.read(reduction.result, tensor, here)
            last.copy([value for value, _, _ in rest])
            values = last.finish([(v, m, info_of(out)) for v, m, out in rest])
            for (_, _, old), new in zip(rest, values, strict=True):
                old.replace_all_uses_with(new)
        self.op.erase()
        return values[0].owner if rest and deeper else None

    def combined(self, parts: list[int], partial: list[ir.Value]) -> "_Maker":
        """The kernel that folds what the parts left: rows of parts."""
        split = [n for n in parts if n > 1]
        maker = _Maker(self, self.parallel, split, partial)
        place = [*(dimension(self.rank + k) for k in range(len(split))), *map(dimension, range(self.rank))]
        left = {}
        for reduction, tensor in zip([*self.first, *(p.second for p in self.pairs)], partial, strict=True):
            maker.read(reduction.result, tensor, place)
            left[reduction.result] = maker.values[reduction.result]
        for reduction in self.first:
            maker.reduce(reduction)
        elements = math.prod(n for n in self.inner if isinstance(n, int)) // math.prod(parts)
        for pair in self.pairs:
            first, second = left[pair.first.result], left[pair.second.result]
            del maker.values[pair.second.result]
            maker.copy([pair.centre])
            centre = maker.values[pair.centre]
            maker.values[pair.second.result] = of_parts(pair, maker.create, first, second, centre, elements)
            maker.reduce(pair.second)
        return maker

    @property
    def maps(self) -> list[tuple[Int, ...]]:
        return [symbols.parse_list(text) for text in attribute_value(self.end.attributes["maps"])]

    def names_inner(self, map_: Iterable[Int]) -> bool:
        names = {f"d{d}" for d in range(self.rank, self.rank + len(self.inner))}
        return any(names & symbols.free_symbols(e) for e in map_)

    def partial(self, parts: list[int], early: list[tuple]) -> list[ir.Value]:
        """The reductions of each part, as tensors of parts x rows. Writes the results `early` too: they need no reduction."""
        split = [d for d, n in enumerate(parts) if n > 1]
        inner = [n // k for n, k in zip(self.inner, parts, strict=True) if isinstance(n, int)]
        shape = [*(parts[d] for d in split), *self.parallel]
        place: dict[str, Int] = {f"d{k}": dimension(k + len(split)) for k in range(self.rank + len(inner))}
        for k, d in enumerate(split):
            place[f"d{self.rank + d}"] = dimension(k) * inner[d] + dimension(self.rank + d + len(split))
        maker = _Maker(self, shape, inner, [], place)
        maker.copy([r.operands[0] for r in self.first] + [value for value, _, _ in early])
        for reduction in self.first:
            maker.values[reduction.result] = maker.values[reduction.operands[0]]
            maker.reduce(reduction)
        for pair in self.pairs:
            value, folded = maker.values[pair.value], maker.values[pair.first.result]
            maker.values[pair.second.result] = of_part(pair, maker.create, value, folded, math.prod(inner))
            maker.reduce(pair.second)
        folded = [*self.first, *(pair.second for pair in self.pairs)]
        here = list(map(dimension, range(len(shape))))
        made = maker.finish(
            [(r.result, here, self.info(r, shape)) for r in folded]
            + [(v, [symbols.substitute(e, place) for e in m], info_of(out)) for v, m, out in early]
        )
        for (_, _, old), new in zip(early, made[len(folded) :], strict=True):
            old.replace_all_uses_with(new)
        return made[: len(folded)]

    def info(self, reduction: Any, shape: Sequence[Int]) -> TensorInfo:
        device = info_of(self.op.results[0]).device
        return TensorInfo(TEXT_DTYPE[str(reduction.result.type)], tuple(shape), device=device)


class _Maker:
    """A kernel in the making: ops of another's body, copied, and new ones. `values`: the old body's -> this one's."""

    def __init__(
        self,
        kernel: _Kernel,
        parallel: Sequence[Int],
        inner: Sequence[Int],
        tensors: list[ir.Value],
        place: dict[str, Int] | None = None,
    ):
        self.kernel, self.parallel, self.inner = kernel, parallel, inner
        self.place: dict[str, Int] = place or {}
        self.operands = [*kernel.op.operands, *tensors]
        self.holder = ir.Operation.create("mlircx.kernel", regions=1, ip=False)
        self.location = kernel.op.location
        types = [x.type for x in self.operands]
        self.block = ir.Block.create_at_start(self.holder.regions[0], types, [self.location] * len(types))
        self.ip = ir.InsertionPoint(self.block)
        old = list(kernel.block.arguments)
        self.values: dict[ir.Value, ir.Value] = dict(zip(old, list(self.block.arguments)[: len(old)], strict=True))
        self.tensors = dict(zip(tensors, list(self.block.arguments)[len(old) :], strict=True))

    def create(self, name: str, operands: list, type_: ir.Type, attributes: dict[str, ir.Attribute]) -> ir.Value:
        made = ir.Operation.create(
            name, results=[type_], operands=operands, attributes=attributes, loc=self.location, ip=self.ip
        )
        return made.result

    def read(self, value: ir.Value, tensor: ir.Value, map_: Sequence[Int]) -> None:
        attributes = {"map": ir.StringAttr.get(symbols.print_list(map_)), "masked": ir.BoolAttr.get(False)}
        self.values[value] = self.create("mlirc.read", [self.tensors[tensor]], value.type, attributes)

    def reduce(self, reduction: Any) -> None:
        """Folds what stands for its result so far."""
        x = self.values[reduction.result]
        self.values[reduction.result] = self.create(
            "mlirc.reduce", [x], reduction.result.type, {"kind": reduction.attributes["kind"]}
        )

    def copy(self, roots: list[ir.Value]) -> None:
        """The ops that `roots` are computed from, as far as there is nothing that stands for them."""
        wanted = set(roots)
        for item in reversed(self.kernel.body):
            if item.result in wanted and item.result not in self.values:
                wanted.update(item.operands)
        for item in self.kernel.body:
            if item.result not in wanted or item.result in self.values:
                continue
            attributes = dict(item.attributes.items())
            if expression := EXPRESSIONS.get(item.name.removeprefix("mlirc.")):
                old = symbols.parse_list(attribute_value(attributes[expression]))
                new = [symbols.substitute(e, self.place) for e in old]
                attributes[expression] = ir.StringAttr.get(symbols.print_list(new))
            operands = [self.values[x] for x in item.operands]
            self.values[item.result] = self.create(item.name, operands, item.result.type, attributes)

    def finish(self, results: Sequence[tuple[ir.Value, Iterable[Int], TensorInfo]]) -> list[ir.Value]:
        """Makes the kernel, before the old one; each value goes to its map in a tensor like the info."""
        maps = ir.ArrayAttr.get([ir.StringAttr.get(symbols.print_list(m)) for _, m, _ in results])
        values = [self.values[v] for v, _, _ in results]
        ir.Operation.create("mlircx.yield", operands=values, attributes={"maps": maps}, loc=self.location, ip=self.ip)
        for k in reversed(range(len(self.operands))):
            if next(iter(self.block.arguments[k].uses), None) is None:
                self.block.erase_argument(k)
                del self.operands[k]
        made = ir.Operation.create(
            "mlircx.kernel",
            results=[type_of(info) for _, _, info in results],
            operands=self.operands,
            attributes=({ROUNDED: ir.UnitAttr.get()} if self.kernel.writes_half else {})
            | {
                "parallel": ir.StringAttr.get(symbols.print_list(self.parallel)),
                "inner": ir.StringAttr.get(symbols.print_list(self.inner)),
                "label": self.kernel.op.attributes["label"],
            },
            regions=1,
            loc=self.location,
            ip=ir.InsertionPoint(self.kernel.op),
        )
        self.block.append_to(made.regions[0])
        return list(made.results)


def _divisor(size: int, most: int) -> int:
    """The largest number up to `most` that divides a size."""
    return next((n for n in range(min(most, size), 1, -1) if size % n == 0), 1)


def _divisors(sizes: list[int], order: Iterable[int], most: int) -> list[int]:
    """Divisors of sizes, taken as large as can be one after another, whose product is at most `most`."""
    found = [1] * len(sizes)
    for d in order:
        found[d] = _divisor(sizes[d], most // math.prod(found))
    return found
