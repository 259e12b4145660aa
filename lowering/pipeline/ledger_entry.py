"""One decision of a pass, as data: what the disk cache keeps of a ledger, without loading MLIR."""

from dataclasses import field
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass


@dataclass
class LedgerEntry:
    """One decision: `action` on `subject` by `rule` ("ONE SPACE"), taken or not, with numbers such as bytes saved."""

    pass_name: str
    action: str
    subject: str
    rule: str
    taken: bool
    numbers: dict[str, Any] = field(default_factory=dict)
    location: str = ""
