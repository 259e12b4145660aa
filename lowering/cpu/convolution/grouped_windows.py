"""Recognises kernels that are convolutions in groups with an epilogue; grouped.py writes their code.

    parallel = "8, 96, 56, 56", inner = "3, 4, 3"                                         96 filters in 24 groups of 4 channels
    %y = size("d2 + d4 - 1");  %inside = and(ge(%y, 0), lt(%y, 56)), and the same of the width
    %a = read(%x, %inside) {map = "d0, d1//4*4 + d5, d2 + d4 - 1, d3 + d6 - 1"}
    %b = read(%w, %inside) {map = "d1//16, d4, d5, d6, d1 % 16"}
    %m = mul(%a, %b);  %s = reduce(%m) {kind = "sum"};  then any outer values, the epilogue

The op grouped_convolution has this form; dimensions of size 1 are dropped, and a comparison that always holds is not made.
"""

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.cpu.convolution.windows import Taps, WindowedSum, taps_by_dimension, windowed_reads
from mlirc.lowering.kernel.axes import Axis
from mlirc.lowering.kernel.matmul import has_dims
from mlirc.lowering.kernel.nodes import Access, Kernel, Linear


@dataclass(eq=False)
class GroupedSum(WindowedSum):
    """total[row, column, filter] = sum of x[row and column and tap, filter // filters * more.count + channel] * w[tile, down, channel,
    along, lane] over the channels of a group, and the taps inside the image, where tile, lane = divmod(filter, lanes).

    channel   the axis of the filters
    more      the channels of a group, next to each other in x
    filters   filters of a group; the first group's pixels begin at `first_pixel`
    tile      elements from tile to tile of weights, each of as many filters as a vector has lanes; the first at `first_weight`
    """

    filters: int = 0
    first_pixel: Int = 0
    tile: int = 0
    first_weight: Int = 0


def match_groups(kernel: Kernel, lanes: int) -> GroupedSum | None:
    """The kernel as a GroupedSum whose weights lie in tiles of `lanes`, or None where it is none. Leaves `kernel` as it was."""
    found = windowed_reads(kernel)
    if found is None:
        return None
    total, x, w, epilogue = found
    filter_ = next((d for d in kernel.parallel if d in w.address.dims), None)
    if filter_ is None or not isinstance(kernel.parallel[filter_], int):
        return None
    group, tile = group_of(x.address, filter_), tile_of(w.address, filter_, lanes)
    others = [d for d in kernel.parallel if d != filter_]
    if group is None or tile is None or set(others) & w.address.dims:
        return None
    filters, apart, first = group
    inner = list(kernel.inner)
    channels = next((d for d in inner if x.address.strides.get(d) == 1), None)
    if channels is None or kernel.inner[channels] != apart:
        return None
    taps = taps_of(kernel, x, w, channels, set(others))
    if taps is None:
        return None
    more, down, along = taps
    column = next((d for d in others if d == along.window), None)
    if column is None and others and not along.window:
        column = next((d for d in reversed(others) if d != down.window), None)
    if column is not None and column == down.window:
        return None
    axes = {d: Axis(d, kernel.parallel[d], False) for d in (filter_, *others)}
    rows = [axes[d] for d in others if d != column]
    last = axes[column] if column is not None else None
    sizes = axes[filter_], rows, last, more, down, along
    return GroupedSum(kernel, total, x, w, *sizes, epilogue, filters, first, *tile)


def group_of(address: Linear, filter_: str) -> tuple[int, int, Int] | None:
    """The filters of a group, elements of x from group to group, and where the first one's begin; None where `address` has more in
    filters than filter // filters * elements."""
    d, rest = symbols.symbol(filter_), address.rest
    if filter_ in address.strides:  # each is a group of its own
        apart = address.strides[filter_]
        return None if has_dims(rest) or not isinstance(apart, int) else (1, apart, rest)
    if not isinstance(rest, Expr):
        return None
    for monomial, apart in rest.terms.items():
        if len(monomial) == 1 and isinstance(monomial[0], tuple):
            name, a, filters = monomial[0]
            if name == "floordiv" and a == d and isinstance(filters, int):
                left = rest - symbols.floordiv(d, filters) * apart
                return None if has_dims(left) else (filters, apart, left)
    return None


def tile_of(address: Linear, filter_: str, lanes: int) -> tuple[int, Int] | None:
    """Elements from tile to tile of weights, of `lanes` filters next to each other, and where the first one's begin; None where they do
    not lie so."""
    d, rest = symbols.symbol(filter_), address.rest
    if address.strides.get(filter_) == 1:  # all filters are next to each other
        return None if has_dims(rest) else (lanes, rest)
    if filter_ in address.strides or not isinstance(rest, Expr):
        return None
    left = rest - symbols.mod(d, lanes)
    apart = left.terms.get((("floordiv", d, lanes),), 0) if isinstance(left, Expr) else 0
    left = left - symbols.floordiv(d, lanes) * apart
    return None if has_dims(left) else (apart, left)


def taps_of(kernel: Kernel, x: Access, w: Access, channels: str, windows: set[str]) -> tuple[Taps, Taps, Taps] | None:
    """The channels of a group, the taps down and along; None where they are not as a window's."""
    found = taps_by_dimension(kernel, x, w, windows, channels)
    if found is None or found[channels].bounded:
        return None
    more = found.pop(channels)
    names = list(kernel.inner)
    down = next((found[d] for d in names[: names.index(channels)]), Taps())
    along = next((found[d] for d in names[names.index(channels) + 1 :]), Taps())
    return None if len(found) != bool(down.name) + bool(along.name) else (more, down, along)
