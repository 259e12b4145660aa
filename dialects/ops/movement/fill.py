"""Tensors computed from sizes and numbers alone (full, zeros, ones, arange, linspace, eye), and triangles, which compare indices."""

import torch

from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_fits
from mlirc.dialects.core.symbols import Expr, symbol
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES

aten = torch.ops.aten


def full_of(g, value, shape, dtype, layout=None, device=None, pin_memory=None, memory_format=None):
    """A tensor of `shape` filled with `value`. The importer gives the result its memory format."""
    dtype = dtype or (g.out.dtype if g.out else g.info(value).dtype)
    if dtype not in KERNEL_DTYPES:
        raise NotOurs(f"a tensor of {dtype}")
    if layout not in (None, torch.strided) or pin_memory:
        raise NotOurs("a tensor of another layout, or in pinned memory")
    if isinstance(value, complex):
        raise NotOurs("a complex number")
    need_fits(value, dtype)
    return g.fill(value, shape, dtype)


@imports(aten.full.default)
def full(g, size, fill_value, *, dtype=None, **options):
    return full_of(g, fill_value, size, dtype, **options)


@imports(aten.zeros.default)
def zeros(g, size, *, dtype=None, **options):
    return full_of(g, 0, size, dtype, **options)


@imports(aten.ones.default)
def ones(g, size, *, dtype=None, **options):
    return full_of(g, 1, size, dtype, **options)


@imports(aten.full_like.default)
def full_like(g, x, fill_value, *, dtype=None, **options):
    return full_of(g, fill_value, g.info(x).shape, dtype or g.info(x).dtype, **options)


@imports(aten.zeros_like.default)
def zeros_like(g, x, *, dtype=None, **options):
    return full_of(g, 0, g.info(x).shape, dtype or g.info(x).dtype, **options)


@imports(aten.ones_like.default)
def ones_like(g, x, *, dtype=None, **options):
    return full_of(g, 1, g.info(x).shape, dtype or g.info(x).dtype, **options)


@imports(aten.new_full.default)
def new_full(g, x, size, fill_value, *, dtype=None, **options):
    return full_of(g, fill_value, size, dtype or g.info(x).dtype, **options)


@imports(aten.new_zeros.default)
def new_zeros(g, x, size, *, dtype=None, **options):
    return full_of(g, 0, size, dtype or g.info(x).dtype, **options)


@imports(aten.new_ones.default)
def new_ones(g, x, size, *, dtype=None, **options):
    return full_of(g, 1, size, dtype or g.info(x).dtype, **options)


@imports(aten.scalar_tensor.default)
def scalar_tensor(g, value, *, dtype=None, **options):
    return full_of(g, value, (), dtype, **options)


@imports(aten.fill.Scalar, aten.fill.Tensor)
def fill(g, x, value):
    return full_of(g, value, g.info(x).shape, g.info(x).dtype)


@imports(aten.arange.default)
def arange(g, end, **options):
    return arange_step(g, 0, end, 1, **options)


@imports(aten.arange.start)
def arange_start(g, start, end, **options):
    return arange_step(g, start, end, 1, **options)


@imports(aten.arange.start_step)
def arange_step(g, start, end, step=1, *, dtype=None, layout=None, device=None, pin_memory=None):
    """The elements start, start + step, ...: exact for integers, else computed in float64 and rounded, as by eager's scalar code. Eager's
    vectors count from a rounded first element, so that a long range is less accurate there.
    """
    info = g.out
    if info is None or info.rank != 1 or info.dtype not in KERNEL_DTYPES or info.dtype == torch.bool:
        raise NotOurs("arange of another dtype")  # eager has none of booleans
    position = symbol("d0")
    whole = isinstance(start, int | Expr) and isinstance(step, int | Expr)
    if whole:
        return g.iota(info.shape, start + position * step, info.dtype)
    if not info.dtype.is_floating_point:
        raise NotOurs("integers counted in fractional steps")
    steps = g.mul(g.iota(info.shape, position, torch.float64), g.cast(step, torch.float64))
    return g.cast(g.add(steps, g.cast(start, torch.float64)), info.dtype)


@imports(aten.linspace.default)
def linspace(g, start, end, steps, **options):
    """`steps` numbers from `start` to `end`, the second half counted from `end`: rounded once, as in eager."""
    info = g.out
    if info is None or info.dtype not in (torch.float32, torch.float64):
        raise NotOurs("linspace of another dtype")
    if not all(type(n) in (int, float) and exact(n) for n in (start, end)) or not isinstance(steps, int):
        raise NotOurs("linspace of numbers that are not known")
    for n in (start, end):
        need_fits(n, info.dtype)
    if steps <= 1:
        return g.fill(start, info.shape, info.dtype)
    first, last = (torch.tensor(n, dtype=info.dtype, device="cpu") for n in (start, end))
    step, position = (last - first) / (steps - 1), symbol("d0")
    constant = lambda n: g.constant(n.item(), info.dtype)
    up = g.fma(g.iota(info.shape, position, info.dtype), constant(step), constant(first))
    down = g.fma(g.iota(info.shape, steps - 1 - position, info.dtype), constant(-step), constant(last))
    return g.select(g.lt(g.iota(info.shape, position), steps // 2), up, down)


def exact(n: float) -> bool:
    """Whether float64 holds the number, from which it is then rounded once."""
    return isinstance(n, float) or abs(n) <= 2**53


@imports(aten.eye.default)
def eye(g, n, **options):
    return eye_m(g, n, n, **options)


@imports(aten.eye.m)
def eye_m(g, n, m, *, dtype=None, **options):
    zero = full_of(g, 0, (), dtype, **options)
    diagonal = g.eq(g.iota((n, m), symbol("d0")), g.iota((n, m), symbol("d1")))
    return g.cast(diagonal, g.info(zero).dtype)


@imports(aten.tril.default)
def tril(g, x, diagonal=0):
    return triangle(g, g.le, x, diagonal)


@imports(aten.triu.default)
def triu(g, x, diagonal=0):
    return triangle(g, g.ge, x, diagonal)


def triangle(g, compare, x, diagonal):
    """x where compare(column - row, diagonal) is true, else 0."""
    info = g.info(x)
    if info.dtype not in KERNEL_DTYPES:
        raise NotOurs(f"a triangle of {info.dtype}")
    offset = g.iota(info.shape[-2:], symbol("d1") - symbol("d0"))
    return g.select(compare(offset, diagonal), x, g.constant(0, info.dtype))
