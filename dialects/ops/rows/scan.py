"""Scans along one dimension: cumsum, cumprod, logcumsumexp, cummax, cummin."""

import math
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.dialect import FoldOp, Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import dimension, need_kernel_dtypes
from mlirc.dialects.core.tensor_types import info_of, opmath, type_of
from mlirc.dialects.ops.elementwise.exponential import Logaddexp

aten = torch.ops.aten
FEW_ROWS = 8  # of float64 a vector has as many lanes; a row is scanned in order


class Running(FoldOp, traits=[ext.Pure]):
    """The fold `kind` of each element and those before it along `dim`. The input is converted to the result's dtype."""

    @staticmethod
    def kernel(make, op):
        info = info_of(op.results[0])
        k, at = space(make, op)
        x = k.cast(k.read(op.operands[0], at, rounded=True), accumulator(info.dtype))
        return k.finish([(k.cast(k.scan(type(op).kind, x), opmath(info.dtype)), at, info)])


class Cumsum(Running, name="cumsum"):
    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]
    kind = "sum"


class Cumprod(Running, name="cumprod"):
    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]
    kind = "prod"


class LogCumsumExp(Running, name="logcumsumexp"):
    """The logarithm of the sum of the exponentials so far."""

    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]
    combine = staticmethod(Logaddexp.scalar)
    identity = -math.inf


class RunningExtreme(Op, traits=[ext.Pure]):
    """The largest (or smallest) element so far along `dim`, and where it was last seen. A NaN stays."""

    kind = ""

    @staticmethod
    def kernel(make, op):
        info, where = map(info_of, op.results)
        k, at = space(make, op)
        x = k.read(op.operands[0], at, rounded=True)
        if info.dtype == torch.bool:
            x = k.cast(x, torch.int32)
        extreme = k.scan(type(op).kind, x)
        seen = k.eq(x, extreme)
        if info.dtype.is_floating_point:
            seen = k.logical_or(seen, k.ne(x, x))
        place = k.scan("max", k.select(seen, k.size(k.inner_dims[0]), 0))
        return k.finish([(k.cast(extreme, opmath(info.dtype)), at, info), (place, at, where)])


class Cummax(RunningExtreme, name="cummax"):
    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]
    index: ext.Result[Any]
    kind = "max"


class Cummin(RunningExtreme, name="cummin"):
    x: ext.Operand[Any]
    dim: Any
    out: ext.Result[Any]
    index: ext.Result[Any]
    kind = "min"


def space(make, op):
    """A kernel whose inner dimension is the op's `dim`, and the tensors' index in it."""
    shape, dim = info_of(op.operands[0]).shape, attribute_value(op.attributes["dim"])
    k = make([n for d, n in enumerate(shape) if d != dim], [shape[dim]], label=type(op).mnemonic)
    at = list(k.parallel_dims)
    at.insert(dim, k.inner_dims[0])
    return k, at


def accumulator(dtype):
    """Eager keeps running sums of float32 in float64, of half types in float32."""
    return torch.float64 if dtype == torch.float32 else opmath(dtype)


@imports(aten.cumsum.default)
def cumsum(g, x, dim, *, dtype=None):
    return running("cumsum", g, x, dim, dtype)


@imports(aten.cumprod.default)
def cumprod(g, x, dim, *, dtype=None):
    return running("cumprod", g, x, dim, dtype)


@imports(aten.logcumsumexp.default)
def logcumsumexp(g, x, dim):
    info = info_of(x)
    if not info.dtype.is_floating_point:
        raise NotOurs("logcumsumexp of integers, which eager refuses")
    if info.device != "cpu":
        raise NotOurs("logcumsumexp on a GPU, where ATen has a kernel for it")
    if info.rank:
        rows = symbols.product(n for d, n in enumerate(info.shape) if d != dimension(dim, info.rank))
        if isinstance(rows, int) and 0 < rows < FEW_ROWS:
            raise NotOurs("logcumsumexp of few rows, whose elements are computed one by one: ATen's kernel takes less")
    return running("logcumsumexp", g, x, dim, None)


def running(name, g, x, dim, dtype):
    info = info_of(x)
    dtype = dtype or (info.dtype if info.dtype.is_floating_point or info.dtype.is_complex else torch.int64)
    need_kernel_dtypes(x, dtype)
    x = g.cast(x, dtype)
    if not info.rank:
        return g.copy(x)
    return create(name, [x], [type_of(type(info)(dtype, info.shape))], {"dim": dimension(dim, info.rank)}).out


@imports(aten.cummax.default)
def cummax(g, x, dim):
    return running_extreme("cummax", g, x, dim)


@imports(aten.cummin.default)
def cummin(g, x, dim):
    return running_extreme("cummin", g, x, dim)


def running_extreme(name, g, x, dim):
    need_kernel_dtypes(x)
    info = info_of(x)
    if not info.rank:
        return g.copy(x), g.constant(0, torch.int64)
    results = [type_of(type(info)(dtype, info.shape)) for dtype in (info.dtype, torch.int64)]
    return tuple(create(name, [x], results, {"dim": dimension(dim, info.rank)}).results)
