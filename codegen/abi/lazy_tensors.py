"""Tensors whose values are not in their memory: conjugated and negated views and zeros without memory, which `is_lazy` tells; and batches of
autograd's `is_grads_batched`, which `is_batched` tells."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach


def is_lazy(x: torch.Tensor) -> bool:
    return x.is_neg() or x.is_conj() or is_zero(x)


def is_zero(x: torch.Tensor) -> bool:
    """Whether it is a tensor of zeros without memory, as autograd makes for the derivative of a constant function."""
    test = zero_test()
    return x.data_ptr() == 0 and x.numel() > 0 if test is None else test(x)


def is_traced_zero(fake: torch.Tensor) -> bool:
    """is_zero of a fake tensor, which has no address to look at."""
    test = zero_test()
    return test is not None and test(fake)


def is_batched(x: Any) -> bool:
    """Whether it is a tensor that stands for several, in the way of autograd's `is_grads_batched`."""
    ask = batch_test()
    return ask is not None and isinstance(x, torch.Tensor) and ask(x)


def in_memory(x: torch.Tensor) -> torch.Tensor:
    """A tensor with the same values, all of them in memory."""
    if is_zero(x):
        return torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=x.device).zero_()
    return x.resolve_conj().resolve_neg()


def zeros_without_memory(x: torch.Tensor) -> torch.Tensor:
    """Zeros without memory, laid out as `x` is: eager's next operator gives such a gradient other strides than one in memory."""
    elements = (
        1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    )
    made = torch._efficientzerotensor(elements, dtype=x.dtype, device=x.device)  # pyright: ignore[reportPrivateImportUsage]
    return made.as_strided(x.shape, x.stride())


# apart: each looks at real tensors, on a thread of its own, whatever mode the caller is in (reach.py)
@reach("zero-tensors", instead="a tensor's address is asked", apart=True)
def zero_test() -> Callable[[torch.Tensor], bool]:
    """PyTorch's own test, Tensor._is_zerotensor."""
    ask = torch.Tensor._is_zerotensor  # pyright: ignore[reportAttributeAccessIssue]
    if ask(torch.zeros(2)) or not ask(torch._efficientzerotensor(2)):  # pyright: ignore[reportPrivateImportUsage]
        raise Missing("it is answered in another way")
    return ask


@reach("batched-gradients", instead="a backward pass with is_grads_batched raises", apart=True)
def batch_test() -> Callable[[torch.Tensor], bool]:
    """PyTorch's own test, is_legacy_batchedtensor. Autograd's batches are other tensors than those of torch.func.vmap."""
    ask = torch._C._functorch.is_legacy_batchedtensor  # pyright: ignore[reportAttributeAccessIssue]
    x = torch.zeros(2, requires_grad=True)
    asked: list[bool] = []
    # The caller may be in inference mode. Autograd gets `y` as both ends, so that it runs no node: anomaly mode would look at one.
    with torch.inference_mode(False), torch.enable_grad():
        y = x * 1
        y.register_hook(lambda gradient: asked.append(ask(gradient)))
        torch.autograd.grad(y, y, torch.ones(3, 2), is_grads_batched=True)
    if ask(x) or asked != [True]:
        raise Missing("it is answered in another way")
    return ask
