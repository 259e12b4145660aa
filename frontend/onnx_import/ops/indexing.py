"""Operators that read or write at indices."""

from typing import Any

import torch

from mlirc.frontend.onnx_import.registry import OnnxNode, op
from mlirc.frontend.onnx_import.values import OnnxValueError, Value, number, positive, tensor


def _wrapped(indices: torch.Tensor, n: Any) -> torch.Tensor:
    """Indices, counted from the front."""
    indices = indices.to(torch.int64)
    return torch.where(indices < 0, indices + n, indices)


@op("Gather")
def gather(node: OnnxNode, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    axis = positive(node.get("axis", 0), x.dim())
    at = _wrapped(indices, x.shape[axis])
    if at.dim() == 0:
        return x.index_select(axis, at.reshape(1)).squeeze(axis)
    found = x.index_select(axis, at.reshape(-1))
    return found.reshape(*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :])


@op("GatherElements")
def gather_elements(node: OnnxNode, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    axis = positive(node.get("axis", 0), x.dim())
    return torch.gather(x, axis, _wrapped(indices, x.shape[axis]))


@op("GatherND")
def gather_nd(node: OnnxNode, x: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    batch = node.get("batch_dims", 0)
    depth = indices.shape[-1]
    places = [_batch_places(x.shape[k], k, indices.dim() - 1) for k in range(batch)]
    places += [_wrapped(indices[..., k], x.shape[batch + k]) for k in range(depth)]
    return x[tuple(places)]


def _batch_places(n: Any, k: int, rank: int) -> torch.Tensor:
    return torch.arange(n).reshape([-1 if d == k else 1 for d in range(rank)])


REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


@op("ScatterElements", "Scatter")
def scatter_elements(node: OnnxNode, x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    axis = positive(node.get("axis", 0), x.dim())
    at, how = _wrapped(indices, x.shape[axis]), node.get("reduction", "none")
    if how == "none":
        return torch.scatter(x, axis, at, updates)
    return torch.scatter_reduce(x, axis, at, updates, REDUCTIONS[how])


@op("ScatterND")
def scatter_nd(node: OnnxNode, x: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor) -> torch.Tensor:
    depth = indices.shape[-1]
    places = tuple(_wrapped(indices[..., k], x.shape[k]) for k in range(depth))
    how = node.get("reduction", "none")
    if how == "none":
        return x.index_put(places, updates)
    if how == "add":
        return x.index_put(places, updates, accumulate=True)
    rest = x.shape[depth:]
    inner = 1
    for n in rest:
        inner = inner * n
    row = torch.zeros_like(places[0])
    for k, at in enumerate(places):
        row = row * x.shape[k] + at
    index = row.reshape(-1, 1).expand(-1, inner)
    flat = x.reshape(-1, inner)
    return torch.scatter_reduce(flat, 0, index, updates.reshape(-1, inner), REDUCTIONS[how]).reshape(x.shape)


@op("OneHot", raw=True)
def one_hot(node: OnnxNode, indices: Value, depth: Value, values: Value) -> torch.Tensor:
    at, n = tensor(indices), int(number(depth, "depth"))
    axis = node.get("axis", -1)
    axis = axis + at.dim() + 1 if axis < 0 else axis
    places = _wrapped(at, n).unsqueeze(axis)
    hot = places == torch.arange(n).reshape([-1 if k == axis else 1 for k in range(at.dim() + 1)])
    off, on = tensor(values).unbind(0)
    return torch.where(hot, on, off)


@op("TopK", raw=True)
def topk(node: OnnxNode, data: Value, k: Value) -> tuple[torch.Tensor, torch.Tensor]:
    """Equal elements in the order of their indices."""
    x, n, axis = tensor(data), number(k, "k"), node.get("axis", -1)
    values, indices = torch.sort(x, dim=axis, descending=bool(node.get("largest", 1)), stable=True)
    return values.narrow(axis, 0, n), indices.narrow(axis, 0, n)


@op("Unique")
def unique(node: OnnxNode, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Values, first places, inverse and counts; in the order of the values, or of their first places."""
    axis = node.get("axis")
    if axis is None:
        values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True)
        inverse, axis = inverse.reshape(-1), 0
    else:
        values, inverse, counts = torch.unique(x, sorted=True, return_inverse=True, return_counts=True, dim=axis)
    places = torch.arange(inverse.shape[0])
    last = torch.full_like(counts, inverse.shape[0])
    first = last.scatter_reduce(0, inverse, places, "amin")
    if not node.get("sorted", 1):
        order = torch.argsort(first)
        back = torch.zeros_like(order).scatter(0, order, torch.arange(order.shape[0]))
        values, first, counts = values.index_select(axis, order), first[order], counts[order]
        inverse = back[inverse]
    return values, first, inverse, counts


@op("NonZero")
def non_zero(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    return torch.nonzero(x).transpose(0, 1)


@op("Compress")
def compress(node: OnnxNode, x: torch.Tensor, condition: torch.Tensor) -> torch.Tensor:
    axis = node.get("axis")
    if axis is None:
        x, axis = x.reshape(-1), 0
    return x.index_select(axis, torch.nonzero(condition).reshape(-1))


@op("ArgMax", "ArgMin")
def arg_extreme(node: OnnxNode, x: torch.Tensor) -> torch.Tensor:
    """The first of equal elements, or with select_last_index the last."""
    axis, keep = positive(node.get("axis", 0), x.dim()), bool(node.get("keepdims", 1))
    find = torch.argmax if node.op == "ArgMax" else torch.argmin
    if node.get("select_last_index", 0):
        return x.shape[axis] - 1 - find(x.flip(axis), axis, keep)
    return find(x, axis, keep)


@op("TensorScatter")
def tensor_scatter(node: OnnxNode, past: torch.Tensor, update: torch.Tensor, start: Any = None) -> torch.Tensor:
    axis = positive(node.get("axis", -2), past.dim())
    count, length = update.shape[axis], past.shape[axis]
    first = torch.zeros(past.shape[0], dtype=torch.int64) if start is None else start.to(torch.int64)
    steps = first.reshape(-1, 1) + torch.arange(count)
    if node.get("mode", "linear") == "circular":
        steps = torch.remainder(steps, length)
    if axis == 0:
        raise OnnxValueError("its axis is that of the batch")
    shape = [past.shape[0] if k == 0 else count if k == axis else 1 for k in range(past.dim())]
    return torch.scatter(past, axis, steps.reshape(shape).expand(update.shape), update)
