"""Which code a matrix product gets, by its factors' dtype, how its panels lie, and what the processor has."""

import torch

from mlirc.lowering.cpu_target import CpuTarget
from mlirc.lowering.kernel_function import KernelText
from mlirc.lowering.product_bf16 import PairWriter, WideningWriter
from mlirc.lowering.product_blocked import WHOLE_K, BlockedWriter
from mlirc.lowering.product_function import ProductWriter
from mlirc.lowering.product_match import Product


def product_text(product: Product, name: str, target: CpuTarget) -> KernelText | None:
    """The product as functions; None where the processor has no instruction for its panels."""
    if product.dtype == torch.float32 and not product.pairs:
        blocked = product.plain is not None or (len(product.totals) == 1 and product.k_size >= WHOLE_K)
        return (BlockedWriter if blocked else ProductWriter)(product, name, target).write()
    if product.dtype == torch.float32:
        return None
    if not product.pairs:
        return WideningWriter(product, name, target).write()
    return PairWriter(product, name, target).write() if target.multiplies_pairs else None
