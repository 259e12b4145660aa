"""Tests whether two tensors share memory."""

from collections.abc import Callable, Iterable

import torch

from mlirc.codegen.abi.reach import Missing, reach


def is_alias(x: torch.Tensor, y: torch.Tensor) -> bool:
    ask = alias_of()
    return _same_memory(x, y) if ask is None else ask(x, y)


def shares_with(tensors: Iterable[torch.Tensor]) -> Callable[[torch.Tensor], bool]:
    """A function that tells whether a tensor shares memory with one of these. It reads the address of each of these once, for many calls."""
    all_of_them, starts, others = list(tensors), set[int](), list[torch.Tensor]()
    for y in all_of_them:
        start = _start(y)
        if start is None:
            others.append(y)
        elif start:
            starts.add(start)

    def shares(x: torch.Tensor) -> bool:
        start = _start(x)
        return start in starts or any(is_alias(x, y) for y in (all_of_them if start is None else others))

    return shares


def _start(x: torch.Tensor) -> int | None:
    """The address of a tensor's storage, 0 where it has none yet; None for a tensor without an address."""
    try:
        return x.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return None


@reach("alias-of", instead="addresses are compared", apart=True)
def alias_of() -> Callable[[torch.Tensor, torch.Tensor], bool]:
    """PyTorch's function that tells whether two tensors have one storage."""
    from torch._C import _is_alias_of  # pyright: ignore[reportAttributeAccessIssue]

    x = torch.zeros(4)
    if not _is_alias_of(x, x[2:]) or _is_alias_of(x, x.clone()):
        raise Missing("it is answered in another way")
    return _is_alias_of


def _same_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether two tensors have one storage; True where one has no address."""
    starts = _start(x), _start(y)
    return None in starts or starts[0] == starts[1]
