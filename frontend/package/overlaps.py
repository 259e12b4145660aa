"""Whether the tensors of a call lie apart in memory, where a model writes to one: it was compiled for tensors that do."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.frontend.package.signature import Argument, ArgumentError, TensorArgument


def check_apart(
    arguments: Sequence[Argument], given: Sequence[Any], weights: Sequence[tuple[str, torch.Tensor]]
) -> None:
    """Raises ArgumentError where a tensor that is written to shares memory with another one."""
    spans = [
        (*span(x), a.name, a.written) for a, x in zip(arguments, given, strict=True) if isinstance(a, TensorArgument)
    ]
    spans += [(*span(x), name, True) for name, x in weights]
    reaching: list[tuple[int, int, str, bool]] = []
    for one in sorted(x for x in spans if x[1] > x[0]):
        reaching = [other for other in reaching if other[1] > one[0]]
        for other in reaching:
            if one[3] or other[3]:
                raise ArgumentError(f"'{one[2]}' and '{other[2]}' share memory, and the model writes to it")
        reaching.append(one)


def span(x: torch.Tensor) -> tuple[int, int]:
    """Addresses of a tensor's first byte and of the one behind its last."""
    if not x.numel():
        return 0, 0
    last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()
