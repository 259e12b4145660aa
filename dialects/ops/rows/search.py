"""Search for numbers: in sorted rows, by halves (searchsorted, bucketize), and whether one is there (isin)."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ext
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_kernel_dtypes
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import info_of, type_of

aten = torch.ops.aten


class Searchsorted(Op, name="searchsorted", traits=[ext.Pure]):
    """How many elements of a row, sorted upwards, are below x; or, with `right`, are not above x.

    rows  [M], or [..., M] with the leading dimensions of x; M is known
    x     [...]

    The steps are eager's, one for each bit of M, so that rows that are not sorted, or have NaNs, give what they give there.
    """

    rows: ext.Operand[Any]
    x: ext.Operand[Any]
    right: Any
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        rows, x = op.operands
        info, (*others, length) = info_of(op.results[0]), info_of(rows).shape
        assert isinstance(length, int)  # the rule sees to that
        k = make(info.shape, label="searchsorted")
        row = k.dims[: len(others)]
        wanted = k.read(x, k.dims, rounded=True)
        start, end = k.size(0), k.size(length)
        reached = k.gt if attribute_value(op.attributes["right"]) else k.ge
        for _ in range(length.bit_length()):
            searching = k.lt(start, end)
            middle = k.shift_right(k.add(start, end), 1)
            inside = k.minimum(k.maximum(middle, 0), length - 1)  # it is, where it searches: for the verifier
            found = k.read(rows, (*row, symbol("i0")), [inside], rounded=True)
            upper = k.logical_and(searching, k.logical_not(reached(found, wanted)))
            start, end = k.select(upper, k.add(middle, 1), start), k.select(upper, end, middle)
        return k.finish([(k.cast(start, info.dtype), k.dims, info)])


@imports(aten.searchsorted.Tensor)
def searchsorted(g, rows, x, *, out_int32=False, right=False, side=None, sorter=None):
    if sorter is not None:
        raise NotOurs("rows that a sorter puts in order")
    if side == "left" and right:
        raise NotOurs("eager refuses both side='left' and right=True")
    need_kernel_dtypes(rows, x)
    of_rows, of_x = info_of(rows), info_of(x)
    if of_rows.dtype != of_x.dtype or of_rows.device != of_x.device or of_x.dtype == torch.bool:
        raise NotOurs(f"a search for {of_x.dtype} in {of_rows.dtype}")
    if of_rows.rank != 1 and (not of_rows.rank or of_rows.shape[:-1] != of_x.shape[:-1]):
        raise NotOurs("eager refuses rows of other leading dimensions")
    if not isinstance(of_rows.shape[-1], int):
        raise NotOurs("a row's length is a symbol, and so is the number of steps")
    return create("searchsorted", [rows, x], [type_of(g.out)], {"right": right or side == "right"}).out


@imports(aten.bucketize.Tensor)
def bucketize(g, x, boundaries, *, out_int32=False, right=False):
    return searchsorted(g, boundaries, x, right=right)


@imports(aten.searchsorted.Scalar)
def searchsorted_number(g, rows, x, *, out_int32=False, right=False, side=None, sorter=None):
    dtype = g.promote(rows, x)
    need_kernel_dtypes(rows, dtype)
    return searchsorted(g, g.cast(rows, dtype), g.cast(x, dtype), right=right, side=side, sorter=sorter)


@imports(aten.bucketize.Scalar)
def bucketize_number(g, x, boundaries, *, out_int32=False, right=False):
    return searchsorted_number(g, boundaries, x, right=right)


@imports(aten.isin.Tensor_Scalar)
def is_number(g, x, number, *, assume_unique=False, invert=False):
    return g.ne(x, number) if invert else g.eq(x, number)


@imports(aten.isin.Scalar_Tensor)
def number_is_in(g, number, x, *, assume_unique=False, invert=False):
    found = g.reduce("any", g.eq(x, number), None, False, torch.bool)
    return g.logical_not(found) if invert else found
