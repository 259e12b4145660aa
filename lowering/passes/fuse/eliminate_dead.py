"""eliminate-dead: removes kernels and ATen calls without effects whose results nobody reads."""

from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.pipeline.ledger import Ledger

REMOVABLE = ("mlircx.kernel", "mlircx.aten")


@dataclass(frozen=True)
class EliminateDead:
    """Remove kernels and effect-free ATen calls whose results nobody reads.

    before:  %0 = "mlircx.kernel"(%x) ({...}) : ...        (no use of %0)
    after:   (nothing)

    Upstream's dead code elimination does not see these ops: they are unregistered (dialect.Mlircx says why).
    """

    name = "eliminate-dead"
    takes = "graph"  # the widest form: it may hold kernels

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in reversed(list(function.regions[0].blocks[0].operations)):
            if op.operation.name in REMOVABLE and all(next(iter(r.uses), None) is None for r in op.operation.results):
                if not ledger.allows(self.name, op):
                    continue
                op.operation.erase()
