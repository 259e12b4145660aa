"""Maps the results of a program to those of its graph: see Imported.outputs, and result_views.py for those that share memory."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.abi.lazy_tensors import zeros_without_memory
from mlirc.frontend.torch_compat.fake_tensors import storage_id

Outputs = Sequence[tuple[str, Any]]
# The dtype, sizes, strides and storage offset of a tensor. A size is a number, the place of a result and of the dimension in which
# it has this size, or None, at most once, for what the memory leaves; without strides it is row major.
Layout = tuple[str, list, list | None, int]
READ: dict[str, Callable[[Any], Any]] = {
    "result": lambda x: x,
    "item": lambda x: x.item(),
    "truth": lambda x: bool(x.item()),
    "zeros": zeros_without_memory,
    "alias": torch.ops.aten.alias.default,  # a tensor object of its own
}

OBJECTS = ("view", "detach", "lazy", "zeros", "alias", "own")
"""The kinds of results that are made as new tensor objects."""


def reader(outputs: Outputs) -> Callable[[list], list] | None:
    """What makes the graph's results of the program's; None where they are the same."""
    if all(output == ("result", k) for k, output in enumerate(outputs)):
        return None
    read, again = reader_of_each(outputs), repeated(outputs)
    if not again:
        return read

    def read_once(given: list) -> list:
        results = read(given)
        for place, first in again.items():
            results[place] = results[first]
        return results

    return read_once


def repeated(outputs: Outputs) -> dict[int, int]:
    """The places of results that are returned twice, which are one object, and where each of them stands first."""
    first: dict[str, int] = {}
    places = {k: first.setdefault(repr(x), k) for k, x in enumerate(outputs) if x[0] in OBJECTS}
    return {place: k for place, k in places.items() if place != k}


def reader_of_each(outputs: Outputs) -> Callable[[list], list]:
    """reader() of outputs each of which is made by itself."""
    if any(kind == "lazy" for kind, _ in outputs):
        return flagged(outputs)
    if all(kind in ("result", "value") for kind, _ in outputs):
        return lambda given: [given[x] if kind == "result" else x for kind, x in outputs]
    if not any(kind in ("view", "detach", "own") for kind, _ in outputs):
        return lambda given: [READ[kind](given[x]) if kind in READ else x for kind, x in outputs]

    hidden: dict[int, Layout | None] = {x[1]: x[2] for kind, x in outputs if kind in ("view", "detach") and len(x) > 2}
    own = {x for kind, x in outputs if kind == "own"}

    def read(given: list) -> list:
        bases = {k: laid_out(given[k], layout, given) for k, layout in hidden.items()}
        bases |= {k: no_view(given[k]) for k in own}
        results = []
        for kind, x in outputs:
            if kind in ("view", "detach"):
                results.append(view(given[x[0]], bases[x[1]] if x[1] in bases else given[x[1]], kind))
            elif kind == "own":
                results.append(bases[x])
            else:
                results.append(READ[kind](given[x]) if kind in READ else x)
        return results

    return read


def flagged(outputs: Outputs) -> Callable[[list], list]:
    """reader() of outputs some of which are ("lazy", [kind, what, conjugated, negated, detached]): in memory is another value (lazy_results.py)."""
    read = reader([tuple(x[:2]) if kind == "lazy" else (kind, x) for kind, x in outputs])
    flags = [(k, *x[2:]) for k, (kind, x) in enumerate(outputs) if kind == "lazy"]

    def with_flags(given: list) -> list:
        results = list(given) if read is None else read(given)
        for k, conjugated, negated, detached in flags:
            x = results[k].conj() if conjugated else results[k]
            x = torch.ops.aten._neg_view.default(x) if negated else x
            results[k] = x.detach() if detached else x
        return results

    return with_flags


def no_view(x: torch.Tensor) -> torch.Tensor:
    """A tensor like `x` that is a view of no other, though an operator made `x` as one."""
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(
        x.untyped_storage(), x.storage_offset(), x.shape, x.stride()
    )


def laid_out(x: torch.Tensor, layout: Layout | None, results: list) -> torch.Tensor:
    """The memory that `x` lies in, as a tensor of this layout; one dimension of all of it where the layout is not known or has no room."""
    memory = x.untyped_storage()
    if layout is not None:
        name, told, strides, offset = layout
        dtype: torch.dtype = getattr(torch, name)
        sizes = [results[n[0]].shape[n[1]] if isinstance(n, list) else n for n in told]
        if None in sizes:
            others = math.prod(n for n in sizes if n is not None) * dtype.itemsize
            sizes[sizes.index(None)] = memory.nbytes() // others if others else 0
        strides = row_major(sizes) if strides is None else strides
        last = sum((n - 1) * step for n, step in zip(sizes, strides, strict=True))
        if 0 in sizes or (offset + last + 1) * dtype.itemsize <= memory.nbytes():
            return torch.empty(0, dtype=dtype, device=x.device).set_(memory, offset, sizes, strides)
    return torch.empty(0, dtype=x.dtype, device=x.device).set_(memory)


def row_major(sizes: Sequence[int]) -> list[int]:
    return [math.prod(max(n, 1) for n in sizes[d + 1 :]) for d in range(len(sizes))]


def view(x: torch.Tensor, base: torch.Tensor, kind: str) -> torch.Tensor:
    """`x`, which lies in the memory of `base`, as a view of that."""
    if x is not base and storage_id(x) != storage_id(base):
        return x
    if x.is_conj() != base.is_conj() or x.is_neg() != base.is_neg():
        return x
    try:
        if x.is_complex() and base.dtype == x.dtype.to_real():  # AOTAutograd repeats no view by dtype
            pairs = base.as_strided((*x.shape, 2), [*(2 * n for n in x.stride()), 1], 2 * x.storage_offset())
            made = torch.view_as_complex(pairs)
            return made.detach() if kind == "detach" else made
        if base.is_complex() and x.dtype == base.real.dtype:
            typed = torch.view_as_real(base)
        else:
            typed = base if x.dtype == base.dtype else base.view(x.dtype)
    except RuntimeError:  # strides that do not fit the elements
        return x
    made = typed.as_strided(x.shape, x.stride(), x.storage_offset())
    return made.detach() if kind == "detach" else made
