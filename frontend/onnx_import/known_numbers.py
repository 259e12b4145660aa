"""Operators on numbers that are known while a graph is traced: what models compute of shapes."""

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from mlirc.frontend.onnx_import.package import onnx
from mlirc.frontend.onnx_import.registry import OnnxNode, on_known
from mlirc.frontend.onnx_import.values import Known, Value, dtype_of, objects, positive


@on_known("Shape")
def shape(node: OnnxNode, x: Value) -> Known:
    assert x is not None
    sizes = list(x.array.shape) if isinstance(x, Known) else list(x.shape)
    found = sizes[node.get("start", 0) : node.get("end", len(sizes))]
    return Known(found, torch.int64)


@on_known("Size")
def size(node: OnnxNode, x: Value) -> Known:
    assert x is not None
    return Known(x.array.size if isinstance(x, Known) else x.numel(), torch.int64)


@on_known("Identity")
def identity(node: OnnxNode, x: Known) -> Known:
    return x


@on_known("Cast")
def cast(node: OnnxNode, x: Known) -> Any:
    dtype = dtype_of(node.need("to"))
    kinds = {torch.int64: _to_int, torch.float32: _to_float, torch.float64: float, torch.bool: bool}
    if dtype is torch.int32 and all(isinstance(n, torch.SymInt) or -(2**31) <= n < 2**31 for n in x.list()):
        return Known(_each(_to_int, x.array), dtype)
    return Known(_each(kinds[dtype], x.array), dtype) if dtype in kinds else NotImplemented


def _to_int(n: Any) -> Any:
    if isinstance(n, torch.SymFloat):
        return torch.sym_int(n)
    return n if isinstance(n, torch.SymInt) else int(n)


def _to_float(n: Any) -> Any:
    return torch.sym_float(n) if isinstance(n, torch.SymInt | torch.SymFloat) else float(np.float32(n))


def _each(function: Callable[..., Any], *arrays: np.ndarray) -> np.ndarray:
    return objects_of(np.frompyfunc(function, len(arrays), 1)(*arrays))


def objects_of(x: Any) -> np.ndarray:
    return x if isinstance(x, np.ndarray) else objects(x)


def _div(a: Any, b: Any) -> Any:
    if isinstance(a, float | np.floating | torch.SymFloat):
        return a / b
    return a // b if (a >= 0) == (b > 0) else -(-a // b)


def _rounded(x: Known, y: Known, function: Callable[..., Any]) -> Any:
    """Exact where integers stay within 64 bits, and left to tensors where they are floats of 32 bits."""
    if x.dtype is torch.float32 and not any(isinstance(n, torch.SymFloat) for n in x.list() + y.list()):
        return Known(
            _each(lambda a, b: float(np.float32(function(np.float32(a), np.float32(b)))), x.array, y.array), x.dtype
        )
    found = _each(function, x.array, y.array)
    limit = 2**31 if x.dtype is torch.int32 else 2**63
    small = all(not isinstance(n, int) or -limit <= n < limit for n in found.reshape(-1).tolist())
    return Known(found, x.dtype) if small else NotImplemented


def _enter(name: str, function: Callable[..., Any]) -> None:
    def run(node: OnnxNode, x: Known, y: Known) -> Any:
        if x.dtype is torch.bool or (name == "Div" and 0 in [n for n in y.list() if isinstance(n, int | float)]):
            return NotImplemented
        return _rounded(x, y, function)

    on_known(name)(run)


for _name, _function in {"Add": operator.add, "Sub": operator.sub, "Mul": operator.mul, "Div": _div}.items():
    _enter(_name, _function)


def _enter_comparison(name: str, function: Callable[..., Any]) -> None:
    on_known(name)(lambda node, x, y: Known(_each(lambda a, b: bool(function(a, b)), x.array, y.array), torch.bool))


for _name, _function in {
    "Equal": operator.eq,
    "Less": operator.lt,
    "Greater": operator.gt,
    "LessOrEqual": operator.le,
    "GreaterOrEqual": operator.ge,
}.items():
    _enter_comparison(_name, _function)


@on_known("Not")
def negate(node: OnnxNode, x: Known) -> Known:
    return Known(_each(lambda n: not n, x.array), torch.bool)


@on_known("And")
def both(node: OnnxNode, x: Known, y: Known) -> Known:
    return Known(_each(lambda a, b: a and b, x.array, y.array), torch.bool)


@on_known("Or")
def either(node: OnnxNode, x: Known, y: Known) -> Known:
    return Known(_each(lambda a, b: a or b, x.array, y.array), torch.bool)


@on_known("Neg")
def negative(node: OnnxNode, x: Known) -> Known:
    return Known(_each(operator.neg, x.array), x.dtype)


def _enter_float(name: str, function: Callable[[Any], Any]) -> None:
    def run(node: OnnxNode, x: Known) -> Any:
        if x.dtype is not torch.float32 or not _plain(x):
            return NotImplemented
        with np.errstate(all="ignore"):
            return Known(_each(lambda n: float(function(np.float32(n))), x.array), x.dtype)

    on_known(name)(run)


for _name, _float in {
    "Sqrt": np.sqrt,
    "Reciprocal": np.reciprocal,
    "Ceil": np.ceil,
    "Floor": np.floor,
    "Relu": lambda n: np.maximum(n, np.float32(0)),
}.items():
    _enter_float(_name, _float)


@on_known("CastLike")
def cast_like(node: OnnxNode, x: Known, like: Known) -> Any:
    return x if x.dtype is like.dtype else NotImplemented


@on_known("Mod")
def remainder(node: OnnxNode, x: Known, y: Known) -> Any:
    if x.dtype.is_floating_point or node.get("fmod", 0) or 0 in [n for n in y.list() if isinstance(n, int)]:
        return NotImplemented
    return Known(_each(operator.mod, x.array, y.array), x.dtype)


@on_known("Expand")
def expand(node: OnnxNode, x: Known, sizes: Known) -> Any:
    if not _plain(sizes) or np.prod(sizes.list(), dtype=np.int64) > 4096:
        return NotImplemented
    return Known(np.broadcast_to(x.array, np.broadcast_shapes(x.array.shape, tuple(sizes.list()))), x.dtype)


@on_known("Where")
def where(node: OnnxNode, condition: Known, x: Known, y: Known) -> Known:
    return Known(_each(lambda c, a, b: a if c else b, condition.array, x.array, y.array), x.dtype)


@on_known("Max", "Min")
def extreme(node: OnnxNode, *xs: Known) -> Any:
    if any(x.dtype.is_floating_point for x in xs):
        return NotImplemented
    choose = torch.sym_max if node.op == "Max" else torch.sym_min
    found = xs[0].array
    for x in xs[1:]:
        found = _each(choose, found, x.array)
    return Known(found, xs[0].dtype)


@on_known("Concat")
def concat(node: OnnxNode, *xs: Known) -> Known:
    return Known(np.concatenate([x.array for x in xs], node.need("axis")), xs[0].dtype)


@on_known("Gather")
def gather(node: OnnxNode, x: Known, indices: Known) -> Any:
    if not _plain(indices):
        return NotImplemented
    return Known(objects_of(np.take(x.array, indices.array.astype(np.int64), node.get("axis", 0))), x.dtype)


def _plain(*xs: Known) -> bool:
    """Whether no number is a symbol."""
    return all(isinstance(n, int | float | bool) for x in xs for n in x.list())


@on_known("Slice")
def slices(node: OnnxNode, x: Known, starts: Known, ends: Known, axes: Any = None, steps: Any = None) -> Any:
    given = [y for y in (starts, ends, axes, steps) if y is not None]
    if not _plain(*given):
        return NotImplemented
    found = x.array
    along = axes.list() if axes is not None else range(len(starts.list()))
    by = steps.list() if steps is not None else [1] * len(starts.list())
    for axis, start, end, step in zip(along, starts.list(), ends.list(), by, strict=True):
        axis = positive(axis, found.ndim)
        found = found[(slice(None),) * axis + (slice(start, end, step),)]
    return Known(found, x.dtype)


@on_known("Squeeze")
def squeeze(node: OnnxNode, x: Known, axes: Known | None = None) -> Known:
    chosen = tuple(axes.list()) if axes is not None else None
    return Known(objects_of(np.squeeze(x.array, chosen)), x.dtype)


@on_known("Unsqueeze")
def unsqueeze(node: OnnxNode, x: Known, axes: Known) -> Known:
    return Known(np.expand_dims(x.array, tuple(axes.list())), x.dtype)


@on_known("Reshape")
def reshape(node: OnnxNode, x: Known, sizes: Known) -> Any:
    if not _plain(sizes) or 0 in sizes.list():
        return NotImplemented
    return Known(x.array.reshape(sizes.list()), x.dtype)


@on_known("ReduceProd", "ReduceSum")
def reduce_all(node: OnnxNode, x: Known, axes: Known | None = None) -> Any:
    if x.array.ndim != 1 or x.dtype.is_floating_point or (node.get("noop_with_empty_axes", 0) and axes is None):
        return NotImplemented
    found = 1 if node.op == "ReduceProd" else 0
    for n in x.list():
        found = found * n if node.op == "ReduceProd" else found + n
    return Known([found] if node.get("keepdims", 1) else found, x.dtype)


@on_known("Range")
def numbers_between(node: OnnxNode, start: Known, end: Known, step: Known) -> Any:
    if not _plain(start, end, step) or start.dtype.is_floating_point:
        return NotImplemented
    return Known(list(range(start.list()[0], end.list()[0], step.list()[0])), start.dtype)


@on_known("ConstantOfShape")
def constant_of_shape(node: OnnxNode, sizes: Known) -> Any:
    value = node.get("value")
    array = np.zeros(1, np.float32) if value is None else onnx().numpy_helper.to_array(value)
    if (
        not _plain(sizes)
        or np.prod(sizes.list(), dtype=np.int64) > 64
        or array.dtype not in (np.int64, np.int32, np.bool_)
    ):
        return NotImplemented
    return Known(np.full(sizes.list(), array.reshape(-1)[0]), getattr(torch, str(array.dtype)))
