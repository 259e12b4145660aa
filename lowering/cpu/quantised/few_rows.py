"""What the writers of gemms by quantised weights share (integers.py, dequantising.py, unpacking.py)."""

from mlirc.lowering.cpu.matmul.column_blocks import CopiedRowsWriter
from mlirc.lowering.cpu.matmul.match import MOST_COPIED, Gemm
from mlirc.lowering.target import CpuTarget


class FewRowsWriter(CopiedRowsWriter):
    """Each thread copies all rows and multiplies them by its column blocks; the rows are never split.

    rows     M, an int and never a symbol
    length   steps along k
    """

    # what ColumnBlockWriter asks for
    panel = MOST_COPIED  # as many rows as there can be: one panel, so threads never split the rows
    large = 1 << 20  # bytes of a weight from which on threads take chunks of column blocks
    fewest = 0  # threads split the column blocks, however few there are

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.rows, self.length = int(gemm.m_size), gemm.k_size  # type: ignore[arg-type]
        self.pairs, self.widens, self.steps_in_all = False, False, self.length
