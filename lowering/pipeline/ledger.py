"""The ledger: decisions of passes with their reasons, as data."""

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class LedgerEntry:
    """One decision: `action` on `subject` by `rule` ("ONE SPACE"), taken or not, with numbers such as bytes saved."""

    pass_name: str
    action: str
    subject: str
    rule: str
    taken: bool
    numbers: dict[str, Any] = field(default_factory=dict)
    location: str = ""


@dataclass
class Ledger:
    entries: list[LedgerEntry] = field(default_factory=list)

    def record(
        self, pass_name: str, action: str, subject: str, rule: str, taken: bool, location: str = "", **numbers: Any
    ):
        self.entries.append(LedgerEntry(pass_name, action, subject, rule, taken, numbers, location))
