"""fuse-elementwise: a kernel without reductions goes into the kernel that reads its result."""

from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.fusion.merge import Limits
from mlirc.lowering.fusion.pairs import Fuser
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class FuseElementwise:
    """Merge a kernel without reductions into a kernel that reads its result, so that the result is never stored.

    before:  %0 = "mlircx.kernel"(%x) ({ read, exp, yield }) {parallel = "8", ...}
             %1 = "mlircx.kernel"(%0) ({ read, neg, yield }) {parallel = "8", ...}
    after:   %1 = "mlircx.kernel"(%x) ({ read, exp, neg, yield }) {parallel = "8", label = "exp_neg", ...}

    Views in between become index expressions. When not, the ledger says by which rule:
    ONE SPACE       for each point of the consumer there is one point of the producer
    SAME ROWS       where the consumer runs through several of the producer's dimensions as one, it runs through them one by one
    WRITTEN ONCE    a result that others read too is written by the merged kernel: its points must be the producer's
    NO RECOMPUTE    an expression of more than a few cheap ops is not computed at more points than before; one that reads
                    many elements of one tensor, as a pool does, stays a kernel of its own
    MASKED          what is computed only to be masked away must be cheap
    ROWS FIRST      what is stored anyway is left for kernels over its rows, before a reduction over its columns
    WITH ITS ROWS   on a GPU, what is made of rows' sums, a number a row, is left for the kernel that sums up rows, before one
                    that folds all rows, and has few programs
    NO CYCLE        nothing in between needs the one and feeds the other
    NO POINTS       a kernel over no elements is left as it is
    MATMULS STAY    a factor of a matmul is in memory: it would be computed again for each row or column
    VIEW WITHOUT MAP          it is known which elements a view in between shows
    GATHERED                  the consumer does not read at indices from data: how often an element is read is not known
    EVERY INDEX IS CHECKED    an index from data that eager checks is checked once for each element, masked or not
    LIMITS          at most `max_ops` scalar ops, and `max_reads` tensors read
    PLAN            a fusion plan forbids it; REWRITES: `--rewrites` does
    RECOMPUTE       a trivial expression is computed by each user, where storing it would move more bytes
    """

    name = "fuse-elementwise"
    takes = "kernel"
    max_ops: int = 64
    max_reads: int = 24

    def run(self, function: Any, ledger: Ledger) -> None:
        fuser = Fuser(function, ledger, self.name, Limits(self.max_ops, self.max_reads))
        fuser.run(lambda producer, consumer: not producer.body.inner, recompute=True, rows_first=True)
