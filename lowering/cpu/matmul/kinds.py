"""Chooses the gemm code of a matmul, by its dtype, the layout of its columns, and the processor."""

import torch

from mlirc.lowering.cpu.loops.frame import KernelText
from mlirc.lowering.cpu.matmul.bf16 import PairWriter, WideningWriter
from mlirc.lowering.cpu.matmul.blocked import WHOLE_K, BlockedWriter
from mlirc.lowering.cpu.matmul.column_blocks import ColumnBlockWriter
from mlirc.lowering.cpu.matmul.dot_product import DotWriter, takes_dots
from mlirc.lowering.cpu.matmul.few_rows import few_or_many, may_be_few
from mlirc.lowering.cpu.matmul.function import GemmWriter, panel_width
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.tile import most_rows
from mlirc.lowering.cpu.matmul.tile_rows import split_rows
from mlirc.lowering.cpu.matmul.transposed import TransposedWriter, has_row_alone
from mlirc.lowering.kernel.typical_sizes import typical
from mlirc.lowering.target import CpuTarget

# From MANY_ROWS rows on, packing columns that are contiguous along k costs less than transposing tiles. Packing takes as long as
# multiplying PACKED_ROWS rows.
MANY_ROWS, PACKED_ROWS = 96, 6


def gemm_text(gemm: Gemm, name: str, target: CpuTarget) -> KernelText | None:
    """The gemm as functions; None where the processor has no instruction for its panels."""
    if gemm.plain is not None:
        made = plain_writer(gemm, target)(gemm, name, target).write()
        return few_or_many(gemm, made, name, target) if may_be_few(gemm) else made
    if gemm.dtype == torch.float32 and not gemm.pairs:
        blocked = len(gemm.totals) == 1 and gemm.k_size >= WHOLE_K
        return (BlockedWriter if blocked else GemmWriter)(gemm, name, target).write()
    if gemm.dtype == torch.float32:
        return None
    if not gemm.pairs:
        return WideningWriter(gemm, name, target).write()
    return PairWriter(gemm, name, target).write() if target.bf16_pairs else None


def plain_writer(gemm: Gemm, target: CpuTarget) -> type[ColumnBlockWriter] | type[BlockedWriter]:
    """The writer for columns that are in memory as the graph has them, not packed before."""
    assert gemm.plain is not None
    if gemm.plain[1] != 1:
        return BlockedWriter
    if takes_dots(gemm):
        return DotWriter
    few = typical(gemm.m_size) < MANY_ROWS and fill_panels(gemm, target)
    return TransposedWriter if few or gemm.dtype != torch.float32 else BlockedWriter


def fill_panels(gemm: Gemm, target: CpuTarget) -> bool:
    """Whether packing rows along the lanes wastes less than packing columns costs: tiles are as many vectors wide as there are rows,
    so that 49 rows leave 15 of 64 lanes empty with AVX-512. (16 rows by 448 x 2048: 424 us so, 570 with packed columns.)"""
    rows, width = gemm.m_size, panel_width(target)
    if not isinstance(rows, int):
        return True
    lanes = target.vector_bytes // 4
    full = split_rows(rows, most_rows(target, width // lanes))[0]
    rows -= has_row_alone(gemm, target)
    return -(-rows // lanes) * lanes <= -(-rows // full) * full + PACKED_ROWS
