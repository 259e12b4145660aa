"""Attention with a body as functions in MLIR text: as attention/function.py, but over the blocks of keys that a block mask lists.

for blocks of queries of the mask, cut into some panels, shared among threads:
  for the partial blocks of keys that are listed, and then for the full ones:
    for some keys, for panel:
      scores = keys @ panel                                        [keys, W] in the L1 cache
      scores = score_mod(scores), in partial blocks -inf where mask_mod hides
      the online softmax and the values, as in attention/function.py
"""

from collections.abc import Iterable
from dataclasses import replace

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.cpu.attention.call import AttentionProblem
from mlirc.lowering.cpu.attention.coverage import flex_uncovered
from mlirc.lowering.cpu.attention.function import SCORES, VECTORS, AttentionForwardWriter
from mlirc.lowering.cpu.attention.memory import place_of
from mlirc.lowering.cpu.attention.scores import NOTHING
from mlirc.lowering.cpu.attention.softmax import LN2, PanelSoftmax, finished
from mlirc.lowering.cpu.attention.writer import divided
from mlirc.lowering.cpu.emitter.addresses import lanes_below, load_scratch, store_scratch
from mlirc.lowering.cpu.loops.frame import KernelText, bad_index_text, operands_only
from mlirc.lowering.cpu.math.builder import Value, element_text
from mlirc.lowering.cpu.matmul.tile_rows import split_rows
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.flex_attention import FORWARD, FlexProblem
from mlirc.lowering.kernel.nodes import Node
from mlirc.lowering.target import CpuTarget


def flex_refusal(name: str, q: TensorInfo, k: TensorInfo, v: TensorInfo, out: TensorInfo, results: int) -> str:
    """Why no kernel of ours computes attention with a body and so many results on a CPU, or ""."""
    if name != FORWARD:
        return "GRADIENTS ON A CPU"
    if results > 2:
        return "LARGEST SCORES"
    rule = flex_uncovered(q.dtype, q.shape[2], q.shape[1], k.shape[1], q.shape[3], v.shape[3])
    return rule or ("ROWS SIDE BY SIDE" if out.stride[3] != 1 else "")


def flex_text(problem: FlexProblem, name: str, target: CpuTarget) -> KernelText:
    """The functions of kernel `name`, for a problem that `flex_refusal` has nothing against."""
    return _FlexWriter(problem, name, target).write()


class _FlexWriter(AttentionForwardWriter):
    def __init__(self, problem: FlexProblem, name: str, target: CpuTarget):
        self.problem = problem
        reach_scores(problem)
        operands = [f"operand_{k}" for k in range(len(problem.operands))]
        for part, k in problem.place.items():
            operands[k] = part
        q, k, v, out, lse = (problem.info(part) for part in ("q", "k", "v", "out", "lse_out"))
        a = AttentionProblem(q, k, v, None, out, lse, problem.scale, "none")
        super().__init__(a, name, target, operands, problem.symbols, Axis("d2", q.shape[2], False))

    def rows_of_key_tiles(self) -> tuple[int, list[int]]:
        """A block of the mask may end anywhere."""
        rows, _ = split_rows(self.keys_of_a_block(), self.most)
        return rows, [1 << k for k in reversed(range(rows.bit_length())) if 1 << k < rows]

    def keys_of_a_block(self) -> int:
        """Keys of about equal parts of a block of the mask."""
        columns, most = self.problem.columns, max(1, SCORES // self.width)
        keys = self.a.k.shape[2]
        size = min(columns, keys) if isinstance(keys, int) else columns
        return -(-size // -(-size // most))

    def queries_of_a_block(self) -> Int:
        return symbols.minimum(self.problem.rows, self.a.q.shape[2])

    def make_softmax(self) -> PanelSoftmax:
        return _BaseTwo(self.e, self.a, self.scores, VECTORS, self.panels)

    # ---- the function

    def write(self) -> KernelText:
        a, e, b = self.a, self.e, self.e.index
        self.begin()
        self.take_scratch()
        batch, heads, queries, _ = a.q.shape
        together = self.panels * self.width
        blocks, parts = blocks_of(queries, self.problem.rows), blocks_of(self.queries_of_a_block(), together)
        items = batch * heads * blocks * parts

        def one(number: Value) -> None:
            number, part = divided(e, number, e.integer(parts))
            number, block = divided(e, number, e.integer(blocks))
            place = divided(e, number, e.integer(heads))
            begin = b.mul(block, e.i64(self.problem.rows))
            first = b.add(begin, b.mul(part, e.i64(together)))
            end = b.minimum(b.add(begin, e.i64(self.problem.rows)), e.integer(queries))
            with e.when(b.lt(first, end)):
                self.listed_keys(*place, block, first, b.minimum(b.add(first, e.i64(together)), end))

        self.each_item(items, one)
        made = self.framed(self.work, items)
        if not any(n.kind == "check_index" for n in self.problem.body.nodes):
            return made
        points = replace(operands_only(len(self.operands)), parallel=dict(enumerate(self.problem.space)))
        checks = bad_index_text(points, self.symbols, self.name, self.target)
        return replace(made, functions=f"{made.functions}\n{checks}")

    # ---- a block of queries: some panels

    def listed_keys(self, batch: Value, head: Value, block: Value, first: Value, last: Value) -> None:
        """Attention of the queries from `first` to `last`, which are of one block of the mask."""
        a, e, b, problem = self.a, self.e, self.e.index, self.problem
        e.env["d0"], e.env["d1"] = batch, head
        self.compute_of(["d0", "d1"], partial=any(partial for *_, partial in problem.lists))
        shared = b.binary("arith.divui", head, e.i64(a.group)) if a.group > 1 else head
        of_keys = (e.i64(0) if a.k.shape[0] == 1 else batch), shared
        places = {"k": of_keys, "v": of_keys} | dict.fromkeys(("q", "out", "lse_out"), (batch, head))
        rows = {part: place_of(e, e.env[part], problem.info(part), *at) for part, at in places.items()}
        panels = e.ceildiv(b.sub(last, first), self.width)
        keys = e.integer(a.k.shape[2])
        self.each_panel(first, e.i64(0), panels, lambda query: self.start(rows["q"], query, last))
        for counts, indices, partial in problem.lists:
            count, listed = self.list_of(counts, indices, batch, head, block)
            with e.each(0, count) as step:
                number = self.listed_block(listed, problem.info(indices), step)
                begin = b.mul(number, e.i64(problem.columns))
                end = b.minimum(b.add(begin, e.i64(problem.columns)), keys)
                with e.each(begin, end, self.block) as key:
                    many = b.minimum(b.sub(end, key), e.i64(self.block))
                    read = {part: self.rows_of(part, rows[part], key, many) for part in ("k", "v")}

                    def panel(query: Value, partial=partial, key=key, many=many, read=read) -> None:
                        self.score_tiles(read["k"], many)
                        self.change_scores(query, last, key, many, partial)
                        self.softmax.step(many)
                        self.accumulate_values(read["v"], many)

                    self.each_panel(first, e.i64(0), panels, panel)
        rows["lse"] = rows.pop("lse_out")
        self.each_panel(first, e.i64(0), panels, lambda query: self.finish(rows, query, last))

    def list_of(self, counts: str, indices: str, batch: Value, head: Value, block: Value) -> tuple[Value, Value]:
        """How many blocks of keys are listed for a block of queries, and the address of their numbers."""
        e, b = self.e, self.e.index
        count, index = self.problem.info(counts), self.problem.info(indices)
        row = b.minimum(block, e.integer(count.shape[2] - 1))
        at = [e.i64(0) if n == 1 else x for n, x in zip(count.shape, (batch, head, row), strict=True)]
        many = self.whole_number(place_of(e, e.env[counts], count, *at), count.dtype)
        return b.minimum(many, e.integer(index.shape[3])), place_of(e, e.env[indices], index, *at)

    def listed_block(self, listed: Value, index: TensorInfo, step: Value) -> Value:
        """The number of the block that is listed there, of one that there is not the first beyond the keys: a mask that was cut to fewer keys
        may list those."""
        e, b = self.e, self.e.index
        offset = b.mul(step, e.integer(index.stride[3]))
        element = element_text(index.dtype)
        place = b.emit(f"llvm.getelementptr {listed}[{offset}] : (!llvm.ptr, i64) -> !llvm.ptr, {element}", torch.int64)
        blocks = e.integer(blocks_of(self.a.k.shape[2], self.problem.columns))
        number = self.whole_number(place, index.dtype)
        return b.emit(f"arith.minui {number}, {blocks} : i64", torch.int64)  # a negative one is beyond, too

    def whole_number(self, place: Value, dtype: torch.dtype) -> Value:
        b = self.e.builder(dtype)
        loaded = b.emit(
            f"llvm.load {place} {{alignment = {dtype.itemsize} : i64}} : !llvm.ptr -> {element_text(dtype)}", dtype
        )
        return b.cast(loaded, torch.int64)

    # ---- the body

    def change_scores(self, query: Value, last: Value, key: Value, count: Value, partial: bool) -> None:
        """score_mod, and in partial blocks mask_mod, on the scores of `count` keys from `key` on."""
        e, b, problem = self.e, self.e.index, self.problem
        reads = problem.reads(0)
        if problem.changed in reads and not partial:
            return
        for half in range(VECTORS):
            with e.scope():
                first = b.add(query, e.i64(half * self.lanes))
                e.env["d2"], e.mask = first, lanes_below(e, b.sub(last, first))
                self.compute_of(["d2"], partial)
                with e.each(0, count) as i:
                    place = self.softmax.part(self.softmax.row(i), half)
                    score = load_scratch(e, place)
                    e.env["d3"] = b.add(key, i)
                    e.env |= dict.fromkeys(reads, score)
                    self.compute_of(["d3"], partial)
                    made = e.operand(problem.changed, True)
                    if partial:
                        made = self.wide.select(e.operand(problem.seen, True), made, self.wide.constant(NOTHING))
                    store_scratch(e, made, place)

    def compute_of(self, axes: list[str], partial: bool) -> None:
        """Computes what the body needs, and these axes make known."""
        roots = [self.problem.changed, *([self.problem.seen] if partial else [])]
        self.e.nodes = needed(self.problem.body.nodes, roots)
        reads = self.problem.reads(0)
        self.e.accesses = [n.access for n in self.e.nodes if n.access is not None and n not in reads]
        self.e.enter(*axes)


class _BaseTwo(PanelSoftmax):
    """Writes the logarithms of the sums in base two, -inf for a query that sees nothing."""

    def finished(self, total: Value, largest: Value) -> tuple[Value, Value]:
        b = self.wide
        inverse, value = finished(b, total, largest)
        none = b.eq(total, b.constant(0.0))
        return inverse, b.select(none, b.constant(NOTHING), b.mul(value, b.constant(1 / LN2)))


def reach_scores(problem: FlexProblem) -> None:
    """Makes all that depends on scores depend on queries and keys, of which there may be but one."""
    changing = set(problem.reads(0))
    for node in problem.body.nodes:
        if node in changing or any(x in changing for x in node.operands):
            changing.add(node)
            node.dims |= {"d2", "d3"}


def needed(nodes: Iterable[Node], roots: Iterable[Node]) -> list[Node]:
    """The nodes that the roots are computed of, in their order."""
    found: set[Node] = set()
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack += node.operands
            if node.access is not None:
                stack += [*node.access.scalars, *([node.access.mask] if node.access.mask else [])]
    return [n for n in nodes if n in found]


def blocks_of(size: Int, block: int) -> Int:
    return symbols.floordiv(size + (block - 1), block)
