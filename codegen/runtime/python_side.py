"""What Python has for a host program: a tuple, which the program gets as `self`, with a name for each position.

(HANDLE_ATTRIBUTE, RAISE_FAILURE, MATMUL_PLANS, CONVOLUTION_PLANS, ATen call 0, ATen call 1, ..., what has to live as long)
"""

from collections.abc import Callable, Sequence
from typing import Any

from mlirc.dialects.lazy_dataclass import dataclass

HANDLE_ATTRIBUTE, RAISE_FAILURE, MATMUL_PLANS, CONVOLUTION_PLANS, FIRST_ATEN_CALL = range(5)


@dataclass(frozen=True)
class PythonSide:
    """The objects and functions of Python that a host program uses.

    handle_attribute    the attribute of a tensor that is its native handle (abi/tensor_handle.py)
    raise_failure       (site, index, size) raises what a failure there means
    matmul_plans        (number, alignment, *sizes) makes the plan of a matmul of cuBLASLt's; None where there is none
    convolution_plans   (number) makes the plan of a convolution of cuDNN's; None where there is none
    aten_calls          ATen's operators that Python calls, in the program's order; each gives a tuple of results
    held                what has to live as long as the program may be called
    """

    handle_attribute: str
    raise_failure: Callable[[int, int, int], None]
    matmul_plans: Callable[..., Any] | None
    convolution_plans: Callable[..., Any] | None
    aten_calls: Sequence[Callable[..., tuple]]
    held: tuple[Any, ...]

    def as_tuple(self) -> tuple[Any, ...]:
        """The objects in the order of the positions above."""
        made_by_python = self.raise_failure, self.matmul_plans, self.convolution_plans, *self.aten_calls
        return (self.handle_attribute, *made_by_python, self.held)
