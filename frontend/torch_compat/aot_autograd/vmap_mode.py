"""Leaves the mode that a backward pass with `is_grads_batched` runs in: there PyTorch refuses to draw random numbers."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from mlirc.codegen.abi.reach import Missing, reach


@contextmanager
def outside_vmap() -> Iterator[None]:
    """Around what is no part of a batch; nothing where `nesting` is missing."""
    found = nesting()
    if found is None:
        yield
        return
    enter, leave = found
    levels = enter()
    for _ in range(levels):
        leave()
    try:
        yield
    finally:
        for _ in range(levels - 1):
            enter()


@reach("vmap-nesting", instead="batched gradients of a graph that draws random numbers are those of its backward graph")
def nesting() -> tuple[Callable[[], int], Callable[[], int]]:
    """PyTorch's own, of this thread: one enters a level, one leaves it, and both give the level."""
    enter, leave = torch._C._vmapmode_increment_nesting, torch._C._vmapmode_decrement_nesting  # pyright: ignore[reportAttributeAccessIssue]
    if enter() - leave() != 1:
        raise Missing("they count in another way")
    return enter, leave
