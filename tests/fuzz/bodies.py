"""Operators that take functions as branches and loops of Python, so that a dispatch mode sees each operator of the functions."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch


def cond(predicate: Any, true: Callable, false: Callable, operands: Sequence[Any]) -> Any:
    return (true if predicate else false)(*operands)


def while_loop(goes_on: Callable, body: Callable, carried: Sequence[Any]) -> Any:
    while goes_on(*carried):
        carried = body(*carried)
    return tuple(x.clone() for x in carried)


def scan(step: Callable, init: Any, xs: torch.Tensor, *, dim: int = 0, reverse: bool = False) -> Any:
    carried, rows = init, []
    for x in reversed(xs.unbind(dim)) if reverse else xs.unbind(dim):
        carried, row = step(carried, x)
        rows.append(row)
    return carried, torch.stack(rows[::-1] if reverse else rows)


def map_rows(function: Callable, xs: torch.Tensor, *arguments: Any) -> Any:
    return torch.stack([function(x, *arguments) for x in xs])


def associative_scan(join: Callable, xs: torch.Tensor, dim: int, combine_mode: str = "") -> Any:
    rows = list(xs.unbind(dim))
    for k in range(1, len(rows)):
        rows[k] = join(rows[k - 1], rows[k])
    return torch.stack(rows, dim)


@contextlib.contextmanager
def in_python() -> Iterator[None]:
    """Within, programs that are not compiled get these."""
    ops = torch._higher_order_ops
    with contextlib.ExitStack() as stack:
        for place, name, function in (
            (torch, "cond", cond),
            (ops, "while_loop", while_loop),
            (ops, "scan", scan),
            (ops, "map", map_rows),
            (ops, "associative_scan", associative_scan),
        ):
            stack.enter_context(mock.patch.object(place, name, function))
        yield
