"""The ledger: decisions of passes with their reasons, as data."""

from dataclasses import field
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.source_lines import source_line
from mlirc.lowering.pipeline.fusion_log import FusionLog
from mlirc.lowering.pipeline.ledger_entry import LedgerEntry
from mlirc.lowering.pipeline.rewrites import Rewrites, Subject, text_of


@dataclass
class Ledger:
    """What passes decided. `rewrites` numbers what they rewrite, and may refuse it; without it all is allowed.
    `fusion` has a record of each pair that a fusion pass looks at, where somebody asked for them.

    left, given   by function, what a pass knows of it that the next one may use, and that of the pass just before: the graph that a fusion
                  pass has made of it and written back, or which of its kernels are alike
    """

    entries: list[LedgerEntry] = field(default_factory=list)
    rewrites: Rewrites | None = None
    fusion: FusionLog | None = None
    left: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)
    given: dict[Any, Any] = field(default_factory=dict, repr=False, compare=False)

    def between_passes(self) -> None:
        """What a pass has left is given to the next one, and to none behind that: each changes the module."""
        for known in self.given.values():
            known.release()
        self.given, self.left = self.left, {}

    def forget(self) -> None:
        """At the end of a pipeline: who comes next may have changed the module."""
        self.between_passes()
        self.between_passes()

    def allows(self, pass_name: str, subject: Subject) -> bool:
        """Whether a pass may do its next rewrite. `subject` is the op, a text for it, or a function that gives the text. Asked once for each
        rewrite, just before it (rewrites.py)."""
        if self.rewrites is None or self.rewrites.allows(pass_name, subject):
            return True
        self.record(pass_name, "rewrite", text_of(subject), "REWRITES", False)
        return False

    def record(
        self, pass_name: str, action: str, subject: str, rule: str, taken: bool, location: Any = "", **numbers: Any
    ) -> None:
        """`location` is the op that it is about, which is not erased yet, or a source line."""
        line = location if isinstance(location, str) else source_line(location.location)
        self.entries.append(LedgerEntry(pass_name, action, subject, rule, taken, numbers, line))
