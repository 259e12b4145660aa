"""Tests whether two tensors share memory."""

from collections.abc import Callable

import torch

from mlirc.codegen.abi.reach import Missing, reach


def is_alias(x: torch.Tensor, y: torch.Tensor) -> bool:
    ask = alias_of()
    return _same_memory(x, y) if ask is None else ask(x, y)


@reach("alias-of", instead="addresses are compared", apart=True)
def alias_of() -> Callable[[torch.Tensor, torch.Tensor], bool]:
    """PyTorch's question whether two tensors have the same storage."""
    from torch._C import _is_alias_of  # pyright: ignore[reportAttributeAccessIssue]

    x = torch.zeros(4)
    if not _is_alias_of(x, x[2:]) or _is_alias_of(x, x.clone()):
        raise Missing("it is answered in another way")
    return _is_alias_of


def _same_memory(x: torch.Tensor, y: torch.Tensor) -> bool:
    """True, too, for a tensor that does not tell where it lies."""
    try:
        return x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    except (NotImplementedError, RuntimeError):
        return True
