"""fuse-horizontally: kernels that read the same tensor at the same points become one (horizontal fusion)."""

from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.merge import Limits
from mlirc.lowering.fusion.pairs import Fuser
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class FuseHorizontally:
    """Merge kernels that read the same tensor at the same points, so that it is read once.

    before:  %0 = "mlircx.kernel"(%x) ({ read, exp, yield }) {parallel = "8", ...}
             %1 = "mlircx.kernel"(%x) ({ read, neg, yield }) {parallel = "8", ...}
    after:   %0:2 = "mlircx.kernel"(%x) ({ read, exp, neg, yield }) {parallel = "8", ...}

    SAME READS      in a common iteration space both read the tensor at the same index
    WORTH IT        that saves an eighth of what the smaller kernel moves
    NO CYCLE        neither needs the other
    NO POINTS       a kernel over no elements is left as it is
    MATMULS STAY    a matmul's loops read its factors alone
    and LIMITS, MASKED, IN ORDER, PLAN and REWRITES as in fuse-elementwise and fuse-reductions.
    """

    name = "fuse-horizontally"
    takes = "kernel"
    max_ops: int = 64
    max_reads: int = 24

    def run(self, function: Any, ledger: Ledger) -> None:
        Fuser(function, ledger, self.name, Limits(self.max_ops, self.max_reads)).run_horizontally()
