"""Writes to a diagonal, and what is zero around one: the gradient of `diagonal`, `diag_embed`; the sum of a diagonal."""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import dimension, need_kernel_dtypes, need_shape, on_device
from mlirc.dialects.core.symbols import Int, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.ops.movement.concat_pad import zeros
from mlirc.dialects.ops.rows.scan import accumulator

aten = torch.ops.aten


@imports(aten.diagonal_scatter.default)
def diagonal_scatter(g, x, src, offset=0, dim1=0, dim2=1):
    """x, where its elements with column - row = offset are those of `src`.

    x       [..., N, ..., M, ...], rows along `dim1`, columns along `dim2`
    src     [..., K], as `diagonal` gives them
    offset  an int: 0 or more counts columns from the first, a negative one rows
    """
    need_kernel_dtypes(x, src)
    if not isinstance(offset, int):
        raise NotOurs("a diagonal at an offset that is not known")
    info = info_of(x)
    row, column = dimension(dim1, info.rank), dimension(dim2, info.rank)
    if info.rank < 2 or row == column:
        raise NotOurs("eager refuses these dimensions")
    others = [d for d in range(info.rank) if d not in (row, column)]
    length = diagonal_length(info.shape[row], info.shape[column], offset)
    need_shape(src, (*(info.shape[d] for d in others), length), "a diagonal")
    along, across = (row, column) if offset >= 0 else (column, row)  # an element's index along the first is that in src
    source = lengthened(on_device(g.cast(src, info.dtype), info.device), info.shape[along])
    order = [*others, along, across]
    source = g.permute(g.unsqueeze(source, info.rank - 1), [order.index(d) for d in range(info.rank)])
    first = min(row, column)
    sizes = [n if d in (row, column) else 1 for d, n in enumerate(info.shape)][first:]
    place = g.iota(sizes, symbol(f"d{column - first}") - symbol(f"d{row - first}"))
    return g.select(g.eq(place, offset), source, x)


def diagonal_length(rows: Int, columns: Int, offset: int) -> Int:
    """How many elements a diagonal has."""
    return symbols.maximum(symbols.minimum(rows + min(offset, 0), columns - max(offset, 0)), 0)


def lengthened(x: ir.Value, size: Int) -> ir.Value:
    """x with zeros after its last dimension, up to `size` elements."""
    info = info_of(x)
    if info.shape[-1] == size:
        return x
    result: Any = type_of(TensorInfo(info.dtype, (*info.shape[:-1], size), device=info.device))
    return create("pad", [x], [result], {"low": symbols.print_list([0] * info.rank), "value": "0"}).out


@imports(aten.diagonal_backward.default)
def diagonal_backward(g, grad, sizes, offset, dim1, dim2):
    return diagonal_scatter(g, zeros(g, grad, sizes), grad, offset, dim1, dim2)


@imports(aten.diag_embed.default)
def diag_embed(g, x, offset=0, dim1=-2, dim2=-1):
    return diagonal_scatter(g, zeros(g, x, g.out.shape), x, offset, dim1, dim2)


@imports(aten.trace.default)
def trace(g, x):
    """The sum of a matrix's diagonal, in int64 where it is of integers."""
    info = info_of(x)
    need_kernel_dtypes(x)
    if info.dtype == torch.bool:
        raise NotOurs("a trace of truth values")
    rows, columns = info.shape
    d = symbol("d0")
    view = g.view(x, (diagonal_length(rows, columns, 0),), (sum(info.stride),), [d, d])
    return g.reduce("sum", view, (0,), dtype=accumulator(info.dtype) if info.dtype.is_floating_point else torch.int64)
