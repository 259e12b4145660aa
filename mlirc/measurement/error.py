"""The error measure: relative L2 distance from eager in float64, of the outputs and of all gradients as a vector each.

A compiled model is accurate enough when its error is at most LIMIT times that of eager in the same dtype.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.utils._python_dispatch import TorchDispatchMode

LIMIT = 2.0
# Where eager happens to be exact, no error at all would be allowed: a few roundings of the dtype are.
FLOOR = {torch.float32: 1e-7, torch.bfloat16: 1e-3}
PART = 1 << 26  # elements that are compared at a time: the logits of GPT-2 are 400 million


@dataclass(frozen=True)
class CallResults:
    """What one call gave: the outputs, and after a training step the gradient of every parameter."""

    outputs: list[torch.Tensor]
    gradients: list[torch.Tensor]


@dataclass(frozen=True)
class RelativeError:
    """Relative L2 errors; `gradients` is 0 in inference."""

    outputs: float
    gradients: float

    def within(self, eager: "RelativeError", dtype: torch.dtype) -> bool:
        floor = FLOOR[dtype]
        outputs = self.outputs <= LIMIT * eager.outputs + floor
        return outputs and self.gradients <= LIMIT * eager.gradients + floor


class EverythingInFloat64(TorchDispatchMode):
    """Turns each request for float32 into one for float64: some models compute a norm or a softmax in float32."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if kwargs.get("dtype") == torch.float32:
            kwargs["dtype"] = torch.float64
        return func(*args, **kwargs)


def error_of(step: CallResults, reference: CallResults) -> RelativeError:
    return RelativeError(
        relative_distance(step.outputs, reference.outputs), relative_distance(step.gradients, reference.gradients)
    )


def relative_distance(actual: Sequence[torch.Tensor], reference: Sequence[torch.Tensor]) -> float:
    """|actual - reference| / |reference| over all elements of all tensors. NaN and infinities that the reference has, too, are no error and
    have no size; any other NaN makes it NaN, and any other infinity infinite or NaN."""
    sums = [
        _difference_and_size(x, y)
        for a, r in zip(actual, reference, strict=True)
        for x, y in zip(a.flatten().split(PART), r.flatten().split(PART), strict=True)
    ]
    if not sums:
        return 0.0
    difference, size = (torch.stack(column).sum().sqrt().item() for column in zip(*sums, strict=True))
    return difference / size if size else difference


def _difference_and_size(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The sums of squares of a difference, and of the reference y."""
    same = (x == y) | (x.isnan() & y.isnan())
    difference, size = (x.double() - y).square(), y.double().square()
    return difference.masked_fill_(same, 0.0).sum(), size.masked_fill_(~y.isfinite(), 0.0).sum()
