"""Refuses a call in which a tensor that the model writes to overlaps another one: the model was compiled for tensors that do not."""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.frontend.package.signature import Argument, ArgumentError, TensorArgument


def check_overlaps(
    arguments: Sequence[Argument], given: Sequence[Any], written_weights: Sequence[tuple[str, torch.Tensor]]
) -> None:
    """Raises ArgumentError if a tensor that the model writes to shares memory with another one: an argument of `given`, or a
    weight that it writes to."""
    spans = [
        (*span(x), a.name, a.written) for a, x in zip(arguments, given, strict=True) if isinstance(a, TensorArgument)
    ]
    spans += [(*span(x), name, True) for name, x in written_weights]
    open_spans: list[tuple[int, int, str, bool]] = []  # those that reach the start of the next one
    for start, end, name, written in sorted(x for x in spans if x[1] > x[0]):
        open_spans = [other for other in open_spans if other[1] > start]
        for _, _, other_name, other_written in open_spans:
            if written or other_written:
                raise ArgumentError(f"'{name}' and '{other_name}' share memory, and the model writes to it")
        open_spans.append((start, end, name, written))


def span(x: torch.Tensor) -> tuple[int, int]:
    """The address of a tensor's first byte, and the address after its last byte."""
    if not x.numel():
        return 0, 0
    last = sum((n - 1) * step for n, step in zip(x.shape, x.stride(), strict=True))
    return x.data_ptr(), x.data_ptr() + (last + 1) * x.element_size()
