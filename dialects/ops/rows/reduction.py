"""Reductions: sum, mean, prod, extremes, any and all, variance, norms. A missing or empty list of dimensions: all."""

import math

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.dialect import Reduction, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import count, dimensions, need_floats, need_kernel_dtypes
from mlirc.dialects.core.tensor_types import info_of, opmath

aten = torch.ops.aten


class Sum(Reduction, name="sum"):
    kind = "sum"


class Mean(Reduction, name="mean"):
    """The mean of floating-point numbers on a GPU, between the least and the largest, also where their sum overflows."""

    kind = "mean"


class Prod(Reduction, name="prod"):
    kind = "prod"


class Amax(Reduction, name="amax"):
    kind = "max"


class Amin(Reduction, name="amin"):
    kind = "min"


class AnyTrue(Reduction, name="any"):
    kind = "any"


class AllTrue(Reduction, name="all"):
    kind = "all"


class Argmax(Reduction, name="argmax"):
    """The index of the first largest element, counted row-major over the reduced dimensions."""

    kind = "argmax"


class Argmin(Reduction, name="argmin"):
    """The index of the first smallest element, counted row-major over the reduced dimensions."""

    kind = "argmin"


class FirstMax(Reduction, name="first_max"):
    """The first largest element: of -0.0 and 0.0 the one at the index that `argmax` gives."""

    kind = "first_max"


class FirstMin(Reduction, name="first_min"):
    """The first smallest element: of -0.0 and 0.0 the one at the index that `argmin` gives."""

    kind = "first_min"


@imports(aten.sum.dim_IntList)
def sum_dims(g, x, dims, keepdim=False, *, dtype=None):
    return total(g, "sum", x, dims, keepdim, dtype)


@imports(aten.sum.default)
def sum_all(g, x, *, dtype=None):
    return total(g, "sum", x, None, False, dtype)


@imports(aten.prod.dim_int)
def prod_dim(g, x, dim, keepdim=False, *, dtype=None):
    return total(g, "prod", x, (dim,), keepdim, dtype)


@imports(aten.prod.default)
def prod_all(g, x, *, dtype=None):
    return total(g, "prod", x, None, False, dtype)


def total(g, name, x, dims, keepdim, dtype):
    """A sum or product; integers and booleans fold in int64, as in eager, unless `dtype` says otherwise."""
    have = info_of(x).dtype
    dtype = dtype or (have if have.is_floating_point or have.is_complex else torch.int64)
    need_kernel_dtypes(x, dtype)
    if dtype != opmath(dtype):
        x = g.cast(x, dtype)  # each element is rounded, as in eager, before it is added up in float32
    return g.reduce(name, x, dims, keepdim, dtype)


@imports(aten.nansum.default)
def nansum(g, x, dims=None, keepdim=False, *, dtype=None):
    if dims is not None and not dims:
        raise NotOurs("nansum over [], of which PyTorch's own rules disagree")
    if info_of(x).dtype.is_floating_point:
        need_kernel_dtypes(x)
        x = g.select(g.isnan(x), 0.0, x)
    return total(g, "sum", x, dims, keepdim, dtype)


@imports(aten.mean.dim)
def mean_dims(g, x, dims, keepdim=False, *, dtype=None):
    dtype = dtype or info_of(x).dtype
    need_kernel_dtypes(x, dtype)
    if not dtype.is_floating_point:
        raise NotOurs(f"the mean of {dtype}")
    return g.cast(mean(g, g.cast(g.cast(x, dtype), opmath(dtype)), dims, keepdim), dtype)


@imports(aten.mean.default)
def mean_all(g, x, *, dtype=None):
    return mean_dims(g, x, None, dtype=dtype)


def mean(g, x, dims, keepdim=False):
    """The mean of a float32 or float64 tensor."""
    info = info_of(x)
    return g.div(g.reduce("sum", x, dims, keepdim), g.size(count(info, dimensions(dims, info.rank)), info.dtype))


def steady_mean(g, x, dims, keepdim=False):
    """The mean that a variance or norm needs: no overflow and no rounding of a sum moves it away from the elements. Eager's kernels have no such
    sum, but move a mean to each element. On a CPU the sum is one of float64."""
    info = info_of(x)
    if info.device != "cpu":
        return g.reduce("mean", x, dims, keepdim)
    return g.cast(mean(g, g.cast(x, torch.float64), dims, keepdim), info.dtype)


def sum_over(g, x, dims):
    """The sum over `dims`, which may be none."""
    return g.reduce("sum", x, dims) if dims else x


# ---- extremes


@imports(aten.amax.default)
def amax(g, x, dims=(), keepdim=False):
    need_kernel_dtypes(x)
    return g.reduce("amax", x, dims, keepdim)


@imports(aten.amin.default)
def amin(g, x, dims=(), keepdim=False):
    need_kernel_dtypes(x)
    return g.reduce("amin", x, dims, keepdim)


@imports(aten.max.default)
def max_all(g, x):
    return amax(g, x)


@imports(aten.min.default)
def min_all(g, x):
    return amin(g, x)


@imports(aten.max.dim)
def max_dim(g, x, dim, keepdim=False):
    return first(g, "max", x, dim, keepdim), argmax(g, x, dim, keepdim)


@imports(aten.min.dim)
def min_dim(g, x, dim, keepdim=False):
    return first(g, "min", x, dim, keepdim), argmin(g, x, dim, keepdim)


def first(g, extreme, x, dim, keepdim):
    """The element at the index of the first extreme. Of integers, equal elements are the same."""
    need_kernel_dtypes(x)
    return g.reduce(f"{'first_' if info_of(x).dtype.is_floating_point else 'a'}{extreme}", x, (dim,), keepdim)


@imports(aten.aminmax.default)
def aminmax(g, x, *, dim=None, keepdim=False):
    dims = None if dim is None else (dim,)
    return amin(g, x, dims, keepdim), amax(g, x, dims, keepdim)


@imports(aten.argmax.default)
def argmax(g, x, dim=None, keepdim=False):
    need_kernel_dtypes(x)
    return g.reduce("argmax", x, None if dim is None else (dim,), keepdim, torch.int64)


@imports(aten.argmin.default)
def argmin(g, x, dim=None, keepdim=False):
    need_kernel_dtypes(x)
    return g.reduce("argmin", x, None if dim is None else (dim,), keepdim, torch.int64)


# ---- truth: the result is boolean, but uint8 for uint8


@imports(aten.any.default, aten.any.dim, aten.any.dims)
def any_true(g, x, dims=None, keepdim=False):
    return truth(g, "any", x, dims, keepdim)


@imports(aten.all.default, aten.all.dim, aten.all.dims)
def all_true(g, x, dims=None, keepdim=False):
    return truth(g, "all", x, dims, keepdim)


def truth(g, name, x, dims, keepdim):
    dtype = torch.uint8 if info_of(x).dtype == torch.uint8 else torch.bool
    need_kernel_dtypes(x)
    if isinstance(dims, int):
        dims = (dims,)
    if dims is not None and not dims:  # here alone, [] means no dimension
        return g.cast(g.cast(x, torch.bool), dtype)
    return g.reduce(name, x, dims, keepdim, dtype)


@imports(aten.count_nonzero.default, aten.count_nonzero.dim_IntList)
def count_nonzero(g, x, dims=None):
    need_kernel_dtypes(x)
    if isinstance(dims, int):
        dims = (dims,)
    return g.reduce("sum", g.cast(x, torch.bool), dims, False, torch.int64)


# ---- spread


@imports(aten.var.correction)
def var(g, x, dims=None, *, correction=None, keepdim=False):
    return spread(g, x, dims, correction, keepdim)[0]


@imports(aten.std.correction)
def std(g, x, dims=None, *, correction=None, keepdim=False):
    need_floats(x)
    return g.cast(g.sqrt(variance(g, x, dims, correction, keepdim)[0]), info_of(x).dtype)


@imports(aten.var_mean.correction)
def var_mean(g, x, dims=None, *, correction=None, keepdim=False):
    return spread(g, x, dims, correction, keepdim)


@imports(aten.std_mean.correction)
def std_mean(g, x, dims=None, *, correction=None, keepdim=False):
    need_floats(x)
    squared, middle = variance(g, x, dims, correction, keepdim)
    return g.cast(g.sqrt(squared), info_of(x).dtype), g.cast(middle, info_of(x).dtype)


def spread(g, x, dims, correction, keepdim):
    need_floats(x)
    return tuple(g.cast(v, info_of(x).dtype) for v in variance(g, x, dims, correction, keepdim))


def variance(g, x, dims, correction, keepdim):
    """Variance and mean, on a CPU in float64, as in eager, so that squares of large numbers do not overflow."""
    narrow, on_cpu = opmath(info_of(x).dtype) != torch.float64, info_of(x).device == "cpu"
    x = g.cast(x, torch.float64 if on_cpu else opmath(info_of(x).dtype))
    info = info_of(x)
    dims = dimensions(dims, info.rank)
    middle = steady_mean(g, x, dims, True)
    sizes = [info.shape[d] for d in dims]
    has_first = all(isinstance(size, int) and size > 0 for size in sizes)
    if narrow and info.dtype == torch.float64 and has_first:
        squares = squares_in_one_pass(g, x, dims, keepdim)
    else:
        rest = g.sub(x, middle)
        squares = g.reduce("sum", g.mul(rest, rest), dims, keepdim)
    correction = 1 if correction is None else correction
    elements = count(info, dims)
    if isinstance(correction, int | symbols.Expr):
        divisor = g.size(symbols.maximum(elements - correction, 0), info.dtype)
    else:
        given = float(correction) if isinstance(correction, float) else g.cast(correction, info.dtype)
        freedom = g.sub(g.size(elements, info.dtype), given)
        divisor = g.select(g.gt(freedom, 0.0), freedom, 0.0)  # of NaN, 0
    if on_cpu:
        middle = g.add(middle, not_a_number_before_the_last(g, x, dims))
    return g.div(squares, divisor), middle if keepdim else squeeze(g, middle, dims)


def squares_in_one_pass(g, x, dims, keepdim):
    """The sum of the squares of what `x` differs from its mean by, from the sums of its differences from its first element.

    That element is one of those summed, so the larger sum is at most n + 1 times the result: float64 has the digits for float32's
    numbers, of which this is. Of float64's it would lose some.
    """
    info = info_of(x)
    index = [0 if d in dims else symbols.symbol(f"d{d}") for d in range(info.rank)]
    first = g.view(x, [1 if d in dims else n for d, n in enumerate(info.shape)], list(info.stride), index)
    rest = g.sub(x, first)
    total = g.reduce("sum", rest, dims, keepdim)
    squares = g.reduce("sum", g.mul(rest, rest), dims, keepdim)
    return g.maximum(g.sub(squares, g.div(g.mul(total, total), g.size(count(info, dims), info.dtype))), 0.0)


def not_a_number_before_the_last(g, x, dims):
    """NaN where an element but the last is infinite or NaN, else 0: eager goes on from such a running mean with NaN. On a GPU, where it has
    many at once, which elements do so depends on the sizes: a mean there is the sum's."""
    info = info_of(x)
    if not dims or 0 in (info.shape[d] for d in dims):
        return 0.0
    is_last = None
    for d in dims:
        here = g.eq(g.iota(info.shape, symbols.symbol(f"d{d}")), g.size(info.shape[d] - 1, torch.int64))
        is_last = here if is_last is None else g.logical_and(is_last, here)
    rest = g.mul(x, 0.0)
    return g.reduce("sum", rest if is_last is None else g.select(is_last, 0.0, rest), dims, True)


def squeeze(g, x, dims):
    """`x` without the dimensions `dims`, whose size is 1."""
    info = info_of(x)
    remaining = [d for d in range(info.rank) if d not in dims]
    index = [symbols.symbol(f"d{remaining.index(d)}") if d in remaining else 0 for d in range(info.rank)]
    return g.view(x, [info.shape[d] for d in remaining], [info.stride[d] for d in remaining], index)


# ---- sums of functions of the elements


@imports(aten.logsumexp.default)
def logsumexp(g, x, dims, keepdim=False):
    """log(sum(exp(x))), computed from the differences to the row's maximum, so that nothing overflows. A row with an infinite maximum
    stays infinite."""
    need_kernel_dtypes(x)
    dtype = info_of(x).dtype if info_of(x).dtype.is_floating_point else torch.get_default_dtype()
    x = g.cast(x, opmath(dtype))
    largest = g.reduce("amax", x, dims, True)
    largest = g.select(g.isinf(largest), 0.0, largest)
    logarithm = g.log(g.reduce("sum", g.exp(g.sub(x, largest)), dims, keepdim))
    dims = dimensions(dims, info_of(x).rank)
    return g.cast(g.add(logarithm, largest if keepdim else squeeze(g, largest, dims)), dtype)


@imports(aten.linalg_vector_norm.default)
def vector_norm(g, x, ord=2, dims=None, keepdim=False, *, dtype=None):
    need_floats(x)
    if not isinstance(ord, int | float):
        raise NotOurs("a norm of an order that only a call says")
    dtype = dtype or info_of(x).dtype
    need_kernel_dtypes(dtype)
    x = g.cast(x, opmath(dtype))
    info = info_of(x)
    if ord == 1:
        folded = g.reduce("sum", g.abs(x), dims, keepdim)
    elif ord == 0:
        folded = g.reduce("sum", g.cast(g.ne(x, 0.0), info.dtype), dims, keepdim)
    elif abs(ord) == math.inf:
        folded = g.reduce("amax" if ord > 0 else "amin", g.abs(x), dims, keepdim)
    else:
        folded = p_norm(g, x, ord, dims, keepdim)
    return g.cast(folded, dtype)


def p_norm(g, x, ord, dims, keepdim):
    """The root of the sum of powers; of one element its size, as in eager, since its power may overflow or vanish."""
    info = info_of(x)
    elements = count(info, dimensions(dims, info.rank))
    size = g.abs(x)
    if elements == 1:
        return g.reduce("sum", size, dims, keepdim)
    powers = g.mul(x, x) if ord == 2 else g.pow(size, float(ord))
    root = lambda folded: g.sqrt(folded) if ord == 2 else g.pow(folded, 1 / ord)
    if not isinstance(elements, symbols.Expr):
        return root(g.reduce("sum", powers, dims, keepdim))
    alone = g.eq(g.size(elements, torch.int64), 1)
    folded = g.reduce("sum", g.select(alone, size, powers), dims, keepdim)
    return g.select(alone, folded, root(folded))


@imports(aten.norm.Scalar, aten.norm.ScalarOpt_dim, aten.norm.ScalarOpt_dim_dtype, aten.norm.ScalarOpt_dtype)
def norm(g, x, p=2, dims=None, keepdim=False, *, dtype=None):
    return vector_norm(g, x, 2 if p is None else p, dims, keepdim, dtype=dtype)


@imports(aten.renorm.default)
def renorm(g, x, p, dim, maxnorm):
    """x, in which each slice x[..., i, ...] along `dim` whose p-norm is above `maxnorm` is scaled down to it."""
    need_floats(x)
    info = info_of(x)
    if not all(isinstance(n, int | float) for n in (p, maxnorm)):
        raise NotOurs("norms of an order, or up to a size, that only a call says")
    wide = torch.float64 if info.device == "cpu" and info.dtype == torch.float32 else opmath(info.dtype)
    others = [d for d in range(info.rank) if d != dim % info.rank]
    size = vector_norm(g, x, p, others, True, dtype=wide)
    factor = g.select(g.gt(size, float(maxnorm)), g.div(float(maxnorm), g.add(size, 1e-7)), 1.0)
    return g.mul(x, g.cast(factor, info.dtype))


@imports(aten.dot.default, aten.vdot.default)
def dot(g, x, y):
    need_floats(x, y)
    wide = opmath(info_of(x).dtype)
    return g.cast(g.reduce("sum", g.mul(g.cast(x, wide), g.cast(y, wide)), None), info_of(x).dtype)
