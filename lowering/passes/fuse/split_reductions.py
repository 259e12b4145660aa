"""split-reductions: a reduction of few long rows becomes one of parts of rows and one of the results, on a GPU."""

import math
from collections.abc import Iterable
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.kernel_builder import dimension
from mlirc.dialects.core.kernel_ops import ROUNDED
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import dtype_of, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.index_maps import Map, Space, dims_in
from mlirc.lowering.fusion.body import Body, BodyNode, NodePool, Result, Tensor, read_body, write_body
from mlirc.lowering.fusion.split_pairs import Pair, Scalars, find_pair, of_part, of_parts
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

    SUMS AND EXTREMA, STATIC SIZES    what refuses a kernel before that: a scan, an arg reduction or a check_index; a size in symbols
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
            parts = kernel.choose_parts(wanted) if wanted > 1 else None
            label, rule, numbers = attribute_value(op.attributes["label"]), "FEW ROWS", kernel.compared(self.programs)
            if not kernel.simple:
                rule, numbers = "SUMS AND EXTREMA", {}
            elif not numbers:
                rule = "STATIC SIZES"
            ledger.record(self.name, "split", label, rule, parts is not None, op, **numbers)
            while parts is not None and ledger.allows(self.name, kernel.op):
                op = kernel.split(parts)
                if op is None:
                    break
                kernel = _Kernel(op)


class _Kernel:
    """A kernel, and for each value of its body how many reductions lie below it."""

    def __init__(self, op: Any):
        self.op = op
        operands, results = ([Tensor(x, info_of(x)) for x in values] for values in (op.operands, op.results))
        self.body = read_body(op, operands, results)
        self.parallel, self.inner, self.results = self.body.parallel, self.body.inner, self.body.results
        self.depth: dict[BodyNode, int] = {}
        for node in self.body.nodes:
            self.depth[node] = max((self.depth[x] for x in node.operands), default=0) + (node.name == "reduce")
        self.reductions = [n for n in self.body.nodes if n.name == "reduce"]
        self.simple = not any(n.counts_positions or n.name == "check_index" for n in self.body.nodes)
        self.first = [n for n in self.reductions if self.depth[n] == 1]
        pairs = [find_pair(n, self.first, self.body.inner_dims) for n in self.reductions if self.depth[n] == 2]
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
        votes, inner = 0, self.body.inner_dims
        for read in self.body.reads:
            if read.dims & inner:
                info = read.tensor.info
                bytes_ = self.points(read.map) * info.dtype.itemsize
                for index, stride in zip(read.map, info.stride, strict=True):
                    if stride == 1:
                        dims = dims_in((index,))
                        votes += bytes_ * bool(dims - inner)
                        votes -= bytes_ * bool(dims & inner)
        return votes > 0

    def points(self, map_: Map) -> int:
        """How many elements a map reaches, roughly: a symbolic size counts as 1."""
        return math.prod(n for d, n in enumerate(self.body.space) if d in dims_in(map_) and isinstance(n, int))

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

    def compared(self, programs: int) -> dict[str, int]:
        """The numbers that FEW ROWS compares; none where sizes are not known. `parts`: how many a row should have, 1 where its
        rows are enough, or too short."""
        sizes = self.known_sizes()
        if sizes is None or not self.simple:
            return {}
        rows, length = sizes
        shortest = SHORTEST_COLUMN if self.across else SHORTEST
        numbers = {"rows": rows, "row_length": length, "least_of_part": shortest, "programs": programs}
        return {**numbers, "parts": max(1, self.wanted_parts(programs))}

    @property
    def once(self) -> bool:
        """Whether it is read once although it is split: nothing inner needs a reduction."""
        early = all(self.depth[r.node] == 0 for r in self.results if self.is_pointwise(r))
        return early and self.at_once == len(self.reductions)

    @property
    def at_once(self) -> int:
        """How many reductions the first two kernels do."""
        return len(self.first) + len(self.pairs)

    def is_pointwise(self, result: Result) -> bool:
        """Whether it is written at each point of a row."""
        return bool((result.node.dims | dims_in(result.map)) & self.body.inner_dims)

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
        early = [r for r in self.results if self.depth[r.node] == 0 and self.is_pointwise(r)]
        outer = [r for r in self.results if not (deeper or self.is_pointwise(r))]
        rest = [r for r in self.results if r not in outer and r not in early]
        folded = [*self.first, *(pair.second for pair in self.pairs)]
        combined = self.combined(parts, self.partial(parts, folded, early))
        here = tuple(map(dimension, range(self.rank)))
        totals = [Result(combined.made[n], here, self.tensor(n, self.parallel)) for n in folded] if rest else []
        combined.write([Result(combined.copy(r.node), r.map, r.tensor) for r in outer] + totals)
        last = None
        if rest:
            last = _Maker(self, self.parallel, self.inner) if deeper else _Maker(self, self.body.space, ())
            for node, total in zip(folded, totals, strict=True):
                last.read(node, total.tensor, here)
            last = last.write([Result(last.copy(r.node), r.map, r.tensor) for r in rest])
        self.op.erase()
        return last if deeper else None

    def partial(self, parts: list[int], folded: list[BodyNode], early: list[Result]) -> list[Tensor]:
        """These reductions of each part, as tensors of parts x rows. Writes the results `early` too: they need no reduction."""
        split = [d for d, n in enumerate(parts) if n > 1]
        inner = tuple(n // k for n, k in zip(self.inner, parts, strict=True) if isinstance(n, int))
        shape = (*(parts[d] for d in split), *self.parallel)
        place: dict[str, Int] = {f"d{k}": dimension(k + len(split)) for k in range(self.rank + len(inner))}
        for k, d in enumerate(split):
            place[f"d{self.rank + d}"] = dimension(k) * inner[d] + dimension(self.rank + d + len(split))
        maker = _Maker(self, shape, inner, place)
        for node in self.first:
            maker.reduce(node, maker.copy(node.operands[0]))
        for pair in self.pairs:
            scalars, value = maker.scalars(pair.second), maker.copy(pair.value)
            maker.reduce(pair.second, of_part(pair, scalars, value, maker.made[pair.first], math.prod(inner)))
        here = tuple(map(dimension, range(len(shape))))
        made = [Result(maker.made[node], here, self.tensor(node, shape)) for node in folded]
        maker.write(made + [Result(maker.copy(r.node), maker.placed(r.map), r.tensor) for r in early])
        return [result.tensor for result in made]

    def combined(self, parts: list[int], partial: list[Tensor]) -> "_Maker":
        """What folds what the parts left: rows of parts."""
        split = tuple(n for n in parts if n > 1)
        maker = _Maker(self, self.parallel, split)
        place = (*map(dimension, range(self.rank, self.rank + len(split))), *map(dimension, range(self.rank)))
        left = [
            maker.read(n, t, place)
            for n, t in zip([*self.first, *(p.second for p in self.pairs)], partial, strict=True)
        ]
        for node, value in zip(self.first, left, strict=False):
            maker.reduce(node, value)
        elements = math.prod(n for n in self.inner if isinstance(n, int)) // math.prod(parts)
        for pair, second in zip(self.pairs, left[len(self.first) :], strict=True):
            first, centre = left[self.first.index(pair.first)], maker.copy(pair.centre)
            maker.reduce(pair.second, of_parts(pair, maker.scalars(pair.second), first, second, centre, elements))
        return maker

    @property
    def rank(self) -> int:
        return len(self.parallel)

    def tensor(self, node: BodyNode, shape: Space) -> Tensor:
        """A tensor of the sizes `shape`, to be made, for the results of reduction `node`."""
        device = info_of(self.op.results[0]).device
        return Tensor(None, TensorInfo(dtype_of(node.type), shape, device=device))  # type: ignore[arg-type]


class _Maker:
    """A kernel in the making: nodes of another's body, copied with their dimensions at `place`, and new ones.

    made   the old body's nodes -> this one's
    """

    def __init__(self, kernel: _Kernel, parallel: Space, inner: Space, place: dict[str, Int] | None = None):
        self.kernel, self.parallel, self.inner, self.place = kernel, parallel, inner, place or {}
        self.pool = NodePool(frozenset(range(len(parallel), len(parallel) + len(inner))))
        self.made: dict[BodyNode, BodyNode] = {}

    def placed(self, map_: Map) -> Map:
        return tuple(symbols.substitute(e, self.place) for e in map_)

    def read(self, node: BodyNode, tensor: Tensor, map_: Map) -> BodyNode:
        """Lets an element of `tensor` stand for a reduction."""
        self.made[node] = self.pool.make("read", (), node.type, node.location, (), tensor, map_)
        return self.made[node]

    def reduce(self, node: BodyNode, x: BodyNode) -> None:
        """Lets a reduction of the same kind, of `x`, stand for it."""
        self.made[node] = self.pool.make("reduce", (x,), node.type, node.location, node.attributes)

    def copy(self, root: BodyNode) -> BodyNode:
        """A node as this kernel computes it."""
        for node in self.kernel.body.below([root]):
            if node not in self.made:
                operands = tuple(self.made[x] for x in node.operands)
                self.made[node] = self.pool.again(node, operands, self.placed(node.map) if self.place else node.map)
        return self.made[root]

    def scalars(self, node: BodyNode) -> Scalars:
        return Scalars(self.pool, node.type, node.location)

    def write(self, results: list[Result]) -> ir.Operation:
        """Makes the kernel, before the old one. What its results are called takes the place of what they were."""
        op = self.kernel.op
        with ir.InsertionPoint(op):
            made = write_body(Body(self.parallel, self.inner, results, self.kernel.body.label), op.location)
        if self.kernel.writes_half:
            made.attributes[ROUNDED] = ir.UnitAttr.get()
        for result, new in zip(results, made.results, strict=True):
            if result.tensor.value is not None:
                result.tensor.value.replace_all_uses_with(new)
            result.tensor.value = new
        return made


def _divisor(size: int, most: int) -> int:
    """The largest number up to `most` that divides a size."""
    return next((n for n in range(min(most, size), 1, -1) if size % n == 0), 1)


def _divisors(sizes: list[int], order: Iterable[int], most: int) -> list[int]:
    """Divisors of sizes, taken as large as can be one after another, whose product is at most `most`."""
    found = [1] * len(sizes)
    for d in order:
        found[d] = _divisor(sizes[d], most // math.prod(found))
    return found
