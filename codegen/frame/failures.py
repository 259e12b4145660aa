"""The calls of a host program that can fail, as data, and the record in which a kernel on a GPU reports a failed check."""

from mlirc.dialects.lazy_dataclass import dataclass

FAILURES = "failures"  # the name of the linked address at which the records of all launches lie, one after another
# int64 fields of a launch's record: the number of the check that failed (from 1; 0 for none), the bad index, the size of its dimension
FAILURE_FIELDS = 3


@dataclass(frozen=True)
class FailureSite:
    """A call that can fail: the op, the user's source line, and, for a kernel's check_index, the message."""

    op: str
    location: str
    message: str = ""
