"""Conversions of dtype, and of bits."""

from numbers import Number

import torch

from mlirc.dialects.core.dialect import Unary, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_fits
from mlirc.dialects.core.symbols import Expr
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES

aten = torch.ops.aten
prims = torch.ops.prims


class Cast(Unary, name="cast"):
    """`x.to(dtype)`. Only the result's type names the dtype, so emitters and the interpreter treat this op apart.

    Inside a kernel the body is `b.cast(x, dtype of the result)`. A cast that only widens a read value, or narrows a written one, has the
    attribute {implicit = true}, and fusion drops two of these in a row. A cast before an op that jumps (Elementwise.jumps), or before another
    cast, is never implicit.
    """


class Bitcast(Unary, name="bitcast"):
    """`x.view(dtype)`: the same bits as another dtype of the same width, which is the result's. Treated apart, as `cast` is."""


@imports(aten._to_copy.default)
def to_copy(g, x, *, dtype=None, layout=None, device=None, pin_memory=None, non_blocking=False, memory_format=None):
    if isinstance(x, Number | Expr):  # of a 0-d tensor that is known; it becomes one of the result's dtype
        return x
    info = g.info(x)
    if layout not in (None, torch.strided) or pin_memory:
        raise NotOurs("a conversion to another layout or to pinned memory")
    dtype = dtype or info.dtype
    if g.out is None or g.out.device == info.device:
        return convert(g, x, dtype)
    if dtype != info.dtype:  # what travels is converted first, where it is
        x = convert(g, x, dtype)
    return g.copy(x, g.out)


@imports(prims.convert_element_type.default)
def convert(g, x, dtype):
    info = g.info(x)
    if dtype not in KERNEL_DTYPES or info.dtype not in KERNEL_DTYPES:
        raise NotOurs(f"{info.dtype} to {dtype}: kernels compute with neither complex nor unusual dtypes")
    # settling the result gives it the memory format that was asked for
    return g.copy(x) if dtype == info.dtype else g.cast(x, dtype)


@imports(aten.copy.default)
def copy(g, into, x, non_blocking=False):
    """`x` with the dtype, sizes and device of `into`: the functional form of `into.copy_(x)`."""
    have, want = g.info(x), g.info(into)
    if want.dtype not in KERNEL_DTYPES:
        raise NotOurs(f"a copy of {want.dtype}: kernels compute with neither complex nor unusual dtypes")
    if isinstance(x, Number | Expr):
        need_fits(x, want.dtype)
        return g.fill(x, want.shape, want.dtype)
    if have.dtype != want.dtype:
        x = convert(g, x, want.dtype)
    if have.device != want.device:
        return g.copy(g.expand(x, want.shape), g.out)
    return g.copy(x) if have.shape == want.shape else g.expand(x, want.shape)
