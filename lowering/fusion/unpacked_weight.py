"""Weights that are unpacked, of words of several numbers or of bytes: the scalar work that gives one element, within a kernel.

%0 = "mlirc.shift_right"(%w, %amount)   %1 = "mlirc.bitwise_and"(%0, 15)   %2 = "mlirc.view"(%1)      eight numbers of a word
%3 = "mlirc.index"(%2, %order)                                                                         columns in another order
%4 = "mlirc.sub"(%3, %zero)   %5 = "mlirc.mul"(%4, %scale)                                             numbers of groups
"""

from collections.abc import Sequence
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, attribute_value
from mlirc.dialects.core.graph_ops import Copy, View
from mlirc.dialects.core.kernel_builder import KernelBuilder, Scalar
from mlirc.dialects.core.kernel_forms import broadcast_map, convert, operand
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of, opmath
from mlirc.dialects.ops.movement.concat_pad import Concat
from mlirc.dialects.ops.movement.indexing import Indexed
from mlirc.lowering.fusion.quantised_weight import through_view

PACKED_DTYPES = (torch.int32, torch.int64)
FRACTION = 16  # what has fewer than this part of the weight's elements, zeros of groups say, may be in memory


class UnpackedWeight:
    """The elements of a weight in a kernel.

    ranges      sizes of the kernel's dimensions
    elements    of the weight
    in_memory   whether something large that the graph computes is read from memory all the same
    tensors     what is read
    """

    def __init__(self, k: KernelBuilder, ranges: dict[str, int], elements: int):
        self.k, self.ranges, self.elements = k, ranges, elements
        self.scalars: dict[str, ir.Value] = {}
        self.in_memory, self.tensors = False, set[ir.Value]()

    def element(self, x: ir.Value, index: Sequence[Int], covers: bool = True, rounded: bool = False) -> Scalar:
        """The element of `x` at `index`, in the dtype that work on it is done in.

        covers    whether the kernel goes over all elements of `x`: only then is every index of a gather checked
        rounded   whether a half type is rounded to
        """
        op, info = x.owner, info_of(x)
        made = None if isinstance(op, ir.Block) else self.worked(op, x, index, covers, rounded)
        if made is None:
            self.in_memory |= (
                not isinstance(op, ir.Block) and self.is_large(x) and op.operation.name.startswith("mlirc.")
            )
            return self.read(x, index, rounded)
        return self.k.cast(made, opmath(info.dtype))

    def worked(self, op: Any, x: ir.Value, index: Sequence[Int], covers: bool, rounded: bool) -> Scalar | None:
        """What an op gives there; None where it had better be read from memory."""
        if isinstance(op, View):
            base = through_view(op, index, self.ranges)
            covers = covers and is_one_to_one(op)
            return None if base is None else self.element(base.tensor, base.index, covers, rounded)
        if isinstance(op, Copy):
            return self.element(op.x, index, covers, rounded)
        if op.operation.name == "mlirc.cast":
            (source,) = op.operands
            return convert(self.k, self.element(source, index, covers, True), info_of(x).dtype)
        if not self.is_large(x) or len(list(x.uses)) != 1:
            return None
        if isinstance(op, Indexed):
            return self.gathered(op, index) if covers else None
        if isinstance(op, Concat):
            return self.stacked(op, index, covers, rounded)
        dtypes = [info_of(y).dtype for y in (*op.operands, x)]
        if op.operation.name == "mlirc.bitcast":
            if any(dtype.is_floating_point for dtype in dtypes):
                return None
            return self.k.bitcast(self.element(op.operands[0], index, covers), dtypes[-1])
        if not isinstance(op, Elementwise):
            return None
        jumps, attributes = type(op).jumps, {n: a for n, a in op.attributes.items() if not n.startswith("mlirc.")}
        given = [self.element(y, broadcast_map(y, index), covers, jumps) for y in op.operands]
        made = self.k.apply(type(op), *given, attributes=attributes)
        return convert(self.k, made, dtypes[-1]) if rounded else made

    def is_large(self, x: ir.Value) -> bool:
        elements = info_of(x).numel
        return isinstance(elements, int) and elements * FRACTION >= self.elements

    def read(self, x: ir.Value, index: Sequence[Int], rounded: bool) -> Scalar:
        self.tensors.add(x)
        names = sorted({name for at in index for name in symbols.free_symbols(at)} & self.scalars.keys())
        if not names:
            return operand(self.k, x, index, rounded)
        place = {name: symbols.symbol(f"i{number}") for number, name in enumerate(names)}
        map_ = [symbols.substitute(at, place) for at in index]
        return self.k.read(x, map_, [self.scalars[name] for name in names], rounded=rounded)

    def gathered(self, op: Any, index: Sequence[Int]) -> Scalar:
        """x[:, i] at `index`, which the kernel goes over for all of `i`."""
        x, *indices = op.operands
        named = {name: attribute_value(op.attributes[name]) for name in ("dims", "place", "wraps", "message")}
        first, last = named["place"], named["place"] + max(info_of(i).rank for i in indices)
        dims, names = symbols.parse_numbers(named["dims"]), []
        for number, (i, dim) in enumerate(zip(indices, dims, strict=True)):
            at = self.element(i, broadcast_map(i, index[first:last]))
            message = named["message"].replace("{dim}", str(number))
            names.append(f"i{len(self.scalars)}")
            self.scalars[names[-1]] = self.k.check_index(at, info_of(x).shape[dim], named["wraps"], message)
        others = iter((*index[:first], *index[last:]))
        place = [symbols.symbol(names[dims.index(d)]) if d in dims else next(others) for d in range(info_of(x).rank)]
        return self.element(x, place, False)

    def stacked(self, op: Any, index: Sequence[Int], covers: bool, rounded: bool) -> Scalar | None:
        """The element of what is stacked in a dimension; None where more than one lies side by side there."""
        dim = attribute_value(op.attributes["dim"])
        if (
            any(info_of(y).shape[dim] != 1 for y in op.operands)
            or symbols.free_symbols(index[dim]) & self.scalars.keys()
        ):
            return None
        at = (*index[:dim], 0, *index[dim + 1 :])
        *parts, value = (self.element(y, at, covers, rounded) for y in op.operands)
        for number, part in reversed([*enumerate(parts)]):
            value = self.k.select(self.k.eq(self.k.size(index[dim]), number), part, value)
        return value


def is_one_to_one(op: Any) -> bool:
    """Whether a view shows each element of what it views once."""
    seen, given = info_of(op.out), info_of(op.x)
    return seen.numel == given.numel and seen.is_dense and given.is_dense
