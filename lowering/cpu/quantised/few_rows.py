"""Few rows, of which each thread copies all: what gemms by quantised weights have in common."""

from mlirc.lowering.cpu.matmul.column_blocks import CopiedRowsWriter
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.quantised.match import MOST_COPIED
from mlirc.lowering.target import CpuTarget


class FewRowsWriter(CopiedRowsWriter):
    """Threads share the column blocks, however few.

    rows     of the matmul, a number
    length   steps along k
    """

    panel = MOST_COPIED  # all rows: one thread does them
    large = 1 << 20
    fewest = 0

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.rows, self.length = int(gemm.m_size), gemm.k_size  # type: ignore[arg-type]
        self.pairs, self.widens, self.steps_in_all = False, False, self.length
