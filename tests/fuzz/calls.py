"""Ways to call a function and to use what it returns, for the texts of random programs."""

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves


def total(results: Any) -> torch.Tensor:
    """A number that every differentiable result has a share in, with a weight of its own for each element."""
    summands = [torch.zeros((), requires_grad=True)]
    for x in tree_leaves(results):
        if isinstance(x, torch.Tensor) and x.requires_grad:
            weights = torch.linspace(-1, 2, x.numel(), device=x.device).reshape(x.shape)
            product = x * weights.to(x.dtype)
            summands.append((product.real if x.is_complex() else product).sum().float().cpu())
    return torch.stack([s.reshape(()) for s in summands]).sum()


def gradients(results: Any, tensors: list[torch.Tensor], create_graph: bool = False) -> list[torch.Tensor | None]:
    return list(torch.autograd.grad(total(results), tensors, create_graph=create_graph, allow_unused=True))


def in_thread(function: Callable, *args: Any) -> Any:
    """What the call gives, or raises, in a thread of its own; under a mode (noise.py), which is a thread's, in this one."""
    if _get_current_dispatch_mode() is not None:
        return function(*args)
    outcome: list[Any] = []
    grad = torch.is_grad_enabled()

    def run() -> None:
        try:
            with torch.set_grad_enabled(grad):
                outcome.append((function(*args), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result
