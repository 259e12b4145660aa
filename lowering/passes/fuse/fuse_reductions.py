"""fuse-reductions: kernels over the same rows become one, such as the reductions and elementwise work of a softmax."""

from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.merge import Limits
from mlirc.lowering.fusion.pairs import Fuser
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class FuseReductions:
    """Merge kernels that work on the same rows: a softmax or a layer norm is one kernel that reads its input once.

    before:  %0 = "mlircx.kernel"(%x) ({ read, reduce max, yield })     {parallel = "8", inner = "16"}
             %1 = "mlircx.kernel"(%x, %0) ({ read, read, sub, yield })  {parallel = "8, 16", inner = ""}
    after:   %1 = "mlircx.kernel"(%x) ({ read, reduce max, sub, yield })  {parallel = "8", inner = "16"}

    SAME ROWS       the consumer's points are the producer's parallel points, or those and all of its inner ones;
                    dimensions may be permuted, split and put together. One that folds must fold the same dimensions.
    IN ORDER        a scan runs along one inner dimension, and argmax counts them in order
    MATMULS STAY    what is merged with a matmul leaves it one, whose sums nothing reads but the end of its loops
    and the rules of fuse-elementwise.
    """

    name = "fuse-reductions"
    takes = "kernel"
    max_ops: int = 64
    max_reads: int = 24

    def run(self, function: Any, ledger: Ledger) -> None:
        fuser = Fuser(function, ledger, self.name, Limits(self.max_ops, self.max_reads))
        fuser.run(lambda producer, consumer: bool(producer.body.inner or consumer.body.inner))
