"""The common part of gemms with a weight [N, K] (columns along k): blocks of columns that threads share, and the epilogue on their
tiles.

TransposedWriter (transposed.py) and DotWriter (dot_product.py) go over units of columns, which threads share, and do the scalar
work on a unit's tiles row by row, with columns along the lanes.
"""

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import BF16, BYTE, F32, advance, lanes_below
from mlirc.lowering.cpu.loops.entry import thread_part
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.writer import MatmulWriter
from mlirc.lowering.target import CpuTarget

FEW_UNITS = 8  # of columns: below it threads share the rows

Range = tuple[Value, Value]


class UnitsWriter(MatmulWriter):
    """Writes the functions of a product of float32, or of bfloat16: in pairs along k, or widened.

    unit            columns that are finished together, at most a vector of them
    panel           rows that threads share as one, where columns are few
    steps_in_all    along k, pairs or single ones; `step` is the bytes of one in memory
    alike           multiplications that take as long as one of the operations that threads are counted by
    chunk           so many units are taken at a time; 0: equal parts
    columns_apart   elements from column to column
    """

    unit: int
    panel: int
    chunk = 0
    alike = 4

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        assert gemm.plain is not None and gemm.plain[1] == 1 and len(gemm.totals) == 1
        super().__init__(gemm, name, target)
        self.columns_apart = gemm.plain[0]
        self.pairs = may_pair(gemm, target)
        self.widens = gemm.dtype == BF16 and not self.pairs
        self.step = gemm.dtype.itemsize * (1 + self.pairs)
        self.steps_in_all = symbols.floordiv(gemm.k.size, 1 + self.pairs)

    def multiply(self, units: Range, panels: Range) -> None:
        """Writes the loops over these units and panels of rows, epilogue and all."""
        raise NotImplementedError

    def share_units(self, panels: Range) -> None:
        """This thread's part of the units, with these panels of rows."""
        self.multiply(thread_part(self.e, self.e.i64(self.units)), panels)

    def loops(self) -> tuple[Int, Int, int]:
        p, e, panels = self.p, self.e, self.panels()
        self.m, self.k = e.integer(p.m_size), e.integer(self.steps_in_all)
        work = symbols.floordiv(symbols.product([p.m_size, p.n_size, p.k.size]), self.alike)
        if self.units >= FEW_UNITS:
            self.share_units((e.i64(0), e.integer(panels)))
            return work, self.units, self.chunk
        self.multiply((e.i64(0), e.i64(self.units)), thread_part(e, e.integer(panels)))
        return work, panels, 0

    def panels(self) -> Int:
        return symbols.floordiv(self.p.m_size + self.panel - 1, self.panel)

    # ---- a unit

    def size_of(self, unit: Value) -> Value:
        """Columns of a unit: the last may have fewer."""
        e, b = self.e, self.e.index
        if self.p.n_size % self.unit == 0:
            return e.i64(self.unit)
        return b.minimum(e.i64(self.unit), b.sub(e.i64(self.p.n_size), b.mul(unit, e.i64(self.unit))))

    def columns_at(self, unit: Value, k: Value) -> tuple[Value, Value]:
        """Where a unit's columns are in memory, from `k` on, and how many bytes apart."""
        e, b = self.e, self.e.index
        ((_, access),) = self.p.totals
        size = self.p.dtype.itemsize
        apart = b.mul(e.integer(self.columns_apart), e.i64(size))
        a = advance(e, e.env["base", access.operand], b.mul(e.integer(access.address.rest), e.i64(size)), BYTE)
        return advance(
            e, a, b.add(b.mul(b.mul(unit, e.i64(self.unit)), apart), b.mul(k, e.i64(self.step))), BYTE
        ), apart

    def rows_from(self) -> tuple[Value, Value]:
        """Where the rows are in memory, and how many bytes apart."""
        e, b, p = self.e, self.e.index, self.p
        size = e.i64(p.dtype.itemsize)
        return advance(e, e.env["base", p.rows.operand], b.mul(e.integer(p.rows.address.rest), size), BYTE), b.mul(
            e.integer(p.lda), size
        )

    def epilogue(self, column: Value, size: Value, line: Value) -> None:
        """The scalar work on a unit's columns of a row, whose sums are at `line`."""
        ragged = self.unit < self.lanes or self.p.n_size % self.unit
        self.finish_vector(column, [line], lanes_below(self.e, size) if ragged else None)

    # ---- memory

    @property
    def factor(self) -> torch.dtype:
        """What a step is loaded as: pairs move as if they were float32."""
        return BF16 if self.widens else F32


def may_pair(gemm: Gemm, target: CpuTarget) -> bool:
    """Whether steps along k can be pairs: neither matrix has half a one at its end."""
    k = gemm.k.size
    in_pairs = gemm.dtype == BF16 and target.bf16_pairs
    return in_pairs and isinstance(k, int) and k % 2 == 0 and gemm.ka == 1
