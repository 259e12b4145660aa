"""Few rows by weights whose columns lie along k: tiles of a few columns, and the epilogue over a vector of them."""

from mlirc.lowering.cpu.emitter.addresses import advance
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.column_blocks import CopiedRowsWriter, Range


class ColumnTilesWriter(CopiedRowsWriter):
    """rows      of the matmul
    columns   of a tile: as many as registers hold the sums of
    """

    rows: int
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
