"""Index arithmetic as Triton text: what an axis, an address or a size is at the points of a tile.

axes (4, 128, 768), x over all of them     x // 98304, x // 768 % 128, x % 768
address 98304*d0 + 768*d1 + d2             x
"""

from collections.abc import Mapping, Sequence

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.lowering.gpu.triton.builder import Lines, TritonValue
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, TritonTile
from mlirc.lowering.kernel.nodes import Linear, is_dim, is_index

EMPTY: frozenset[str] = frozenset()
LARGEST = 2**31 - 1


class Indices:
    """Writes index expressions in `dtype`, int32 where no offset is larger, else int64. A part that int32 may not hold is in int64.

    ranges   the size of each axis
    tiles    the tile dimensions, by name
    """

    def __init__(self, lines: Lines, schedule: TritonSchedule, dtype: torch.dtype):
        self.lines, self.dtype = lines, dtype
        self.tiles: dict[str, TritonTile] = {tile.name: tile for tile in schedule.tiles}
        axes = [*schedule.programs, *(a for tile in schedule.tiles for a in tile.axes)]
        self.ranges: dict[str, Int] = {a.name: a.size for a in axes}
        self.tile_of = {a.name: tile for tile in schedule.tiles for a in tile.axes}
        self.known: dict[tuple, TritonValue] = {}  # what has a variable here

    # ---- the indices of axes

    def run(self, tile: TritonTile, first: int, last: int) -> TritonValue:
        """The index in the axes first..last of a tile dimension, taken as one."""
        axes = tile.axes
        if all(a.size == 1 for a in axes[:first]) and last == len(axes) - 1:
            return self.known[tile.name,]
        key = (tile.name, first, last)
        if key not in self.known:
            base = self.known[tile.name,]
            below = symbols.product(a.size for a in axes[last + 1 :])
            text = str(base) if below == 1 else f"{base} // {self.number(below)}"
            if first > 0:
                text += f" % {self.number(symbols.product(a.size for a in axes[first : last + 1]))}"
            self.known[key] = self.lines.name(text, self.dtype, base.tile)
        return self.known[key]

    def axis(self, name: str) -> TritonValue:
        tile = self.tile_of.get(name)
        if tile is None:
            return self.known[name,]
        place = next(k for k, a in enumerate(tile.axes) if a.name == name)
        return self.run(tile, place, place)

    def number(self, value: Int) -> str:
        """A size as an operand."""
        text = str(self.write(value))
        return text if text.isidentifier() or text.isdigit() else f"({text})"

    # ---- expressions

    def linear(self, linear: Linear, scalars: Sequence[TritonValue] = ()) -> TritonValue:
        """A Linear at the points of the tile; neighbours that an access steps through as through one are one."""
        parts: list[TritonValue] = []
        left = dict(linear.strides)
        for tile in self.tiles.values():
            last = len(tile.axes) - 1
            while last >= 0:
                stride = left.pop(tile.axes[last].name, 0)
                first = last
                if stride != 0:
                    reach = stride * tile.axes[last].size
                    while first > 0 and left.get(tile.axes[first - 1].name, 0) == reach:
                        first -= 1
                        reach = reach * tile.axes[first].size
                        left.pop(tile.axes[first].name, None)
                    parts.append(self.scaled(self.run(tile, first, last), stride))
                last = first - 1
        for name, stride in left.items():
            if stride != 0:
                parts.append(self.scaled(self.axis(name), stride))
        if linear.rest != 0 or not parts:
            parts.append(self.write(linear.rest, scalars))
        return TritonValue(" + ".join(parts), self.dtype, EMPTY.union(*(p.tile for p in parts)))

    def scaled(self, index: TritonValue, stride: Int) -> TritonValue:
        if stride == 1:
            return index
        return TritonValue(f"{index} * {self.number(stride)}", self.dtype, index.tile)

    def write(self, value: Int, scalars: Sequence[TritonValue] = (), wide: bool = False) -> TritonValue:
        """An expression in axes, symbols and the indices i0, i1, ... of `scalars`; `wide`: in int64 whatever it takes."""
        if isinstance(value, int):
            return TritonValue(str(value), self.dtype, number=value)
        total, tile = "", EMPTY
        for monomial, coefficient in value.terms.items():
            factors = []
            for atom in monomial:
                factor = self.atom(atom, scalars, wide)
                tile |= factor.tile
                factors.append(str(factor))
            sign = "-" if coefficient < 0 else "+"
            if abs(coefficient) != 1 or not factors:
                factors.append(str(abs(coefficient)))
            text = " * ".join(factors)
            if total:
                total += f" {sign} {text}"
            else:
                total = text if sign == "+" else f"-{text}" if not monomial else f"0 - {text}"
        return TritonValue(total, torch.int64 if wide else self.dtype, tile)

    def atom(self, atom: symbols.Atom, scalars: Sequence[TritonValue], wide: bool) -> TritonValue:
        """A factor, in parentheses where it is more than a name."""
        if isinstance(atom, str):
            if not is_index(atom) and not is_dim(atom):
                return TritonValue(atom, torch.int64)
            index = scalars[int(atom[1:])] if is_index(atom) else self.axis(atom)
            return TritonValue(f"{index}.to(tl.int64)", torch.int64, index.tile) if wide and self.narrow else index
        name, a, b = symbols.with_positive_divisor(atom)
        wide = wide or not (self.fits(a) and self.fits(b))
        x, y = (self.write(v, scalars, wide) for v in (a, b))
        tile = x.tile | y.tile
        if name in ("max", "min"):
            return TritonValue(f"tl.{name}imum({x}, {y})", self.dtype, tile)
        left, right = (v if str(v).isidentifier() or str(v).isdigit() else f"({v})" for v in (x, y))
        if name == "floordiv":
            text = f"{left} // {right}"
            if not self.is_nonnegative(a):  # Triton rounds towards zero
                text += f" - ({left} % {right} < 0).to(tl.int32)"
        elif self.is_nonnegative(a):
            text = f"{left} % {right}"
        else:
            text = f"({left} % {right} + {right}) % {right}"
        if name == "mod" and b != atom[2]:
            text = f"({text}) * ({self.write(symbols.sign(atom[2]), scalars, wide)})"
        return TritonValue(f"({text})", self.dtype, tile)

    def bounds(self, first: str, last: Int, step: int, name: str) -> str:
        """A loop's `first, last, name`, where `name` is the constant `step`. The index is int64 where int32 cannot hold it:
        Triton would take a number from 2^31 on as uint32, and widen and compare it as if it were signed."""
        if isinstance(last, int) and last + step > LARGEST:
            return ", ".join([*(f"tl.full([], {n}, tl.int64)" for n in (first, last)), name])
        return f"{first}, {self.number(last)}, {name}"

    # ---- what is known of them

    @property
    def narrow(self) -> bool:
        return self.dtype == torch.int32

    def is_nonnegative(self, value: Int) -> bool:
        if symbols.known_nonnegative(value):
            return True
        least = symbols.upper_bound(value * -1, self.ranges)  # of -value, the largest
        return least is not None and symbols.known_nonnegative(least * -1)

    def fits(self, value: Int) -> bool:
        """Whether an expression stays within 32 bits."""
        return fits(value, self.ranges)


def fits(value: Int, ranges: Mapping[str, Int]) -> bool:
    if isinstance(value, Expr) and any(name not in ranges for name in symbols.free_symbols(value)):
        return False
    most, least = (symbols.upper_bound(v, ranges) for v in (value, value * -1))
    return isinstance(most, int) and isinstance(least, int) and max(abs(most), abs(least)) <= LARGEST
