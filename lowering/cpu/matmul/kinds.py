"""Which code a matrix product gets, by its factors' dtype, how its columns lie, and what the processor has."""

import torch

from mlirc.lowering.analysis.typical_sizes import typical
from mlirc.lowering.cpu.loops.function import KernelText
from mlirc.lowering.cpu.matmul.bf16 import PairWriter, WideningWriter
from mlirc.lowering.cpu.matmul.blocked import WHOLE_K, BlockedWriter
from mlirc.lowering.cpu.matmul.dot_product import DotWriter, takes_dots
from mlirc.lowering.cpu.matmul.few_rows import few_or_many, may_be_few
from mlirc.lowering.cpu.matmul.function import ProductWriter
from mlirc.lowering.cpu.matmul.match import Product
from mlirc.lowering.cpu.matmul.transposed import TurnedWriter
from mlirc.lowering.cpu.matmul.units import UnitsWriter
from mlirc.lowering.target import CpuTarget

# From so many rows on, packing columns that lie along k costs less than turning tiles.
MANY_ROWS = 96


def product_text(product: Product, name: str, target: CpuTarget) -> KernelText | None:
    """The product as functions; None where the processor has no instruction for its panels."""
    if product.plain is not None:
        made = plain_writer(product)(product, name, target).write()
        return few_or_many(product, made, name, target) if may_be_few(product) else made
    if product.dtype == torch.float32 and not product.pairs:
        blocked = len(product.totals) == 1 and product.k_size >= WHOLE_K
        return (BlockedWriter if blocked else ProductWriter)(product, name, target).write()
    if product.dtype == torch.float32:
        return None
    if not product.pairs:
        return WideningWriter(product, name, target).write()
    return PairWriter(product, name, target).write() if target.bf16_pairs else None


def plain_writer(product: Product) -> type[UnitsWriter] | type[BlockedWriter]:
    """For columns that lie in memory as they are."""
    assert product.plain is not None
    if product.plain[1] != 1:
        return BlockedWriter
    if takes_dots(product):
        return DotWriter
    few = typical(product.m_size) < MANY_ROWS
    return TurnedWriter if few or product.dtype != torch.float32 else BlockedWriter
