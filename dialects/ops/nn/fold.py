"""im2col and col2im of images, which unfold and fold call: the windows as columns, and such columns added up to images.

Neither scatters: an element of a column reads its image, and a pixel asks the windows that reach it.
"""

from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, create, imports
from mlirc.dialects.core.import_arguments import need_floats
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath, type_of
from mlirc.dialects.ops.movement.concat_pad import constant_pad
from mlirc.dialects.ops.movement.reindex import places, reindex
from mlirc.dialects.ops.nn.pooling import Windows, both, need_few_windows, window_attributes

aten = torch.ops.aten


class AddWindows(Op, name="add_windows", traits=[ext.Pure]):
    """Images of their windows: each pixel is the sum of what the windows that hold it have for it.

    x        [..., elements of a window, windows]: of images, two dimensions and two
    window   and the others as in max_pool
    out      [..., height, width]
    """

    x: ext.Operand[Any]
    window: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        x, info = op.operands[0], info_of(op.results[0])
        k = make(info.shape, label="add_windows")
        shape, lead = info_of(x).shape, info.rank - 2
        windows = Windows(op, info, TensorInfo(info.dtype, (*shape[:lead], *shape[-2:])))
        total = k.constant(0.0, opmath(info.dtype))  # to which -0.0 is added
        for at, before, mask in windows.reaching(k, exactly=True):
            for distance, apart in zip(before, windows.dilation, strict=True):
                if apart > 1:
                    mask = both(k, mask, k.eq(k.size(symbols.mod(distance, apart)), 0))
            element = [symbols.floordiv(n, apart) for n, apart in zip(before, windows.dilation, strict=True)]
            total = k.add(total, k.read(x, [*at[:lead], *element, *at[lead:]], mask=mask))
        return k.finish([(total, k.dims, info)])


@imports(aten.im2col.default)
def im2col(g, x, window, dilation, padding, stride):
    need_floats(x)
    (kh, kw), (dh, dw), (sh, sw) = window, dilation, stride
    x = constant_pad(g, x, [padding[1], padding[1], padding[0], padding[0]])
    *lead, channels, height, width = info_of(x).shape
    rows = symbols.floordiv(height - (kh - 1) * dh - 1, sh) + 1
    columns = symbols.floordiv(width - (kw - 1) * dw - 1, sw) + 1
    shape = (*lead, channels, kh, kw, rows, columns)
    *d, i, j, row, column = places(len(shape))
    made = reindex(x, shape, [*d, row * sh + i * dh, column * sw + j * dw])
    *d, element, place = places(len(lead) + 2)
    index = [*d, element // (kh * kw), symbols.mod(element, kh * kw) // kw, symbols.mod(element, kw)]
    index += [symbols.floordiv(place, columns), symbols.mod(place, columns)]
    last = rows * columns
    result = TensorInfo(info_of(made).dtype, (*lead, channels * kh * kw, last))
    return g.view(made, result.shape, result.stride, index)


@imports(aten.col2im.default)
def col2im(g, x, output_size, window, dilation, padding, stride):
    need_floats(x)
    attributes = window_attributes(2, window, stride, padding, dilation)
    need_few_windows(attributes)
    (kh, kw), info = window, info_of(x)
    *lead, elements, _ = info.shape
    channels = symbols.floordiv(elements, kh * kw)
    rows, columns = (
        symbols.floordiv(n + 2 * before - (k - 1) * apart - 1, step) + 1
        for n, before, k, apart, step in zip(output_size, padding, window, dilation, stride, strict=True)
    )
    *d, channel, i, j, row, column = places(len(lead) + 5)
    element, place = info.stride[-2:]
    split = g.view(
        x,
        (*lead, channels, kh, kw, rows, columns),
        (*info.stride[:-2], kh * kw * element, kw * element, element, columns * place, place),
        [*d, channel * (kh * kw) + i * kw + j, row * columns + column],
    )
    result = TensorInfo(info.dtype, (*lead, channels, *output_size), device=info.device)
    return create("add_windows", [split], [type_of(result)], attributes).out
