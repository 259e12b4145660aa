"""The common part of gemms with a weight [N, K], whose columns are contiguous along k: the loop over blocks of columns, which threads
split, and the epilogue.

The epilogue goes over the tiles of a block row by row, with columns along the lanes. TransposedWriter (transposed.py), DotWriter
(dot_product.py) and QuantisedWriter (quantised/dequantising.py) multiply.
"""

from collections.abc import Callable

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import BF16, BYTE, F32, advance, lanes_below
from mlirc.lowering.cpu.emitter.scope import Range
from mlirc.lowering.cpu.loops.entry import shared_memory, thread_part
from mlirc.lowering.cpu.loops.work_stealing import WorkStealing
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.writer import MatmulWriter
from mlirc.lowering.target import CpuTarget

CHUNK_BYTES = 64 << 10  # of a large weight: the column blocks that a thread takes at a time


class ColumnBlockWriter(MatmulWriter):
    """Writes the functions of a gemm of float32, or of bfloat16: in pairs along k, or widened.

    block_columns   columns of a column block: at most a vector of them
    panel           rows that stay together where threads split the rows
    pairs           whether bfloat16 is multiplied in pairs along k
    widens          whether bfloat16 is widened to float32
    steps_in_all    K, in pairs where bfloat16 is multiplied in pairs; `step` is the bytes of an element or a pair
    alike           multiplications that take as long as one of the operations by which the number of threads is chosen
    chunk           column blocks that a thread takes at a time; 0: equal parts
    fewest          with fewer column blocks than these, threads split the rows
    columns_apart   elements from column to column
    """

    block_columns: int
    panel: int
    chunk = 0
    alike = 4
    fewest = 8

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        assert gemm.plain is not None and gemm.plain[1] == 1 and len(gemm.totals) == 1
        super().__init__(gemm, name, target)
        self.columns_apart = gemm.plain[0]
        self.pairs = may_pair(gemm, target)
        self.widens = gemm.dtype == BF16 and not self.pairs
        self.step = gemm.dtype.itemsize * (1 + self.pairs)
        self.steps_in_all = symbols.floordiv(gemm.k.size, 1 + self.pairs)

    def multiply(self, column_blocks: Range, panels: Range) -> None:
        """Writes the loops over these column blocks and panels of rows, epilogue and all."""
        raise NotImplementedError

    def claim_column_blocks(self, panels: Range) -> None:
        """Writes what a thread does where threads split the column blocks: its part of them, with these panels of rows."""
        self.multiply(thread_part(self.e, self.e.i64(self.column_blocks)), panels)

    def loops(self) -> tuple[Int, Int, int]:
        p, e, panels = self.p, self.e, self.panels()
        self.m, self.k = e.integer(p.m_size), e.integer(self.steps_in_all)
        work = symbols.floordiv(symbols.product([p.m_size, p.n_size, p.k.size]), self.alike)
        if self.column_blocks >= self.fewest:
            self.claim_column_blocks((e.i64(0), e.integer(panels)))
            return work, self.column_blocks, self.chunk
        self.multiply((e.i64(0), e.i64(self.column_blocks)), thread_part(e, e.integer(panels)))
        return work, panels, 0

    def panels(self) -> Int:
        return symbols.floordiv(self.p.m_size + self.panel - 1, self.panel)

    # ---- a column block

    def columns_of(self, column_block: Value) -> Value:
        """The number of its columns: the last block may have fewer."""
        e, b = self.e, self.e.index
        if self.p.n_size % self.block_columns == 0:
            return e.i64(self.block_columns)
        return b.minimum(
            e.i64(self.block_columns), b.sub(e.i64(self.p.n_size), b.mul(column_block, e.i64(self.block_columns)))
        )

    def address_of(self, column_block: Value, k: Value) -> tuple[Value, Value]:
        """The address of its columns from `k` on, and the bytes from column to column."""
        e, b = self.e, self.e.index
        ((_, access),) = self.p.totals
        size = self.p.dtype.itemsize
        apart = b.mul(e.integer(self.columns_apart), e.i64(size))
        a = advance(e, e.env["base", access.operand], b.mul(e.integer(access.address.rest), e.i64(size)), BYTE)
        return advance(
            e, a, b.add(b.mul(b.mul(column_block, e.i64(self.block_columns)), apart), b.mul(k, e.i64(self.step))), BYTE
        ), apart

    def rows_from(self) -> tuple[Value, Value]:
        """Where the rows are in memory, and how many bytes apart."""
        e, b, p = self.e, self.e.index, self.p
        size = e.i64(p.dtype.itemsize)
        return advance(e, e.env["base", p.rows.operand], b.mul(e.integer(p.rows.address.rest), size), BYTE), b.mul(
            e.integer(p.lda), size
        )

    def epilogue(self, column: Value, size: Value, line: Value) -> None:
        """The epilogue on `size` columns of a row from `column` on, whose float32 sums are at `line`."""
        ragged = self.block_columns < self.lanes or self.p.n_size % self.block_columns
        self.finish_vector(column, [line], lanes_below(self.e, size) if ragged else None)

    # ---- memory

    @property
    def factor(self) -> torch.dtype:
        """The dtype that a step is loaded as; a pair is loaded as a float32."""
        return BF16 if self.widens else F32


class CopiedRowsWriter(ColumnBlockWriter):
    """Writes a gemm of a few rows: each thread copies all rows into its scratch, and multiplies them by its column blocks.

    large   bytes of a matrix from which on threads take chunks of column blocks
    """

    large: int

    def copy_rows(self) -> None:
        raise NotImplementedError

    def each_column_block(self, column_blocks: Range) -> None:
        """Writes the loop over these column blocks, which reads the copies of the rows."""
        raise NotImplementedError

    def chunk_of(self, block_bytes: int) -> int:
        """Column blocks that a thread takes at a time, if each has `block_bytes` bytes; 0, equal parts, where the weight is small."""
        large = self.column_blocks * block_bytes >= self.large
        return max(1, CHUNK_BYTES // block_bytes) if large else 0

    def claim_column_blocks(self, panels: Range) -> None:
        """Threads take chunks of column blocks by work stealing where the weight is large, because memory bandwidth differs between
        threads; else equal parts."""
        e = self.e
        if not self.chunk:
            super().claim_column_blocks(panels)
            return
        self.copy_rows()
        chunks = WorkStealing(e, shared_memory(e), e.i64(self.column_blocks), e.i64(self.chunk))
        chunks.each(lambda first, end: self.each_column_block((first, end)))

    def multiply(self, column_blocks: Range, panels: Range) -> None:
        self.copy_rows()
        self.each_column_block(column_blocks)


class ColumnTilesWriter(CopiedRowsWriter):
    """Writes a gemm of a few rows whose lanes run along k: a column block is a vector of columns, in tiles of a few.

    columns   of a tile: as many as registers hold the sums of
    """

    columns: int

    def each_column_block(self, column_blocks: Range) -> None:
        e, b = self.e, self.e.index
        with e.each(*column_blocks) as column_block:
            size = self.columns_of(column_block)
            self.fill_tile(column_block, size)
            with e.each(0, self.m) as row:
                self.bind_row(row)
                line = advance(e, e.env["tile"], b.mul(row, e.i64(self.lanes)))
                self.epilogue(b.mul(column_block, e.i64(self.lanes)), size, line)

    def fill_tile(self, column_block: Value, size: Value) -> None:
        """tile[rows, columns] = rows @ the columns of a block, of which there are `size`."""
        first = self.e.index.mul(column_block, self.e.i64(self.lanes))
        self.each_tile(size, lambda number, columns: self.tile(first, number, columns))

    def each_tile(self, size: Value, body: Callable[[Value, int], None]) -> None:
        """`body(first column, columns)` for the tiles of a column block."""
        for number, columns in self.e.tiles(
            (self.e.i64(0), size), [self.columns, *[1] * bool(self.p.n_size % self.columns)]
        ):
            body(number, columns)

    def tile(self, first: Value, number: Value, columns: int) -> None:
        """tile[:, number : number + columns] = rows @ the columns from first + number on."""
        raise NotImplementedError


def may_pair(gemm: Gemm, target: CpuTarget) -> bool:
    """Whether steps along k can be pairs: k is even, so that no pair is cut at the end of a row or column."""
    k = gemm.k.size
    in_pairs = gemm.dtype == BF16 and target.bf16_pairs
    return in_pairs and isinstance(k, int) and k % 2 == 0 and gemm.ka == 1
