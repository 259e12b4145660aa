"""Ways to call a function and to use what it returns, for the texts of random programs."""

import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import cache
from typing import Any, NamedTuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils._python_dispatch import _get_current_dispatch_mode
from torch.utils._pytree import tree_leaves


class Pair(NamedTuple):
    """A structure that programs return."""

    first: Any
    second: Any


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


def of_some(results: Any, tensors: list[torch.Tensor], which: int) -> list[torch.Tensor | None]:
    """Gradients of some results, the others' are undefined: of the k-th where the k-th bit of `which` is set."""
    leaves = [x for x in tree_leaves(results) if isinstance(x, torch.Tensor) and x.requires_grad]
    return gradients([x for k, x in enumerate(leaves) if which >> k & 1], tensors)


def after_writes(results: Any, tensors: list[torch.Tensor], written: Any) -> list[torch.Tensor | None]:
    """Gradients before and after writes to results, their views, or inputs: the same, or autograd has seen that what it saved was
    written to, which is no matter of what values are."""
    sum_ = total(results)
    before = list(torch.autograd.grad(sum_, tensors, retain_graph=True, allow_unused=True))
    copies = [g if g is None else g.detach().clone() for g in before]
    for x in tree_leaves(written):
        if isinstance(x, torch.Tensor) and x.dtype != torch.bool and not x.is_inference():
            try:
                x.detach()[..., :1].add_(1)
            except (RuntimeError, IndexError):
                continue  # its elements share memory, or it has no dimension
    try:
        return [*copies, *torch.autograd.grad(sum_, tensors, allow_unused=True)]
    except RuntimeError as error:
        if not any(words in str(error) for words in ("modified by an inplace operation", "has been modified inplace")):
            raise
        return [*copies, *(g if g is None else g.clone() for g in copies)]


def batched(results: Any, tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Gradients for three gradients of the sum of results at once."""
    factors = torch.tensor([1.0, -2.0, 0.5])
    return list(torch.autograd.grad(total(results), tensors, factors, allow_unused=True, is_grads_batched=True))


def attempt(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """What the call gives, or the type of what it raises; a graph that is not compiled is no answer of the call."""
    try:
        return function(*args, **kwargs)
    except Exception as error:
        if not_compiled(error):
            raise
        return "raised", type_name(error)


def type_name(error: BaseException) -> str:
    """Of an exception: Dynamo wraps what a backend raises, and raises errors of fake tensors as its own RuntimeError."""
    name = type(getattr(error, "inner_exception", None) or error).__name__
    return {"TorchRuntimeError": "RuntimeError", "OutOfMemoryError": "RuntimeError"}.get(name, name)


def names_of(error: BaseException | None) -> list[str]:
    """The types of an exception and of those that it comes from."""
    names = []
    while error is not None:
        names += [type(error).__name__, type(getattr(error, "inner_exception", None)).__name__]
        error = error.__cause__ or error.__context__
    return names


def not_compiled(error: BaseException | None) -> bool:
    """Whether it says, under the option `fallback="error"`, that a graph would run in eager."""
    return "UnsupportedGraph" in names_of(error) or "its meta function promised" in str(error)


def in_thread(function: Callable, *args: Any, **kwargs: Any) -> Any:
    """What the call gives, or raises, in a thread of its own; under a mode (noise.py), which is a thread's, in this one.

    Inference mode and autocast are a thread's, too: they end here."""
    grad = torch.is_grad_enabled()
    if _get_current_dispatch_mode() is not None:
        without = (
            torch.autocast(device, enabled=False) for device in ("cpu", "cuda") if torch.is_autocast_enabled(device)
        )
        with ExitStack() as ended:
            for context in (torch.inference_mode(False), torch.set_grad_enabled(grad), *without):
                ended.enter_context(context)
            return function(*args, **kwargs)
    _outlive_threads()
    outcome: list[Any] = []

    def run() -> None:
        try:
            with torch.set_grad_enabled(grad):
                outcome.append((function(*args, **kwargs), None))
        except Exception as error:
            outcome.append((None, error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    result, error = outcome[0]
    if error is not None:
        raise error
    return result


@cache
def _outlive_threads() -> None:
    """Enters a fake tensor mode: torch 2.11 without a GPU keeps a device guard of the first thread that does, and reads it
    once that thread has ended, which crashes under every backend. What is left of it in 2.11: a first call of torch.compile in a
    thread ended one process in ten, in the collector, under the backends `eager` and `aot_eager` without mlirc, too. Where that compiles an
    optimizer, a cause is known (torch_compat/dynamo/stashed_objects.py)."""
    with FakeTensorMode():
        pass


def tie(module: torch.nn.Module, other: torch.nn.Module) -> None:
    """Gives a module the parameters of another of the same kind."""
    for a, b in zip(module.modules(), other.modules(), strict=True):
        for name, parameter in list(b.named_parameters(recurse=False)):
            setattr(a, name, parameter)
