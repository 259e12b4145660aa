"""generate-dot-products: one row times a weight, on a GPU, is a reduction like any other."""

from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.bindings import ir
from mlirc.dialects.tensor_types import info_of
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.passes.generate_products import product
from mlirc.lowering.source_lines import source_line

SMALLEST = 1 << 20  # bytes of a weight: less is read in the time that a launch takes
DTYPES = (torch.bfloat16, torch.float16, torch.float32)


@dataclass(frozen=True)
class GenerateDotProducts:
    """Make a product of one row a kernel: reading the weight is all the work, and what comes after the product is free.

    before:  %0 = "mlirc.addmm"(%b, %x, %w)         after:  %0 = "mlircx.kernel"(%b, %x, %w) ({
                                                            reduce(mul(read %x, read %w)) + read %b })
    ONE ROW  the weight lies along k or along n, and its size is known. Where the rows of the result are too few to fill the
             GPU, or it lies along n, `split-reductions` then sums parts of k first, and those in a second kernel
    """

    name = "generate-dot-products"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name not in ("mlirc.matmul", "mlirc.addmm") or not is_one_row(op):
                continue
            ledger.record(self.name, "generate", op.operation.name, "ONE ROW", True, source_line(op.location))
            *bias, x, w = op.operands
            with ir.InsertionPoint(op), op.location:
                made = product(bias, x, w, info_of(op.results[0]), False)
            op.results[0].replace_all_uses_with(made)
            op.operation.erase()


def is_one_row(op: Any) -> bool:
    """Whether it is one row, of a dtype that is summed in float32, times a large matrix."""
    *_, w, out = (info_of(v) for v in (*op.operands, op.results[0]))
    if out.rank != 2 or out.shape[0] != 1 or not out.device.startswith("cuda") or out.dtype not in DTYPES:
        return False
    if not isinstance(w.numel, int) or w.numel * w.dtype.itemsize < SMALLEST:
        return False
    k, n = w.shape
    return w.stride in ((1, k), (n, 1))
