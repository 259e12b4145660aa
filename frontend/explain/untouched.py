"""Calls a function and undoes its effects."""

import copy
import functools
import random
import types
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch

PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
FOLLOWED = (
    *(torch.nn.Module, torch.Tensor, torch.optim.Optimizer, list, tuple, dict),
    *(functools.partial, types.MethodType, types.FunctionType),
)


@contextmanager
def untouched(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Iterator[None]:
    """Restores at its exit what calls of `fn` within it have changed.

    Restored are random states (PyTorch's on CPU and GPUs, Python's, NumPy's), tensor arguments, parameters, buffers, gradients and
    optimizers. It finds them in `fn`, in the object that it is a method of, in arguments, closures, and the globals that it names.
    Not restored are Python attributes, files and the like. Needs memory for a copy of all that it restores.
    """
    objects = list(reachable(fn, args, kwargs))
    modules = [m for x in objects if isinstance(x, torch.nn.Module) for m in x.modules()]
    optimizers = [x for x in objects if isinstance(x, torch.optim.Optimizer)]
    members = [(m, dict(m._parameters), dict(m._buffers)) for m in modules if not isinstance(m, torch.jit.ScriptModule)]
    tensors = [x for x in objects if isinstance(x, torch.Tensor)]
    tensors += [x for m in modules for x in (*m._parameters.values(), *m._buffers.values()) if x is not None]
    tensors += [x for o in optimizers for group in o.param_groups for x in group["params"]]
    tensors = [x for x in {id(x): x for x in tensors}.values() if type(x) in PLAIN]
    saved = [(x, _copy(x), _grad(x), _copy(_grad(x))) for x in tensors]
    states = [(o, copy.deepcopy(o.state_dict())) for o in optimizers]
    rng = torch.get_rng_state(), random.getstate(), numpy.random.get_state()
    gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []
    try:
        yield
    finally:
        torch.set_rng_state(rng[0])
        random.setstate(rng[1])
        numpy.random.set_state(rng[2])
        if gpus:
            torch.cuda.set_rng_state_all(gpus)
        for module, parameters, buffers in members:
            module._parameters.update(parameters)
            module._buffers.update(buffers)
        for tensor, value, grad, grad_value in saved:
            _put_back(tensor, value)
            if _grad(tensor) is not grad:
                tensor.grad = grad
            _put_back(grad, grad_value)
        for optimizer, state in states:
            optimizer.load_state_dict(state)


def _grad(x: torch.Tensor) -> torch.Tensor | None:
    return x.grad if x.is_leaf or x.retains_grad else None  # PyTorch warns of any other


def _copy(x: torch.Tensor | None) -> torch.Tensor | None:
    return None if x is None or not _is_plain(x) else x.detach().clone()


def _is_plain(x: torch.Tensor) -> bool:
    return x.layout == torch.strided and x.device.type != "meta"


def _put_back(x: torch.Tensor | None, value: torch.Tensor | None) -> None:
    # Only where it differs: a write to a tensor that some other graph has saved would break that graph's backward.
    if x is not None and value is not None and not torch.equal(x, value):
        with torch.no_grad():
            x.copy_(value)


def reachable(fn: Callable, args: tuple, kwargs: dict[str, Any]) -> Iterator[Any]:
    """Modules, tensors and optimizers that a call can reach: see `untouched`."""
    seen: set[int] = set()
    pending: list[Any] = [fn, args, kwargs]
    while pending:
        x = pending.pop()
        if id(x) in seen:
            continue
        seen.add(id(x))
        if isinstance(x, torch.nn.Module | torch.Tensor | torch.optim.Optimizer):
            yield x
        pending += [y for y in _next(x) if isinstance(y, FOLLOWED)]


def _next(x: Any) -> Collection[Any]:
    """What an object refers to, as far as functions and what holds them go."""
    if isinstance(x, list | tuple):
        return x
    if isinstance(x, dict):
        return x.values()
    if isinstance(x, functools.partial):
        return [x.func, x.args, x.keywords]
    if isinstance(x, types.MethodType):
        return [x.__func__, x.__self__, getattr(x.__self__, "__dict__", {})]
    if isinstance(x, types.FunctionType):
        cells = [cell.cell_contents for cell in x.__closure__ or () if not _is_empty(cell)]
        named = [x.__globals__[name] for name in x.__code__.co_names if name in x.__globals__]
        # not into the functions of libraries
        return cells + [y for y in named if not isinstance(y, types.FunctionType) or y.__module__ == x.__module__]
    return ()


def _is_empty(cell: Any) -> bool:
    try:
        return cell.cell_contents is None
    except ValueError:  # a variable that has no value yet
        return True
