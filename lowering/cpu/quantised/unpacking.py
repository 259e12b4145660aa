"""Gemm of a few rows by a weight [K, N] that the kernel itself computes, of packed words say: each element is computed once, in registers.

copy the rows as float32, transposed
for column block:                               threads split them
  for block of steps along k:
    for k in block:                             sums[row, vector of columns] += row[k] * weight[k, vector]
    tile += sums
  epilogue over the rows of the block

The weight is any scalar work that depends on k and the column alone.

    parallel = "4, 4096", inner = "2048"
    %q = and(shift_right(read(%w) {map = "d2//8, d1"}, 4 * (d2 % 8)), 15)
    %s = reduce(mul(read(%x) {map = "d0, d2"}, mul(cast(%q), read(%scale) {map = "d2//128, d1"}))) {kind = "sum"}
"""

from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.emitter.addresses import BYTE, F32, advance, lanes_below, load_floats, load_scalar, store_floats
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.accumulators import rank_one_update
from mlirc.lowering.cpu.matmul.factors import broadcast
from mlirc.lowering.cpu.matmul.match import MOST_COPIED, Gemm
from mlirc.lowering.cpu.quantised.few_rows import FewRowsWriter
from mlirc.lowering.cpu.quantised.match import FLOATS, few_rows, read_of
from mlirc.lowering.kernel.matmul import below, contraction_of
from mlirc.lowering.kernel.nodes import Kernel, Node
from mlirc.lowering.target import CpuTarget

BLOCK = 128  # steps along k that are summed before they are added to the tile
UNROLLED = 8  # steps, at most
MOST_VECTORS = 4  # of a column block
PLAIN = ("reduce", "scan")  # kinds of nodes that a weight has none of


@dataclass(frozen=True)
class UnpackedGemm:
    """rows @ weight, for a static number of rows that is small; `nodes` are what the weight is computed of, operands first."""

    gemm: Gemm
    weight: Node
    nodes: list[Node]


def match_unpacked(kernel: Kernel) -> UnpackedGemm | None:
    """The kernel as an UnpackedGemm, or None where it is none. Leaves `kernel` as it was."""
    contraction = contraction_of(kernel, F32)
    if contraction is None or len(kernel.inner) != 1:
        return None
    for x, w in (contraction.factors, contraction.factors[::-1]):
        rows, nodes = read_of(x), below(w)
        if rows is None or rows.dtype not in FLOATS or not w.dims >= set(kernel.inner) or w.dtype != F32:
            continue
        gemm = few_rows(kernel, contraction, rows, w.dims, rows)
        if gemm is None or any(node.kind in PLAIN for node in nodes):
            continue
        if gemm.k_size and int(gemm.m_size) * gemm.k_size <= MOST_COPIED:  # type: ignore[arg-type]
            return UnpackedGemm(gemm, w, [node for node in kernel.nodes if node in nodes])
    return None


def unpacked_text(found: UnpackedGemm, name: str, target: CpuTarget) -> KernelText:
    return UnpackingWriter(found, name, target).write()


class UnpackingWriter(FewRowsWriter):
    """Writes the functions.

    vectors   of a column block: as many as registers hold the sums of
    """

    def __init__(self, found: UnpackedGemm, name: str, target: CpuTarget):
        super().__init__(found.gemm, name, target)
        self.weight, self.weight_nodes = found.weight, found.nodes
        registers = 32 if target.vector_bytes == 64 else 16
        fit = next((v for v in (MOST_VECTORS, 2) if v * (self.rows + 1) + 4 <= registers), 1)
        self.vectors = min(fit, -(-self.p.n_size // self.lanes))
        self.block_columns = self.vectors * self.lanes
        self.unrolled = next(u for u in (UNROLLED, 4, 2, 1) if self.length % u == 0)
        self.chunk = self.chunk_of(self.block_columns * self.length)

    def make_room(self) -> None:
        self.take("tile", self.rows * self.block_columns)
        self.take("rows", self.rows * self.length)

    def copy_rows(self) -> None:
        """rows[k, i] = row i in float32."""
        e, b, dtype = self.e, self.e.index, self.p.dtype
        x, apart = self.rows_from()

        with e.each(0, self.rows) as i, e.each(0, self.length) as k:
            source = advance(e, advance(e, x, b.mul(i, apart), BYTE), k, dtype)
            value = e.builder(F32).cast(load_scalar(e, source, dtype), F32)
            to = advance(e, e.env["rows"], b.add(b.mul(k, e.i64(self.rows)), i))
            e.lines.append(f"llvm.store {value}, {to} {{alignment = 4 : i64}} : f32, !llvm.ptr")

    # ---- column blocks

    def each_column_block(self, column_blocks: Range) -> None:
        e, b = self.e, self.e.index
        with e.each(*column_blocks) as column_block:
            first = b.mul(column_block, e.i64(self.block_columns))
            for columns in self.whole_or_rest(column_block):
                whole, rest = divmod(columns, self.lanes)
                if whole:
                    self.several(first, whole, None)
                if rest:
                    at = b.add(first, e.i64(whole * self.lanes))
                    self.several(at, 1, lanes_below(e, e.i64(rest)))

    def several(self, first: Value, vectors: int, mask: Value | None) -> None:
        """The results in so many vectors of columns from `first` on."""
        e, b = self.e, self.e.index
        firsts = [b.add(first, e.i64(v * self.lanes)) if v else first for v in range(vectors)]
        wide = e.builder(F32, True)
        zeros = [wide.constant(0, F32)] * (self.rows * vectors)
        tiles = [self.place(i, v) for i in range(self.rows) for v in range(vectors)]
        for place in tiles:
            store_floats(e, zeros[0], place)
        types = [wide.type_text(F32)] * len(zeros)

        known = [self.known_of_columns(at, mask) for at in firsts]

        def steps(k: Value, sums: list[Value]) -> list[Value]:
            for u in range(self.unrolled):
                sums = self.step_along_k(b.add(k, e.i64(u)) if u else k, sums, known, mask)
            return sums

        with e.each(0, self.length, BLOCK) as block:
            end = b.minimum(b.add(block, e.i64(BLOCK)), self.k)
            sums = e.loop(block, end, e.i64(self.unrolled), zeros, types, steps)
            for total, place in zip(sums, tiles, strict=True):
                store_floats(e, e.builder(F32, True).add(total, load_floats(e, place, F32)), place)
        with e.scope():
            for i in range(self.rows):
                for v, at in enumerate(firsts):
                    with e.scope():
                        self.bind_row(e.i64(i))
                        self.finish_vector(at, [self.place(i, v)], mask)

    def place(self, i: int, v: int) -> Value:
        return advance(self.e, self.e.env["tile"], self.e.i64(i * self.block_columns + v * self.lanes))

    def known_of_columns(self, first: Value, mask: Value | None) -> dict[Any, Any]:
        """What the vector of columns from `first` on decides alone."""
        e = self.e
        with e.scope():
            e.nodes, e.mask = self.weight_nodes, mask
            e.env[self.p.n.name] = first
            e.enter(self.p.n.name)
            e.nodes = ()
            return e.env

    def step_along_k(self, k: Value, sums: list[Value], known: list[dict[Any, Any]], mask: Value | None) -> list[Value]:
        """The sums with the products of one step along k."""
        e, b, wide = self.e, self.e.index, self.e.builder(F32, True)
        weights = []
        with e.scope():
            e.nodes = self.weight_nodes
            e.env[self.p.k.name] = k
            e.enter(self.p.k.name)
            of_step = e.env
            for of_columns in known:
                with e.scope():
                    e.env, e.mask = {**of_columns, **of_step}, mask
                    e.enter(self.p.n.name)
                    weights.append(e.operand(self.weight, True))
            e.nodes = ()
        start = advance(e, e.env["rows"], b.mul(k, e.i64(self.rows)))
        rows = (broadcast(wide, load_scalar(e, advance(e, start, e.i64(i)), F32), F32) for i in range(self.rows))
        return rank_one_update(rows, weights, sums, wide.fma)
