"""generate-dot-products: on a GPU, makes a matmul of one row a reduction kernel."""

from typing import Any

import torch

from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.passes.fuse.generate_matmuls import make_matmul_kernel
from mlirc.lowering.pipeline.ledger import Ledger

SMALLEST = 1 << 20  # bytes of a weight: less is read in the time that a launch takes
FEW = 16  # rows: a tile of the tensor cores
ALIGNMENT = 16  # bytes
HALF = (torch.bfloat16, torch.float16)
DTYPES = (*HALF, torch.float32)


@dataclass(frozen=True)
class GenerateDotProducts:
    """Make a matmul of one row a kernel. Reading the weight bounds it, so an epilogue costs nothing.

    before:  %0 = "mlirc.addmm"(%b, %x, %w)         after:  %0 = "mlircx.kernel"(%b, %x, %w) ({
                                                            reduce(mul(read %x, read %w)) + read %b })
    ONE ROW     the weight lies along k, as a linear layer's does, and its size is known. Along n the library is faster
    UNALIGNED   up to FEW rows of half types, where the result's rows are unaligned: cuBLAS's kernels take two to four times as long
    """

    name = "generate-dot-products"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name not in ("mlirc.matmul", "mlirc.addmm") or not (rule := rule_of(op)):
                continue
            if not ledger.allows(self.name, op):
                continue
            ledger.record(self.name, "generate", op.operation.name, rule, True, op)
            make_matmul_kernel(op)


def rule_of(op: Any) -> str:
    """The rule by which the matmul becomes a kernel, or ""."""
    *_, x, w, out = (info_of(v) for v in (*op.operands, op.results[0]))
    if out.rank != 2 or not out.device.startswith("cuda") or out.dtype not in DTYPES:
        return ""
    if not all(isinstance(n, int) for n in (*x.shape, *w.shape)):
        return ""
    (rows, inner), columns = static(x.shape), static(w.shape)[1]
    if w.stride != (1, inner) or inner * columns * w.dtype.itemsize < SMALLEST:
        return ""
    if rows == 1:
        return "ONE ROW"
    unaligned = columns * out.dtype.itemsize % ALIGNMENT != 0 and inner * w.dtype.itemsize % ALIGNMENT == 0
    return "UNALIGNED" if rows <= FEW and unaligned and out.dtype in HALF and x.stride == (inner, 1) else ""
