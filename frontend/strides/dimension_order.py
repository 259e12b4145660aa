"""The order of dimensions in memory that TensorIterator gives a new result (ATen/TensorIterator.cpp, reorder_dimensions).

    x: 4x5, strides 1, 4;   y: 5, stride 1        x + y: strides 1, 4      the first operand with a preference decides
    x: 4x5, strides 0, 1;   y: 4x5, strides 1, 4  x + y: strides 1, 4      one that is expanded has none

Sizes and strides may be symbols (SymInt), which are never 0 or 1, and what is computed of symbols, which may be: a guard is made where two must be
compared and nothing says how, and where the order depends on whether a dimension has one element.
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.frontend.torch_compat.dynamo.symbolic_shapes import statically_known_true

Sizes = Sequence[Any]
Layout = tuple[Sizes, Sizes]  # sizes and strides of an operand


def result_strides(shape: Sizes, operands: Sequence[Layout]) -> tuple:
    """Strides of a new tensor of `shape`, computed element by element from the operands."""
    if all(all_same(sizes, shape) for sizes, _ in operands):  # TensorIteratorBase::fast_set_up
        layouts = [strides for _, strides in operands]
        if all(is_row_major(shape, strides) for strides in layouts):
            return row_major(shape)
        if len(shape) == 4 and all(equal_where_walked(shape, s, channels_last(shape)) for s in layouts):
            return channels_last(shape)
        if all(all_same(strides, layouts[0]) for strides in layouts) and is_dense(shape, layouts[0]):
            return tuple(layouts[0])
    aligned = [broadcast_strides(shape, sizes, strides) for sizes, strides in operands]
    found = order(shape, aligned)
    return row_major(shape) if found == list(reversed(range(len(shape)))) else dense(shape, found)


def order(shape: Sizes, strides: Sequence[Sizes]) -> list[int]:
    """Dimensions, the fastest first."""
    made = list(reversed(range(len(shape))))
    for k in range(1, len(shape)):
        moving = k
        for before in reversed(range(k)):
            sign = _compared(shape, strides, made[before], made[moving])
            if sign > 0:
                made[before], made[moving] = made[moving], made[before]
                moving = before
            elif sign < 0:
                break
    return made


def dense(shape: Sizes, fastest_first: Sequence[int]) -> tuple:
    """Strides without gaps, in that order."""
    strides: list[Any] = [1] * len(shape)
    stride: Any = 1
    for d in fastest_first:
        strides[d] = stride
        stride = stride * shape[d]
    return tuple(strides)


def row_major(shape: Sizes) -> tuple:
    """Strides without gaps, the last dimension the fastest. A size that may be 0 counts as 1, as in eager's empty tensors."""
    return dense([n if at_least_one(n) else torch.sym_max(n, 1) for n in shape], list(reversed(range(len(shape)))))


def at_least_one(size: Any) -> bool:
    return statically_known_true(size >= 1)


def channels_last(shape: Sizes) -> tuple:
    return dense(shape, [1, *reversed(range(2, len(shape))), 0])


def lies_channels_last(shape: Sizes, strides: Sizes) -> bool:
    """What suggest_memory_format says (c10/core/MemoryFormat.h): strides of dimensions of size 1 count."""
    least: Any = 0
    for d in (1, *reversed(range(2, len(shape))), 0):
        if same(shape[d], 0) or same(strides[d], 0):
            return False
        if d == 1:
            least = strides[d]
        elif (d == 0 and same(least, strides[1])) or not at_most(least, strides[d]):
            return False
        least = strides[d] if same(shape[d], 1) else strides[d] * shape[d]
    return True


def is_row_major(shape: Sizes, strides: Sizes) -> bool:
    return equal_where_walked(shape, strides, row_major(shape))


def is_dense(shape: Sizes, strides: Sizes) -> bool:
    """Whether elements have all of the memory between the first and the last, each its own."""
    return equal_where_walked(shape, strides, dense(shape, order(shape, [strides])))


def equal_where_walked(shape: Sizes, strides: Sizes, others: Sizes) -> bool:
    """Whether two layouts are one: strides of dimensions of size 1 do not count, nor those of an empty tensor."""
    if any(same(n, 0) for n in shape):
        return True
    differ = [n for n, a, b in zip(shape, strides, others, strict=True) if not same(a, b)]
    return all(map(may_be_one, differ)) and all(map(is_one, differ))


def viewed_strides(shape: Sizes, strides: Sizes, viewed: Sizes) -> tuple | None:
    """Strides of a view with other sizes, as computeStride finds them (ATen/TensorUtils.cpp); None where that is not known."""
    if not shape:
        return (1,) * len(viewed)
    if any(same(n, 0) for n in shape):
        return tuple(strides) if all_same(shape, viewed) else row_major(viewed)
    made: list[Any] = [0] * len(viewed)
    d, base, of_tensor, of_view = len(viewed) - 1, strides[-1], 1, 1
    for k in reversed(range(len(shape))):
        of_tensor = of_tensor * shape[k]
        if k > 0 and (same(strides[k - 1], of_tensor * base) or is_one(shape[k - 1])):
            continue
        while d >= 0 and (not same(of_view, of_tensor) or same(viewed[d], 1)):
            made[d] = of_view * base
            of_view = of_view * viewed[d]
            d -= 1
        if not same(of_view, of_tensor):
            return None
        if k > 0:
            base, of_tensor, of_view = strides[k - 1], 1, 1
    return None if d >= 0 else tuple(made)


def all_same(a: Sizes, b: Sizes) -> bool:
    return len(a) == len(b) and all(map(same, a, b))


def broadcast_strides(shape: Sizes, sizes: Sizes, strides: Sizes) -> list:
    """An operand's strides in the result's dimensions: 0 where it is broadcast."""
    lead = len(shape) - len(sizes)
    found: list[Any] = [0] * lead
    for d, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        found.append(stride if same(size, shape[lead + d]) or is_one(shape[lead + d]) else 0)
    return found


def _compared(shape: Sizes, strides: Sequence[Sizes], a: int, b: int) -> int:
    """1 where dimension `b` is faster than `a`, -1 where it is slower, 0 where no operand says."""
    for of_operand in strides:
        x, y = of_operand[a], of_operand[b]
        if same(x, 0) or same(y, 0):
            continue
        if same(x, y):
            if not at_most(shape[a], shape[b]):
                return 1
            continue
        return -1 if at_most(x, y) else 1
    return 0


def same(a: Any, b: Any) -> bool:
    """Whether two sizes are the same number: of expressions that are not the same, as the guards that there are say."""
    if isinstance(a, int) and isinstance(b, int):
        return a == b
    if expression(a) == expression(b):
        return True
    x, y = hint(a), hint(b)
    return (x is None or y is None or x == y) and statically_known_true(a == b)


def expression(size: Any) -> Any:
    return size if isinstance(size, int) else size.node.expr


def hint(size: Any) -> int | None:
    """A size at the call that is traced; None where only data says it."""
    if isinstance(size, int):
        return size
    return size.node.hint if size.node.has_hint() else None


def may_be_one(size: Any) -> bool:
    """Whether nothing says that a dimension has another number of elements than one."""
    return size == 1 if isinstance(size, int) else not statically_known_true(size > 1)


def is_one(size: Any) -> bool:
    """Whether a dimension has one element. Where its size may be 1 and may be another, a guard says that it is 0 or 1, or that it is more."""
    if isinstance(size, int):
        return size == 1
    if hint(size) is None:
        return statically_known_true(size == 1)
    return may_be_one(size) and bool(size <= 1)


def at_most(a: Any, b: Any) -> bool:
    """Whether a <= b, of two that are not negative: what divides another number is no larger."""
    if isinstance(a, int) and isinstance(b, int):
        return a <= b
    if statically_known_true(a <= b) or divides(a, b):
        return True
    if statically_known_true(b < a) or divides(b, a):
        return False
    return bool(a <= b)


def divides(a: Any, b: Any) -> bool:
    """Whether b is a multiple of a, which is positive, for all values that are possible. The size of an empty tensor divides nothing."""
    return hint(a) != 0 and statically_known_true(b % a == 0)
