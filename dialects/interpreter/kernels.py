"""Runs the body of a kernel on dense torch tensors: one value of the body is one tensor over the whole iteration space.

A value's tensor has one dimension for each iteration dimension d0, d1, ...; it has size 1 where the value does not
depend on that one. It follows the definition in kernel_ops.py step by step, and is slow: lowered kernels are compared with it.
"""

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import COMBINED, Elementwise, attribute_value
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.index_errors import index_text
from mlirc.dialects.core.kernel_ops import identity, reductions, scans
from mlirc.dialects.core.scalar_builder import TorchBuilder
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import dtype_of, opmath


class TorchIndices(symbols.IndexEmitter):
    """Evaluates index expressions to int64 tensors, given a tensor for each name."""

    def __init__(self, names: Mapping[str, torch.Tensor | int]):
        self.names = names

    def constant(self, value):
        return torch.tensor(value)

    def symbol(self, name):
        if name not in self.names:
            raise KeyError(f"'{name}' has no value here; known: {', '.join(self.names) or 'none'}")
        return torch.as_tensor(self.names[name])

    def add(self, a, b):
        return a + b

    def mul(self, a, b):
        return a * b

    def floordiv(self, a, b):
        return torch.div(a, b, rounding_mode="floor")

    def mod(self, a, b):
        return torch.remainder(a, b)

    def max(self, a, b):
        return torch.maximum(a, b)

    def min(self, a, b):
        return torch.minimum(a, b)


SMALL = 1 << 12  # elements of an index that is kept
SPACES = 256  # that are kept: kernels of equal layers have equal ones


class Points:
    """The points of an iteration space: its sizes, and each dimension's indices as an int64 tensor along it.

    seen   accesses of which it is known that they are right, with the sizes that they were seen for
    """

    def __init__(self, parallel: Sequence[int], inner: Sequence[int], symbol_values: Mapping[str, int]):
        self.seen: set[tuple[Any, ...]] = set()
        self.evaluated: dict[Int, torch.Tensor] = {}
        self.shape = tuple(parallel) + tuple(inner)
        self.parallel_rank = len(parallel)
        self.inner_dims = tuple(range(len(parallel), len(self.shape)))
        self.outer_shape = tuple(parallel) + (1,) * len(inner)
        self.names: dict[str, torch.Tensor | int] = dict(symbol_values)
        for d, size in enumerate(self.shape):
            self.names[f"d{d}"] = torch.arange(size).view([-1 if e == d else 1 for e in range(len(self.shape))])

    def evaluate(self, expr: Int, scalars: Sequence[torch.Tensor] = ()) -> torch.Tensor:
        """`expr` at each point, of the space's rank."""
        if not scalars and expr in self.evaluated:
            return self.evaluated[expr]
        names = {**self.names, **{f"i{k}": x for k, x in enumerate(scalars)}} if scalars else self.names
        value = symbols.emit(expr, TorchIndices(names))
        value = value.reshape((1,) * len(self.shape)) if value.dim() == 0 else value
        if not scalars and value.numel() <= SMALL:
            self.evaluated[expr] = value
        return value

    def full(self, x: torch.Tensor) -> torch.Tensor:
        return x.expand(torch.broadcast_shapes(x.shape, self.shape))


@lru_cache(SPACES)
def points_of(parallel: tuple[int, ...], inner: tuple[int, ...], symbol_values: tuple[tuple[str, int], ...]) -> Points:
    return Points(parallel, inner, dict(symbol_values))


def broadcast(*shapes: Sequence[int]) -> tuple[int, ...]:
    """The shape that shapes of one rank have together. Raises ValueError."""
    result = []
    for sizes in zip(*shapes, strict=True):
        others = {n for n in sizes if n != 1}
        if len(others) > 1:
            raise ValueError(f"sizes of {sorted(others)} in one dimension")
        result.append(others.pop() if others else 1)
    return tuple(result)


def run_kernel(
    op: Any, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor], symbol_values: Mapping[str, int]
) -> None:
    """Run a `mlircx.kernel`, `launch` or `run`: all is read and computed before anything is written to `outputs`.

    Raises IndexError where a check_index fails, after the kernel; ValueError for a body that breaks a rule.
    """
    parallel, inner = (
        tuple(symbols.evaluate(n, symbol_values) for n in symbols.parse_list(attribute_value(op.attributes[name])))
        for name in ("parallel", "inner")
    )
    points = points_of(parallel, inner, tuple(symbol_values.items()))
    block = op.regions[0].blocks[0]
    values: dict[ir.Value, torch.Tensor] = dict(zip(block.arguments, inputs, strict=True))
    failures: list[str] = []
    for inner_op in block.operations:
        name = inner_op.operation.name
        operands = [values[x] for x in inner_op.operands]
        if name == "mlircx.yield":
            texts = attribute_value(inner_op.attributes["maps"])
            for value, text, output in zip(operands, texts, outputs, strict=True):
                _write(points, value, symbols.parse_list(text), output)
            break
        values[inner_op.results[0]] = _evaluate(points, inner_op, operands, failures)
    if failures:
        raise IndexError(failures[0])


def _evaluate(points: Points, op: Any, operands: list[torch.Tensor], failures: list[str]) -> torch.Tensor:
    name = op.operation.name
    attributes = {key: attribute_value(attr) for key, attr in op.attributes.items()}
    dtype = dtype_of(op.results[0].type)
    if name == "mlirc.read":
        return _read(points, operands, symbols.parse_list(attributes["map"]), attributes["masked"])
    if name == "mlirc.constant":
        return torch.tensor(read_constant(attributes["value"]), dtype=dtype).reshape((1,) * len(points.shape))
    if name == "mlirc.size":
        return points.evaluate(symbols.parse(attributes["expr"])).to(dtype)
    if name == "mlirc.check_index":
        return _check_index(points, operands[0], attributes, failures)
    if name == "mlirc.reduce":
        # what does not depend on an inner dimension still counts once for each inner point
        x = operands[0].expand(
            [points.shape[d] if d in points.inner_dims else n for d, n in enumerate(operands[0].shape)]
        )
        return fold(attributes["kind"], x, points.inner_dims)
    if name == "mlirc.scan":
        if len(points.inner_dims) != 1:
            raise ValueError(f"a scan needs one inner dimension, not {len(points.inner_dims)}")
        return running_fold(attributes["kind"], points.full(operands[0]), points.inner_dims[0])
    if isinstance(op, Elementwise):
        return elementwise(type(op), op, operands, dtype)
    raise ValueError("this op has no meaning inside a kernel")


def _read(points: Points, operands: list[torch.Tensor], map_: Sequence[Int], masked: bool) -> torch.Tensor:
    tensor, *scalars = operands
    mask = scalars.pop() if masked else None
    if len(map_) != tensor.dim():
        raise ValueError(f"the map has {len(map_)} indices for a tensor of {tensor.dim()} dimensions")
    index = [points.evaluate(expr, scalars) for expr in map_]
    shape = broadcast((1,) * len(points.shape), *(i.shape for i in index), *(() if mask is None else (mask.shape,)))
    known = ("read", tuple(map_), tensor.shape) if mask is None and not scalars else None
    if known in points.seen and tensor.numel() and index:
        return tensor[tuple(i.expand(shape) for i in index)]
    inside = torch.ones(shape, dtype=torch.bool) if mask is None else mask.expand(shape)
    for d, (i, size) in enumerate(zip(index, tensor.shape, strict=True)):
        outside = inside & ((i < 0) | (i >= size))
        if outside.any():
            raise ValueError(f"reads index {i.expand(shape)[outside][0].item()} of dimension {d}, whose size is {size}")
    if known is not None:
        points.seen.add(known)
    if tensor.numel() == 0:
        return torch.zeros(shape, dtype=tensor.dtype)
    if not index:
        read = tensor.reshape((1,) * len(points.shape)).expand(shape)
    else:
        read = tensor[tuple(torch.where(inside, i, 0) for i in index)]
    return read if mask is None else torch.where(inside, read, torch.zeros((), dtype=tensor.dtype))


def _check_index(points: Points, x: torch.Tensor, attributes: dict[str, Any], failures: list[str]) -> torch.Tensor:
    size = points.evaluate(symbols.parse(attributes["size"]))
    wrapped = torch.where(x < 0, x + size, x) if attributes["wraps"] else x
    bad = (wrapped < 0) | (wrapped >= size)
    # an index that no point of the space asks for is no failure
    if bad.any() and math.prod(points.shape) > 0:
        worst = x.expand(bad.shape)[bad][0].item()
        limit = size.expand(bad.shape)[bad][0].item()
        failures.append(index_text(attributes["message"], int(worst), int(limit)))
    return torch.where(bad, 0, wrapped)


def _write(points: Points, value: torch.Tensor, map_: Sequence[Int], output: torch.Tensor) -> None:
    if len(map_) != output.dim():
        raise ValueError(f"a yield map has {len(map_)} indices for a result of {output.dim()} dimensions")
    index = [points.evaluate(expr) for expr in map_]
    shape = broadcast(points.outer_shape, value.shape, *(i.shape for i in index))
    if not index:
        if math.prod(shape) != 1:
            raise ValueError(f"yields {math.prod(shape)} values into one element")
        output.copy_(value.reshape(()))
        return
    where = tuple(i.expand(shape) for i in index)
    known = ("write", tuple(map_), shape, output.shape)
    if known in points.seen:
        output.index_put_(where, value.expand(shape))
        return
    for d, (i, size) in enumerate(zip(where, output.shape, strict=True)):
        if ((i < 0) | (i >= size)).any():
            raise ValueError(f"a yield map leaves dimension {d} of a result, whose size is {size}")
    seen = torch.zeros(output.shape, dtype=torch.int64)
    seen.index_put_(where, torch.ones(shape, dtype=torch.int64), accumulate=True)
    if not (seen == 1).all():
        raise ValueError("a yield map must reach each element of the result exactly once")
    points.seen.add(known)
    output.index_put_(where, value.expand(shape))


def elementwise(cls: Any, op: Any, operands: Sequence[torch.Tensor], dtype: torch.dtype) -> torch.Tensor:
    """An elementwise op of class `cls` on operands of the computed dtype (half types widened), rounded to `dtype`."""
    if cls.mnemonic == "cast":
        return operands[0].to(dtype)
    if cls.mnemonic == "bitcast":
        return operands[0].contiguous().view(dtype)
    reference = getattr(cls, "reference", None)
    if reference is not None:
        attributes = cls.attributes_of(op)
        attributes.pop("implicit", None)
        return reference(*operands, **attributes).to(dtype)
    kinds = cls.operand_kinds(len(operands))
    computed = next((x.dtype for x, kind in zip(operands, kinds, strict=True) if kind != "bool"), torch.bool)
    return cls.scalar(TorchBuilder(computed), *operands).to(dtype)


def operand_dtypes(cls: type[Elementwise], operands: Sequence[torch.Tensor], result: torch.dtype) -> list[torch.dtype]:
    """The dtypes that a graph-level op's operands are converted to first, as the class's `computes` says; half types are widened."""
    kinds = cls.operand_kinds(len(operands))
    promoted = operands[0].dtype
    example = torch.empty((0,) * bool(operands[0].dim()), dtype=promoted)
    for other in operands[1:]:
        promoted = torch.result_type(example, other)
        example = torch.empty((0,) * bool(example.dim() or other.dim()), dtype=promoted)
    computed = {"result": result, "operands": promoted, "bool": torch.bool, "float": result}
    return [opmath(computed[kind]) for kind in kinds]


# ---- reductions


def fold(kind: str, x: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
    """`x` folded over `dims`, which stay with size 1. Over no dimensions, each element is its own fold."""
    dims = tuple(dims)
    rest = [d for d in range(x.dim()) if d not in dims]
    count = math.prod(x.shape[d] for d in dims)
    flat = x.permute([*rest, *dims]).reshape([*(x.shape[d] for d in rest), count])
    shape = [1 if d in dims else n for d, n in enumerate(x.shape)]
    return _fold_last(kind, flat).reshape(shape)


def _fold_last(kind: str, x: torch.Tensor) -> torch.Tensor:
    wide = x.to(opmath(x.dtype))
    if kind == "sum":
        return wide.sum(-1, dtype=wide.dtype).to(x.dtype) if x.dtype != torch.bool else x.any(-1)
    if kind == "mean":
        return _steady_mean(wide).to(x.dtype)
    if kind == "prod":
        return wide.prod(-1, dtype=wide.dtype).to(x.dtype) if x.dtype != torch.bool else x.all(-1)
    if kind == "any":
        return x.to(torch.bool).any(-1)
    if kind == "all":
        return x.to(torch.bool).all(-1)
    if kind in ("max", "min"):
        if x.shape[-1] == 0:
            return torch.full(x.shape[:-1], identity(kind, x.dtype), dtype=x.dtype)
        return x.amax(-1) if kind == "max" else x.amin(-1)
    if kind in ("argmax", "argmin"):
        if x.shape[-1] == 0:
            return torch.zeros(x.shape[:-1], dtype=torch.int64)
        number = x.to(torch.uint8) if x.dtype == torch.bool else x
        return number.argmax(-1) if kind == "argmax" else number.argmin(-1)
    if kind in ("first_max", "first_min"):
        if x.shape[-1] == 0:
            return torch.full(x.shape[:-1], identity(kind, x.dtype), dtype=x.dtype)
        return (x.max(-1) if kind == "first_max" else x.min(-1)).values
    if kind in reductions():
        start = torch.full((*x.shape[:-1], 1), identity(kind, x.dtype), dtype=x.dtype)
        return combined(kind, torch.cat([start, x], -1), -1)[..., -1]
    raise ValueError(f"no reduction '{kind}'; there are {', '.join(reductions())}")


def _steady_mean(x: torch.Tensor) -> torch.Tensor:
    """The mean along the last dimension, between the least and the largest element, also where their sum overflows."""
    mean = x.mean(-1)
    if x.shape[-1] == 0:
        return mean
    scaled = (x * 2.0**-64).sum(-1) / x.shape[
        -1
    ]  # 2^-64 of it: nothing overflows, and of what is far too small nothing shows
    inside = torch.where(mean.isfinite(), mean, scaled * 2.0**64)
    inside = torch.minimum(torch.maximum(inside, x.amin(-1)), x.amax(-1)) + 0.0
    return torch.where(scaled.isfinite(), inside, mean)


def running_fold(kind: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    wide = x.to(opmath(x.dtype))
    if kind == "sum":
        return wide.cumsum(dim, dtype=wide.dtype).to(x.dtype)
    if kind == "prod":
        return wide.cumprod(dim, dtype=wide.dtype).to(x.dtype)
    if kind in ("max", "min"):
        if x.shape[dim] == 0:
            return x.clone()
        return (x.cummax(dim) if kind == "max" else x.cummin(dim)).values
    if kind in scans():
        return combined(kind, x, dim)
    raise ValueError(f"no scan '{kind}'; there are {', '.join(scans())}")


def combined(kind: str, x: torch.Tensor, dim: int) -> torch.Tensor:
    """The running fold of a kind that an op defines (dialect.FoldOp): one element after the other, half types in float32."""
    wide = x.to(opmath(x.dtype))
    body, found = COMBINED[kind].combine, list(wide.unbind(dim))
    for k in range(1, len(found)):
        found[k] = body(TorchBuilder(wide.dtype), found[k - 1], found[k]).to(wide.dtype)
    return torch.stack(found, dim).to(x.dtype) if found else x.clone()
