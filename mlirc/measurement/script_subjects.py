"""Calls of a script as subjects: with their backward where gradients are on, from the state that the script left."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from mlirc.frontend.explain.untouched import reachable, untouched
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.measurement.error import CallResults, EverythingInFloat64
from mlirc.measurement.script_calls import ScriptCall
from mlirc.measurement.subjects import FunctionSubject


def script_subject(call: ScriptCall) -> FunctionSubject:
    args, kwargs = call.fresh()
    state = list(reachable(call.function, call.args, call.kwargs))
    modules = [x for x in state if isinstance(x, torch.nn.Module)]
    parameters = [p for m in modules for p in m.parameters()] + [x for x in state if isinstance(x, torch.Tensor)]
    parameters = list({id(p): p for p in parameters}.values())
    on_gpu = any(x.is_cuda for x in (*parameters, *leaves_of((args, kwargs))))

    def step(function: Callable) -> Callable[[], Any]:
        wanted = [x for x in (*parameters, *leaves_of((args, kwargs))) if x.requires_grad and x.is_leaf]
        seeds: list[torch.Tensor] = []
        return lambda: once(function, args, kwargs, wanted, call.grad, seeds)

    def results(function: Callable) -> CallResults:
        return taken(function, *call.fresh(), lambda x: x)

    def reference() -> CallResults | None:
        try:
            with doubled(modules, parameters), EverythingInFloat64():
                return taken(call.function, *call.fresh(doubled_tensor), doubled_tensor)
        except Exception:  # of any kind: an operator that does not take float64, a class of the user's
            return None

    def taken(function: Callable, args: tuple, kwargs: dict[str, Any], convert: Any) -> CallResults:
        with untouched(call.function, args, kwargs):
            torch.manual_seed(0)
            wanted = [x for x in (*parameters, *leaves_of((args, kwargs))) if x.requires_grad and x.is_leaf]
            outputs, gradients = once(function, args, kwargs, wanted, call.grad, [])
            return CallResults([copy(x) for x in outputs], [copy(x) for x in gradients if x is not None])

    return FunctionSubject(call.name, call.function, step, results, reference, call.arguments, on_gpu)


def once(
    function: Callable,
    args: tuple,
    kwargs: dict[str, Any],
    wanted: list[torch.Tensor],
    grad: bool,
    seeds: list[torch.Tensor],
) -> tuple[list[torch.Tensor], Any]:
    """The tensors that a call gives, and the gradients of a weighted sum of them. `seeds` keeps the weights for the next call."""
    with torch.set_grad_enabled(grad):
        outputs = leaves_of(function(*args, **kwargs))
    sources = [x for x in outputs if x.requires_grad and x.grad_fn is not None]
    if not sources or not wanted:
        return outputs, ()
    if not seeds:  # not ones: the sum of a softmax has no gradient
        seeds += [torch.linspace(0.5, 1.5, x.numel(), device=x.device).reshape(x.shape).to(x.dtype) for x in sources]
    return outputs, torch.autograd.grad(sources, wanted, seeds, allow_unused=True)


def leaves_of(tree: Any) -> list[torch.Tensor]:
    """Tensors in lists, tuples and dicts, and in the fields of a result class such as transformers'."""
    return [x for x in tree_leaves(tree) if isinstance(x, torch.Tensor)]


def copy(x: torch.Tensor) -> torch.Tensor:
    return x.detach().clone()


def doubled_tensor(x: torch.Tensor) -> torch.Tensor:
    return x.double() if x.is_floating_point() else x


@contextmanager
def doubled(modules: list[torch.nn.Module], tensors: list[torch.Tensor]) -> Iterator[None]:
    """Parameters, buffers and tensors that a function closes over are in float64 within."""
    buffers = [x for m in modules for x in m.buffers()]
    held = [(x, x.data) for x in (*tensors, *buffers) if x.is_floating_point()]
    for x, data in held:
        x.data = data.double()
    try:
        yield
    finally:
        for x, data in held:
            x.data = data
