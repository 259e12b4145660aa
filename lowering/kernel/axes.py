"""The axes of a kernel's loops: iteration dimensions in memory order, contiguous ones merged; and the axis that a vector's lanes lie
along.

Before: parallel = "2, 128, 768", x read at "d0, d1, d2" and a bias at "d2"
After:  axes d1 (256, stride 768) and d2 (768, stride 1)
"""

import math
from collections.abc import Collection, Sequence

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.kernel_ops import POSITIONAL
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.linear_parts import is_read_in_runs
from mlirc.lowering.kernel.nodes import Access, Kernel, Linear, Node, is_dim
from mlirc.lowering.kernel.typical_sizes import typical

# What vectors of 16 lanes cost, in loads of one that lies side by side:
GATHER, SCATTER = 24, 60
TRANSPOSED = 6  # read or written by square tiles that are transposed in registers
STRIDED = 2  # times the stride: picked out of several vectors
SHIFT = 1  # the lanes of a scan along a vector, moved and combined, for each power of 2
PICKED = (2, 3, 4, -1)  # the strides for which that is done

MOST_TRANSPOSED = 16  # lanes: a square tile takes as many registers


@dataclass(eq=False, slots=True)
class Axis:
    """A loop over `size` points. Its name is its last dimension's: strides of that dimension are the axis's."""

    name: str
    size: Int
    inner: bool

    @property
    def hint(self) -> int:
        return max(typical(self.size), 1)  # s0//s1 - 1 may come out as 0, and costs divide by it

    @property
    def known(self) -> int | None:
        return self.size if isinstance(self.size, int) else None


def make_axes(kernel: Kernel) -> list[Axis]:
    """The axes, outermost first, parallel ones before inner ones. Strides and dims in `kernel` become those of axes."""
    linears = [a.address for a in kernel.accesses] + [n.size for n in kernel.nodes if n.size]
    weights = [1] * sum(n.access is not None for n in kernel.nodes) + [3] * len(kernel.outputs)
    fixed = any(n.kind == "scan" or is_positional(n) for n in kernel.nodes)
    axes = []
    for sizes, inner in ((kernel.parallel, False), (kernel.inner, True)):
        dims = list(sizes)
        if not (inner and fixed):  # an arg reduction counts row-major
            dims = order(dims, linears[: len(weights)], weights)
        axes += merge(kernel, [Axis(d, sizes[d], inner) for d in dims], linears)
    return axes


def is_positional(node: Node) -> bool:
    return node.kind == "reduce" and node.attributes["kind"] in POSITIONAL


def order(dims: list[str], linears: Sequence[Linear], weights: Sequence[int]) -> list[str]:
    """Largest strides first; where accesses disagree the outputs decide, where none has a view the order stays."""
    placed: list[str] = []
    for dim in dims:
        position = len(placed)
        for k in reversed(range(len(placed))):
            verdict = _compare(placed[k], dim, linears, weights)
            if verdict < 0:
                position = k
            elif verdict > 0:
                break
        placed.insert(position, dim)
    return placed


def _compare(a: str, b: str, linears: Sequence[Linear], weights: Sequence[int]) -> int:
    """Positive: a goes outside of b."""
    total = 0
    for linear, weight in zip(linears, weights, strict=True):
        if a in linear.strides and b in linear.strides:
            x, y = abs(typical(linear.strides[a])), abs(typical(linear.strides[b]))
            total += weight * ((x > y) - (x < y))
    return total


def merge(kernel: Kernel, axes: list[Axis], linears: Sequence[Linear]) -> list[Axis]:
    """ONE LOOP: two neighbours become one where every access steps through both as through one."""
    pinned = {name for linear in linears for name in symbols.free_symbols(linear.rest) if is_dim(name)}
    merged: list[Axis] = []
    for axis in axes:
        while merged and not pinned & {merged[-1].name, axis.name} and _continues(merged[-1], axis, linears):
            outer = merged.pop()
            for linear in linears:
                linear.strides.pop(outer.name, None)
            for node in kernel.nodes:
                if outer.name in node.dims:
                    node.dims = node.dims - {outer.name} | {axis.name}
            axis = Axis(axis.name, outer.size * axis.size, axis.inner)
        merged.append(axis)
    return merged


def _continues(outer: Axis, axis: Axis, linears: Sequence[Linear]) -> bool:
    return all(x.strides.get(outer.name, 0) == x.strides.get(axis.name, 0) * axis.size for x in linears)


@dataclass(frozen=True)
class Vector:
    """Lanes run along `axis` (None: no axis, or a scan along the only one that would do; then lanes is 1)."""

    axis: Axis | None
    lanes: int


def choose_vector(kernel: Kernel, axes: list[Axis], vector_bytes: int, known: Collection[Node] = ()) -> Vector:
    """The axis along which the work takes the fewest steps: UNIT STRIDES are one load, others a gather. No vector holds the `known` nodes."""
    scans = [n for n in kernel.nodes if n.kind == "scan"]
    # each lane of an arg reduction must meet its points in row-major order: the vector's loop is the innermost
    barred = axes if not all(map(is_exact, scans)) else axes[:-1] if any(is_positional(n) for n in kernel.nodes) else []
    candidates = [
        Vector(axis, fit(axis, vector_bytes // element_bytes(kernel, axis, known)))
        for axis in axes
        if not (axis.inner and axis in barred)
    ]
    candidates = [c for c in candidates if c.lanes > 1] or [Vector(None, 1)]
    if scans:
        candidates.append(Vector(None, 1))
    return min(candidates, key=lambda c: cost(kernel, axes, c, vector_bytes, known))


def is_exact(scan: Node) -> bool:
    """Whether it does not matter which neighbours a scan combines first, so that lanes may be points of a row. Of equal numbers the later one
    is the extreme: a zero keeps its sign."""
    kind, dtype = scan.attributes["kind"], scan.operands[0].dtype
    return kind in ("max", "min") or (kind in ("sum", "prod") and not dtype.is_floating_point)


def fit(axis: Axis, lanes: int) -> int:
    """No more lanes than a short axis fills."""
    while axis.known is not None and lanes > 1 and lanes // 2 >= axis.known:
        lanes //= 2
    return lanes


def element_bytes(kernel: Kernel, axis: Axis, known: Collection[Node] = ()) -> int:
    """What decides the number of lanes along an axis: 4 with any 4-byte or half value there: indices beside it can take two registers."""

    def has_lanes(node: Node) -> bool:
        return any(axis.name in x.dims for x in (node, *node.operands))

    nodes = [n for n in kernel.nodes if n not in known and has_lanes(n)]
    found = {max(n.dtype.itemsize, 4) if n.dtype.is_floating_point else n.dtype.itemsize for n in nodes}
    accesses = [*(n.access for n in nodes if n.access), *(o.access for o in kernel.outputs)]
    found |= {a.dtype.itemsize for a in accesses if a.dtype != torch.bool}
    for size in (4, 8, 2):
        if size in found:
            return size
    return 1


def cost(kernel: Kernel, axes: list[Axis], vector: Vector, vector_bytes: int, known: Collection[Node] = ()) -> float:
    """Estimated vector steps over the whole space. A step of elements that are wider than those which decided the lanes is of several registers."""
    points = 1
    for axis in axes:
        points *= max(axis.hint, 1)
    steps = points if vector.axis is None else points / vector.axis.hint * -(-vector.axis.hint // vector.lanes)
    along = vector.axis is not None and vector.axis.inner
    costs = (
        (n, n.cost + (SHIFT * vector.lanes.bit_length() if along and n.kind == "scan" else 0)) for n in kernel.nodes
    )
    total = steps * sum(each * -(-vector.lanes * n.dtype.itemsize // vector_bytes) for n, each in costs)
    for access in (n.access for n in kernel.nodes if n.access):
        total += _access_cost(access, axes, vector, GATHER)
    for output in kernel.outputs:
        total += _access_cost(output.access, axes, vector, SCATTER)
    if along:  # lanes are folded at the end of all inner loops
        rows = math.prod(axis.hint for axis in axes if not axis.inner)
        total += 8 * rows * sum(n.kind == "reduce" for n in kernel.nodes)
    return total


def _access_cost(access: Access, axes: list[Axis], vector: Vector, scattering: int) -> float:
    factor, more = 1.0, 0
    inside = vector.axis is not None and (vector.axis.inner or not any(axis.inner for axis in axes))
    if inside and vector.axis is not None and is_read_in_runs(access, vector.axis.name, vector.axis.size):
        more = 2  # vectors at the ends of a run
    elif is_scattered(access, vector):
        stride = picked_stride(access, vector)
        tiled = next((axis for axis in tiled_axes(axes, vector) if is_transposed(access, vector, axis)), None)
        if tiled is not None:
            tiles = -(-tiled.hint // vector.lanes)  # the last one, too, is a whole one
            factor = TRANSPOSED * max(access.dtype.itemsize / 4, 1) * tiles * vector.lanes / tiled.hint
        elif stride and scattering == GATHER:
            factor = STRIDED * abs(stride)
        else:
            factor = scattering * vector.lanes / 16
    reached = access.address.dims.union(*(x.dims for x in access.scalars))
    total = 1.0
    for axis in axes:
        if axis is vector.axis and axis.name in reached:
            total *= -(-axis.hint // vector.lanes) + more
        elif axis.name in reached:
            total *= max(axis.hint, 1)
    return total * factor


def tiled_axes(axes: Sequence[Axis], vector: Vector) -> Sequence[Axis]:
    """The axes in whose blocks a schedule transposes tiles: any of a kernel without inner ones, else the last, inside of lanes along outer ones."""
    inner = [axis for axis in axes if axis.inner]
    if not inner:
        return axes
    return [] if vector.axis is None or vector.axis.inner else inner[-1:]


def picked_stride(access: Access, vector: Vector) -> int | None:
    """The stride along the vector where a read takes its lanes out of a few vectors."""
    if vector.axis is None or vector.axis.name in symbols.free_symbols(access.address.rest):
        return None
    stride = access.address.strides.get(vector.axis.name)
    if not isinstance(stride, int) or stride not in PICKED or any(vector.axis.name in x.dims for x in access.scalars):
        return None
    return stride


def is_scattered(access: Access, vector: Vector) -> bool:
    """Whether the lanes of a vector reach elements that do not lie side by side."""
    if vector.axis is None:
        return False
    name = vector.axis.name
    if name in symbols.free_symbols(access.address.rest) or any(name in x.dims for x in access.scalars):
        return True
    return access.address.strides.get(name, 0) not in (0, 1)


def is_transposed(access: Access, vector: Vector, block: Axis) -> bool:
    """TRANSPOSED: strided along the vector, side by side along the block."""
    if (
        vector.axis is None
        or vector.lanes > MOST_TRANSPOSED
        or (block.known is not None and block.known < vector.lanes // 2)
    ):
        return False
    strides = access.address.strides
    regular = not ({vector.axis.name, block.name} & symbols.free_symbols(access.address.rest))
    strided = strides.get(block.name) == 1 and strides.get(vector.axis.name, 0) not in (0, 1)
    return regular and strided and access.mask is None and not access.scalars
