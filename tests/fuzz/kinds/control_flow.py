"""Branches and loops whose bodies are functions: torch.cond, while_loop, scan, map, associative_scan.

`in_python` makes them branches and loops of Python, so that a dispatch mode sees each operator of the functions.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map

from tests.fuzz.writer import Writer, filled, is_float, is_real, kind, rank

OPS = "torch._higher_order_ops"
SAME = (  # of the shape and dtype of {z}; {y} is such a tensor, too
    "{z}.sin()",
    "{z}.relu() * 2",
    "-{z}",
    "{z}.flip(0)",
    "{z}.softmax(-1)",
    "{z} * {z}.mean()",
    "({z} * 0.5).cumsum(0)",
    "torch.where({z} > 0, {z}, {y})",
    "{z} + {y}",
    "{z} * {y} - 1",
    "{z}.clone()",
    "{z}.abs().sqrt()",
    "{z}.t().contiguous().t()",
    "{z}.contiguous() + {y}[:1]",
    "torch.maximum({z}, {y})",
)


def body(w: Writer, *names: str) -> str:
    """One to three of SAME, one within the other."""
    text = w.choice(*names)
    for _ in range(w.rng.randint(1, 3)):
        text = w.choice(*SAME).format(z=f"({text})", y=w.choice(*names))
    return text


def predicate(w: Writer, x: str) -> str:
    return w.choice(
        f"{x}.sum() > 0", f"({x} > 1).any()", f"{x}.sum() <= 0", f"{w.integer()} > 1", f"({x} == {x}).all()"
    )


@kind(0.15)
def branches(w: Writer) -> None:
    x, name = w.tensor(is_float, rank(1), filled), w.fresh()
    other = w.tensor(is_real, filled)
    first, second = body(w, "p", "q"), body(w, "p", "q")
    if w.chance(0.3):
        first, second = f"({first}, {body(w, 'q')})", f"({second}, {body(w, 'p')})"
    w.do(
        f"{name} = torch.cond({predicate(w, other)}, lambda p, q: {first}, lambda p, q: {second}, ({x}, {x} * 2))",
        (name,),
    )


@kind(0.15)
def loops(w: Writer) -> None:
    """The number of turns is known, zero, or depends on what is carried; two carried values may change places."""
    x, name = w.tensor(is_float, rank(1), filled), w.fresh()
    turns = w.choice("i < 3", "i < 0", f"i < {w.size(0, 5)}", "(i < 6) & (p.sum() > 0)")
    first, second = w.choice((body(w, "p", "q"), body(w, "p", "q")), ("q.clone()", "p.clone()"))
    start = "torch.zeros((), dtype=torch.int64)"
    w.do(
        f"{name} = {OPS}.while_loop(lambda i, p, q: {turns}, lambda i, p, q: (i + 1, {first}, {second}), ({start}, {x}, {x} + 1))",
        (name,),
    )


@kind(0.15)
def scans(w: Writer) -> None:
    x, name = w.tensor(is_float, rank(2), filled), w.fresh()
    d = w.dim(x)
    step = f"lambda c, z: ({body(w, 'c', 'z')}, {body(w, 'c', 'z')})"
    of = f"{x}, dim={d}"
    w.do(
        w.choice(
            f"{name} = {OPS}.scan({step}, {x}.select({d}, 0) * 2, {of}, reverse={w.chance(0.3)})",
            f"{name} = {OPS}.map(lambda z: {body(w, 'z')}, {x})",
            f"{name} = {OPS}.map(lambda z, y: {body(w, 'z', 'y')}, {x}, {x}[0] + 1)",
            f"{name} = {OPS}.associative_scan(lambda p, q: {w.choice('p + q', 'p * q', 'torch.maximum(p, q)')}, {x}, {d}, combine_mode='generic')",
        ),
        (name,),
    )


def copied(results: Any) -> Any:
    """The operators' results are none of the tensors that their functions keep for the gradient: a program may write to them."""
    return tree_map(torch.clone, results)


def cond(predicate: Any, true: Callable, false: Callable, operands: Sequence[Any]) -> Any:
    return copied((true if predicate else false)(*operands))


def while_loop(goes_on: Callable, body: Callable, carried: Sequence[Any]) -> Any:
    while goes_on(*carried):
        carried = body(*carried)
    return copied(tuple(carried))


def scan(step: Callable, init: Any, xs: torch.Tensor, *, dim: int = 0, reverse: bool = False) -> Any:
    carried, rows = init, []
    for x in reversed(xs.unbind(dim)) if reverse else xs.unbind(dim):
        carried, row = step(carried, x)
        rows.append(row)
    with torch.autocast(
        xs.device.type, enabled=False
    ):  # the operator stacks nothing; autocast refuses float16 beside its own half type
        return copied(carried), torch.stack(rows[::-1] if reverse else rows)


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
