"""Pooling over windows of the last dimensions, and its gradients.

The window is unrolled: the kernel has no inner dimension, runs along the result's rows, and fuses with what follows. A gradient scatters
nothing: each element asks the windows that reach it.
"""

import math
from itertools import product
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ext, ir
from mlirc.dialects.core.dialect import Op, attribute_value, create, imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.import_arguments import need_floats, need_kernel_dtypes
from mlirc.dialects.core.kernel_ops import identity
from mlirc.dialects.core.symbols import known_nonnegative, maximum, minimum
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, opmath, type_of

aten = torch.ops.aten
MOST_WINDOWS = 16  # that an element is asked about in, for a gradient
MOST_PICKED = 4  # the largest stride at which vectors are picked out of others (lowering/kernel/axes.py)
LARGEST_WINDOW = 64  # elements; unrolled, a larger one makes a long kernel for no gain over ATen's loop


class Windows:
    """The windows of a pooling op, or of another with these attributes: text lists, one entry for each pooled dimension.

    window   elements of a window        stride    elements from one window to the next
    padding  before the first element    dilation  elements from one of a window's elements to the next
    x        the image                   result    what has an element for each window, in the same dimensions
    """

    def __init__(self, op, x=None, result=None):
        self.x, self.result = x or info_of(op.operands[0]), result or info_of(op.results[0])
        names = ("window", "stride", "padding", "dilation")
        self.window, self.stride, self.padding, self.dilation = (
            symbols.parse_numbers(attribute_value(op.attributes[name])) for name in names
        )
        self.pooled = range(self.x.rank - len(self.window), self.x.rank)  # dimensions

    def elements(self, k):
        """For each element of the window its index in x, and a mask of the windows where that is inside x (None: all)."""
        for offsets in product(*(range(n) for n in self.window)):
            at, mask = list(k.dims), None
            for j, d in enumerate(self.pooled):
                first = offsets[j] * self.dilation[j] - self.padding[j]
                at[d] = k.dims[d] * self.stride[j] + first
                if first < 0:
                    mask = both(k, mask, k.ge(k.size(at[d]), 0))
                if not known_nonnegative(self.x.shape[d] - 1 - self.last_start(j, d) - first):
                    mask = both(k, mask, k.lt(k.size(at[d]), k.size(self.x.shape[d])))
            yield at, mask

    def are_rows(self):
        """Whether windows lie apart in memory's order, more than a few elements from one to the next: a vector of neighbouring windows would be
        gathered element by element, where one along a window's row is a load."""
        step, row = self.stride[-1], self.window[-1]
        return self.x.stride[-1] == 1 and self.dilation[-1] == 1 and MOST_PICKED < row <= step

    def inner_element(self, k):
        """Like one of `elements`, the one that the kernel's inner dimensions count."""
        at, mask = list(k.dims[: self.x.rank]), None
        for j, d in enumerate(self.pooled):
            at[d] = k.dims[d] * self.stride[j] + k.inner_dims[j] * self.dilation[j] - self.padding[j]
            if self.padding[j]:
                mask = both(k, mask, k.ge(k.size(at[d]), 0))
            apart = (self.window[j] - 1) * self.dilation[j] - self.padding[j]
            if not known_nonnegative(self.x.shape[d] - 1 - self.last_start(j, d) - apart):
                mask = both(k, mask, k.lt(k.size(at[d]), k.size(self.x.shape[d])))
        return at, mask

    def last_start(self, j, d):
        return (self.result.shape[d] - 1) * self.stride[j]

    def first_inside(self, k):
        """The index of the window's first element that is inside."""
        at = list(k.dims)
        for j, d in enumerate(self.pooled):
            start = k.dims[d] * self.stride[j] - self.padding[j]
            apart = self.dilation[j]
            at[d] = start + symbols.floordiv(maximum(start * -1 + (apart - 1), 0), apart) * apart
        return at

    def flat(self, at):
        """An index in the pooled dimensions taken as one."""
        place = 0
        for d in self.pooled:
            place = place * self.x.shape[d] + at[d]
        return place

    def reaching(self, k, exactly):
        """For each window that may hold a point of the image: its index in the result, how far it starts before the point in each pooled
        dimension, and a mask of the points where there is such a window; `exactly`: where it also reaches as far as the point."""
        for back in product(*(range(n) for n in windows_reached(self.window, self.stride, self.dilation))):
            at, before, mask = list(k.dims), [], None
            for j, d in enumerate(self.pooled):
                step, apart = self.stride[j], (self.window[j] - 1) * self.dilation[j]
                place = k.dims[d] + self.padding[j]
                at[d] = symbols.floordiv(place, step) - back[j]  # of the last that starts before, or of an earlier one
                before.append(symbols.mod(place, step) + back[j] * step)
                last = symbols.floordiv(self.x.shape[d] - 1 + self.padding[j], step) - back[j]
                if not known_nonnegative(self.result.shape[d] - 1 - last):
                    mask = both(k, mask, k.lt(k.size(at[d]), k.size(self.result.shape[d])))
                if back[j]:
                    mask = both(k, mask, k.ge(k.size(at[d]), 0))
                if exactly and (back[j] + 1) * step - 1 > apart:
                    mask = both(k, mask, k.le(k.size(before[j]), apart))
            yield at, before, mask

    def counted(self, at, include_padding):
        """How many elements the mean of the window at index `at` divides by, as eager counts them."""
        counts = []
        for j, d in enumerate(self.pooled):
            size, window, padding = self.x.shape[d], self.window[j], self.padding[j]
            start = at[d] * self.stride[j] - padding
            reach = self.last_start(j, d) - padding + window  # the end of the last window
            end = start + window
            if not known_nonnegative(size + padding - reach):
                end = minimum(end, size + padding)
            if not include_padding:
                if padding:
                    start = maximum(start, 0)
                if not known_nonnegative(size - reach):
                    end = minimum(end, size)
            counts.append(end - start)
        return symbols.product(counts)


class Pool(Op, traits=[ext.Pure]):
    """What is computed of each window of x (Windows)."""

    x: ext.Operand[Any]
    window: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]


class MaxPool(Pool, name="max_pool"):
    """The largest element of each window; NaN wins."""

    @staticmethod
    def kernel(make, op):
        x, info = op.operands[0], info_of(op.results[0])
        k = make(info.shape, label="max_pool")
        best = None
        for at, mask in Windows(op).elements(k):
            value = inside_or(k, k.read(x, at, mask=mask), mask, identity("max", info.dtype))
            best = value if best is None else k.maximum(value, best)  # of two zeros the first
        return k.finish([(best, k.dims, info)])


class MaxPoolIndex(Pool, name="max_pool_index"):
    """The position of each window's largest element: its index in the pooled dimensions taken as one."""

    @staticmethod
    def kernel(make, op):
        x, info = op.operands[0], info_of(op.results[0])
        windows = Windows(op)
        k = make(info.shape, label="max_pool_index")
        best = k.constant(identity("max", windows.x.dtype), windows.x.dtype)
        place = k.size(windows.flat(windows.first_inside(k)))
        for at, mask in windows.elements(k):
            value = inside_or(k, k.read(x, at, mask=mask, rounded=True), mask, identity("max", windows.x.dtype))
            better = k.gt(value, best)
            if windows.x.dtype.is_floating_point:
                better = k.logical_or(better, k.isnan(value))
            best, place = k.select(better, value, best), k.select(better, k.size(windows.flat(at)), place)
        return k.finish([(place, k.dims, info)])


class MaxPoolBackward(Op, name="max_pool_backward", traits=[ext.Pure]):
    """The gradient by the input of max_pool: at each element, the sum of `grad` over the windows whose largest it is.

    index   as max_pool_index gives it. An element is asked about in the windows that reach it; nothing is scattered
    window  and the others as in max_pool
    """

    grad: ext.Operand[Any]
    index: ext.Operand[Any]
    window: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        (grad, index), info = op.operands, info_of(op.results[0])
        k = make(info.shape, label="max_pool_backward")
        windows = Windows(op, info, info_of(grad))
        here, total = k.size(windows.flat(k.dims)), k.constant(0.0, opmath(info.dtype))  # to which -0.0 is added
        for at, _, mask in windows.reaching(k, exactly=False):
            chosen = k.eq(k.read(index, at, mask=mask), here)
            total = k.add(total, k.select(chosen, k.read(grad, at, mask=mask), 0.0))
        return k.finish([(total, k.dims, info)])


def windows_reached(window, stride, dilation):
    """How many windows, one after another, may hold an element, in each dimension."""
    return [(n - 1) * apart // step + 1 for n, step, apart in zip(window, stride, dilation, strict=True)]


class AvgPool(Pool, name="avg_pool"):
    """The mean of each window, elements outside counting as 0.

    divisor  what the sum is divided by: "window" the elements in x and in the padding, "inside" those in x, or a number
    """

    divisor: ir.StringAttr

    @staticmethod
    def kernel(make, op):
        x, info = op.operands[0], info_of(op.results[0])
        windows, divisor = Windows(op), attribute_value(op.attributes["divisor"])
        if windows.are_rows():
            k = make(info.shape, windows.window, label="avg_pool")
            at, mask = windows.inner_element(k)
            total = k.reduce("sum", k.read(x, at, mask=mask))
        else:
            k = make(info.shape, label="avg_pool")
            total = k.constant(0.0, opmath(info.dtype))
            for at, mask in windows.elements(k):
                total = k.add(total, k.read(x, at, mask=mask))
        if divisor in ("window", "inside"):
            count = windows.counted(k.parallel_dims, divisor == "window")
        else:
            count = int(divisor)
        return k.finish([(k.div(total, number(k, count, info.dtype)), k.parallel_dims, info)])


class AvgPoolBackward(Op, name="avg_pool_backward", traits=[ext.Pure]):
    """The gradient by the input of avg_pool: at each element, the sum over its windows of `grad` over what the mean divides by.

    window  and the others as in avg_pool
    """

    grad: ext.Operand[Any]
    window: ir.StringAttr
    stride: ir.StringAttr
    padding: ir.StringAttr
    dilation: ir.StringAttr
    divisor: ir.StringAttr
    out: ext.Result[Any]

    @staticmethod
    def kernel(make, op):
        grad, info = op.operands[0], info_of(op.results[0])
        windows, divisor = Windows(op, info, info_of(grad)), attribute_value(op.attributes["divisor"])
        k = make(info.shape, label="avg_pool_backward")
        total = k.constant(0.0, opmath(info.dtype))
        for at, _, mask in windows.reaching(k, exactly=True):
            count = windows.counted(at, divisor == "window") if divisor in ("window", "inside") else int(divisor)
            part = k.read(grad, at, mask=mask)
            if not isinstance(count, int):
                part = inside_or(k, k.div(part, number(k, count, info.dtype)), mask, 0.0)
            elif count != 1:
                part = k.div(part, float(count))
            total = k.add(total, part)
        return k.finish([(total, k.dims, info)])


def number(k, count, dtype):
    """A count of elements as a number that `dtype` is computed with."""
    return float(count) if isinstance(count, int) else k.cast(k.size(count), opmath(dtype))


def both(k, mask, other):
    return other if mask is None else k.logical_and(mask, other)


def inside_or(k, value, mask, outside):
    return value if mask is None else k.select(mask, value, outside)


@imports(aten.max_pool2d_with_indices.default)
def max_pool2d(g, x, *arguments, **options):
    return max_pool(g, 2, x, *arguments, **options)


@imports(aten.max_pool3d_with_indices.default)
def max_pool3d(g, x, *arguments, **options):
    return max_pool(g, 3, x, *arguments, **options)


@imports(aten.max_pool2d_with_indices_backward.default)
def max_pool2d_backward(g, grad, x, window, stride, padding, dilation, ceil_mode, index):
    """The gradient for images alone: ATen's for volumes is faster than a gather in twice as many windows."""
    need_floats(grad, x)
    attributes = window_attributes(2, window, stride or window, padding, dilation)
    need_few_windows(attributes)
    info = info_of(x)
    result = TensorInfo(info.dtype, info.shape, device=info.device)
    return create("max_pool_backward", [grad, index], [type_of(result)], attributes).out


@imports(aten.avg_pool2d.default)
def avg_pool2d(g, x, *arguments, **options):
    return avg_pool(g, 2, x, *arguments, **options)


@imports(aten.avg_pool3d.default)
def avg_pool3d(g, x, *arguments, **options):
    return avg_pool(g, 3, x, *arguments, **options)


def max_pool(g, rank, x, window, stride=(), padding=0, dilation=1, ceil_mode=False):
    need_kernel_dtypes(x)
    attributes = window_attributes(rank, window, stride or window, padding, dilation)
    value, index = (TensorInfo(dtype, g.out.shape, device=g.out.device) for dtype in (g.out.dtype, torch.int64))
    return (
        create("max_pool", [x], [type_of(value)], attributes).out,
        create("max_pool_index", [x], [type_of(index)], attributes).out,
    )


def avg_pool(g, rank, x, window, stride=(), padding=0, ceil_mode=False, count_include_pad=True, divisor_override=None):
    need_floats(x)
    attributes = window_attributes(rank, window, stride or window, padding, 1)
    attributes["divisor"] = str(divisor_override or ("window" if count_include_pad else "inside"))
    result = TensorInfo(g.out.dtype, g.out.shape, device=g.out.device)
    return create("avg_pool", [x], [type_of(result)], attributes).out


@imports(aten.avg_pool2d_backward.default)
def avg_pool2d_backward(g, grad, x, *arguments):
    return avg_pool_backward(g, 2, grad, x, *arguments)


@imports(aten.avg_pool3d_backward.default)
def avg_pool3d_backward(g, grad, x, *arguments):
    return avg_pool_backward(g, 3, grad, x, *arguments)


def avg_pool_backward(g, rank, grad, x, window, stride, padding, ceil_mode, count_include_pad, divisor_override):
    """The gradient of means. Of windows one element apart it is sums of the same windows over `grad`, of which each begins where the last that
    holds an element does. A mean's divisor is one number, but for windows at an edge of which not all elements count."""
    need_floats(grad, x)
    attributes = window_attributes(rank, window, stride or window, padding, 1)
    window, stride, padding = (symbols.parse_numbers(attributes[name]) for name in ("window", "stride", "padding"))
    shape, device = info_of(x).shape, info_of(x).device
    apart = any(step != 1 for step in stride)
    is_one = bool(divisor_override) or not ((ceil_mode and apart) or (any(padding) and not count_include_pad))
    if is_one:
        grad = g.div(g.cast(grad, opmath(info_of(grad).dtype)), divisor_override or math.prod(window))
    attributes["divisor"] = "1" if is_one else "window" if count_include_pad else "inside"
    if is_one and not apart:
        attributes["padding"] = symbols.print_list([n - 1 - before for n, before in zip(window, padding, strict=True)])
        name = "avg_pool"
    else:
        need_few_windows(attributes)
        name = "avg_pool_backward"
    result = TensorInfo(info_of(grad).dtype if is_one else info_of(x).dtype, shape, device=device)
    return create(name, [grad], [type_of(result)], attributes).out


def need_few_windows(attributes: dict[str, str]) -> None:
    lists = [symbols.parse_numbers(attributes[name]) for name in ("window", "stride", "dilation")]
    if math.prod(windows_reached(*lists)) > MOST_WINDOWS:
        raise NotOurs("the gradient of a pooling whose windows overlap much")


@imports(aten._adaptive_avg_pool2d.default, aten._adaptive_avg_pool3d.default)
def adaptive_avg_pool(g, x, output_size):
    """Adaptive average pooling with windows of one size. Windows of several sizes overlap, and go to ATen."""
    sizes = info_of(x).shape[-len(output_size) :]
    window = [symbols.floordiv(n, m) if m != 0 else 0 for n, m in zip(sizes, output_size, strict=True)]
    if any(not isinstance(w, int) or w * m != n for w, n, m in zip(window, sizes, output_size, strict=True)):
        raise NotOurs(f"adaptive pooling from {sizes} to {tuple(output_size)}")
    return avg_pool(g, len(window), x, window)


def window_attributes(rank, *lists) -> dict[str, str]:
    """Window, stride, padding and dilation as attributes, from ATen's lists, in which one entry stands for all."""
    lists = [[given] if isinstance(given, int) else list(given) for given in lists]
    lists = [given * rank if len(given) == 1 else given for given in lists]
    if not 1 <= math.prod(lists[0]) <= LARGEST_WINDOW:
        raise NotOurs(f"a pooling window of {math.prod(lists[0])} elements")
    names = ("window", "stride", "padding", "dilation")
    return {name: symbols.print_list(given) for name, given in zip(names, lists, strict=True)}
