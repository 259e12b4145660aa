"""Few rows, of which each thread copies all; and by weights whose columns lie along k: tiles of a few columns, and the epilogue over a
vector of them."""

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import advance
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.column_blocks import CopiedRowsWriter
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.quantised.match import MOST_COPIED
from mlirc.lowering.target import CpuTarget


class FewRowsWriter(CopiedRowsWriter):
    """rows     of the matmul, a number
    length   steps along k
    """

    panel = MOST_COPIED  # all rows: one thread does them
    large = 1 << 20

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.rows, self.length = int(gemm.m_size), gemm.k_size  # type: ignore[arg-type]

    def loops(self) -> tuple[Int, Int, int]:
        """Threads share the column blocks, however few."""
        e = self.e
        self.m, self.k = e.i64(self.rows), e.i64(self.length)
        self.claim_column_blocks((e.i64(0), e.i64(1)))
        work = symbols.floordiv(symbols.product([self.p.m_size, self.p.n_size, self.length]), self.alike)
        return work, self.column_blocks, self.chunk


class ColumnTilesWriter(FewRowsWriter):
    """columns   of a tile: as many as registers hold the sums of"""

    columns: int

    def each_column_block(self, column_blocks: Range) -> None:
        e, b = self.e, self.e.index

        with e.each(*column_blocks) as column_block:
            first, size = b.mul(column_block, e.i64(self.lanes)), self.columns_of(column_block)
            whole = b.and_(size, e.i64(-self.columns))
            with e.each(0, whole, self.columns) as number:
                self.tile(first, number, self.columns)
            if self.p.n_size % self.columns:
                with e.each(whole, size) as number:
                    self.tile(first, number, 1)
            with e.each(0, self.rows) as i:
                self.bind_row(i)
                self.epilogue(first, size, advance(e, e.env["tile"], b.mul(i, e.i64(self.lanes))))

    def tile(self, first: Value, number: Value, columns: int) -> None:
        """tile[:, number : number + columns] = rows @ the columns from first + number on."""
        raise NotImplementedError
