"""Failure sites of a host program as data: calls that can fail."""

from dataclasses import dataclass

FAILURES = "failures"  # the name of the link to the fields in which checks of kernels on GPUs note what failed
# of a launch: number of the check that failed (from 1; 0: none), the bad index, the size that it was for
FAILURE_FIELDS = 3


@dataclass(frozen=True)
class FailureSite:
    """A call that can fail: the op, the user's source line, and, for a kernel's check_index, the message."""

    op: str
    location: str
    message: str = ""
