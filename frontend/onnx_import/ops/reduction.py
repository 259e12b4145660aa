"""Reductions, running sums, softmax."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import Value, axes_or_all, number, numbers, positive, tensor

REDUCTIONS: dict[str, Callable[[torch.Tensor, list[int], bool], torch.Tensor]] = {
    "ReduceL1": lambda x, axes, keep: x.abs().sum(axes, keep, dtype=x.dtype),
    "ReduceL2": lambda x, axes, keep: (x * x).sum(axes, keep, dtype=x.dtype).sqrt().to(x.dtype),
    "ReduceLogSum": lambda x, axes, keep: x.sum(axes, keep).log(),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keep),
    "ReduceMean": lambda x, axes, keep: x.mean(axes, keep),
    "ReduceSum": lambda x, axes, keep: x.sum(axes, keep, dtype=x.dtype),
    "ReduceSumSquare": lambda x, axes, keep: (x * x).sum(axes, keep, dtype=x.dtype),
    "ReduceMax": lambda x, axes, keep: _extreme(x, axes, keep, torch.amax, -1),
    "ReduceMin": lambda x, axes, keep: _extreme(x, axes, keep, torch.amin, 1),
    "ReduceProd": lambda x, axes, keep: _prod(x, axes, keep),
}


def _extreme(x: torch.Tensor, axes: list[int], keep: bool, function: Callable[..., torch.Tensor], sign: int) -> Any:
    """The largest or smallest element; of no elements, the dtype's smallest or largest number."""
    if any(isinstance(x.shape[a], int) and x.shape[a] == 0 for a in axes):
        shape = [1 if k in axes else n for k, n in enumerate(x.shape) if keep or k not in axes]
        if x.dtype.is_floating_point:
            return torch.full(shape, sign * float("inf"), dtype=x.dtype)
        if x.dtype is torch.bool:
            return torch.full(shape, sign > 0, dtype=x.dtype)
        limits = torch.iinfo(x.dtype)
        return torch.full(shape, limits.max if sign > 0 else limits.min, dtype=x.dtype)
    return function(x, axes, keep)


def _prod(x: torch.Tensor, axes: list[int], keep: bool) -> torch.Tensor:
    for a in sorted(axes, reverse=True):
        x = x.prod(a, keep, dtype=x.dtype)
    return x


def _enter(name: str, function: Callable[[torch.Tensor, list[int], bool], torch.Tensor]) -> None:
    @op(name, raw=True)
    def run(node: OnnxNode, data: Value, axes: Value = None) -> Any:
        x = tensor(data)
        chosen = numbers(axes, "axes") if axes is not None else node.get("axes")
        if not chosen:
            if node.get("noop_with_empty_axes", 0):
                return _of_one(name, x)
            chosen = None
        along = axes_or_all(chosen, x.dim())
        return function(x, along, bool(node.get("keepdims", 1))) if along else function(x.reshape(1), [0], False)


def _of_one(name: str, x: torch.Tensor) -> torch.Tensor:
    """No axes: each element is a reduction of itself."""
    return REDUCTIONS[name](x.unsqueeze(-1), [x.dim()], False)


for _name, _function in REDUCTIONS.items():
    _enter(_name, _function)


@op("CumSum", "CumProd", raw=True)
def running(node: OnnxNode, data: Value, axis: Value) -> torch.Tensor:
    x = tensor(data)
    along = positive(number(axis, "axis"), x.dim())
    reverse = bool(node.get("reverse", 0))
    x = x.flip(along) if reverse else x
    if node.get("exclusive", 0):
        start = torch.full_like(x.narrow(along, 0, 1), 0 if node.op == "CumSum" else 1)
        x = torch.cat([start, x.narrow(along, 0, x.shape[along] - 1)], along)
    run = torch.cumsum if node.op == "CumSum" else torch.cumprod
    found = run(x, along, dtype=x.dtype)
    return found.flip(along) if reverse else found


@op("Softmax")
def softmax(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return torch.softmax(x, node.get("axis", -1))


@op("LogSoftmax")
def log_softmax(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return torch.log_softmax(x, node.get("axis", -1))


@op("Hardmax")
def hardmax(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    """1 at the first of the greatest elements along the axis, 0 elsewhere."""
    axis = positive(node.get("axis", -1), x.dim())
    steps = torch.arange(x.shape[axis]).reshape([-1 if k == axis else 1 for k in range(x.dim())])
    return (torch.argmax(x, axis, keepdim=True) == steps).to(x.dtype)
