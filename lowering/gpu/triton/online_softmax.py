"""Online softmax: the maximum and its sum of exponentials in one pass over a row, for softmax, logsumexp and cross entropy.

    top = reduce max x;  total = reduce sum exp(x - centre), where centre follows from top

Each lane has the maximum of its elements so far, and the sum of exp(x - maximum), which is scaled down when the maximum grows. At the
end all lanes are scaled to the maximum of the row. A lane's maximum starts at the lowest finite number, so that -inf adds
exp(-inf) = 0. So a sum of 0 means a row of nothing but -inf. Where the maximum is infinite, every exponential is exp(top - centre) or 0.
"""

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.triton.builder import HALF, TL_DTYPE, TritonValue, literal
from mlirc.lowering.gpu.triton.emitter import TritonEmitter
from mlirc.lowering.gpu.triton.folds import function_text
from mlirc.lowering.gpu.triton.moments import Moments, find_moments
from mlirc.lowering.gpu.triton.rounded import EXP2, PTX
from mlirc.lowering.kernel.nodes import Kernel, Node

LANEWISE = """@triton.jit
def FUNCTION(top, total, xPARAMETER):
    rest = EXP(-tl.abs(x - top)ARGUMENT)
    total = tl.where(x > top, total * rest + 1.0, total + rest)
    return tl.maximum(top, x, propagate_nan=tl.PropagateNan.ALL), total
"""
# GROUP elements of a thread share a lane, for one exponential each and one more for all of them. They are contiguous, or, where one
# load cannot take them, as many elements apart as there are threads
GROUPED = """@triton.jit
def FUNCTION(top, total, xPARAMETER):
    x = tl.reshape(x, SHAPE)
    new = tl.maximum(top, tl.reduce(x, AXIS, fold_nan_max), propagate_nan=tl.PropagateNan.ALL)
    return new, total * EXP(top - newARGUMENT) + tl.reduce(EXP(x - new[PLACE]ARGUMENT), AXIS, fold_sum)
"""
SIDE_BY_SIDE = {"SHAPE": "[x.shape[0] // GROUP, GROUP]", "AXIS": "1", "PLACE": ":, None"}
APART = {"SHAPE": "[GROUP, x.shape[0] // GROUP]", "AXIS": "0", "PLACE": "None, :"}
LOAD = 16  # bytes
# Of a number below 0. What is below 2^-126 is 0: beside the 1 that the largest element adds, it is nothing
FAST = """@triton.jit
def exp_flushed(x, PTX: tl.constexpr):
    return exp2_flushed(x * 1.4426950408889634, PTX)
"""


@dataclass(frozen=True)
class Exponentials:
    """`first` and `second` are the reduce nodes, `value` what both fold, `centre` what is subtracted from it."""

    first: Node
    second: Node
    value: Node
    centre: Node

    def start(self, e: TritonEmitter) -> tuple[TritonValue, ...]:
        """The initial (maximum, sum of exponentials) of the lanes."""
        dims, dtype = e.lanes_of(self.value), self.value.dtype
        shape, lanes = e.shape(dims), group(e)
        if lanes > 1:
            shape = f"[{shape.strip('[]')} // {lanes}]"
        first = torch.finfo(dtype).min, 0.0
        return tuple(e.lines.name(f"tl.full({shape}, {literal(x)}, {TL_DTYPE[dtype]})", dtype, dims) for x in first)

    def step(self, e: TritonEmitter, state: tuple[TritonValue, ...]) -> None:
        _, x = e.folded(self.first)
        more = f", {PTX}" if is_fast(e, self) else ""
        e.lines.add(f"{state[0]}, {state[1]} = {function(e, self)}({state[0]}, {state[1]}, {x}{more})")

    def finish(self, e: TritonEmitter, state: tuple[TritonValue, ...]) -> None:
        """Both values, as variables that the emitter knows."""
        dtype = self.value.dtype
        b, exponential = e.builder(dtype), "tl.exp" if is_fast(e, self) else "libdevice.exp"
        dims = state[0].tile - {"r"}
        keep = ", keep_dims=True" if len(e.blocks) > 1 else ""
        lanes, total = state
        most = e.lines.name(f"tl.reduce({lanes}, {e.axis()}, fold_nan_max{keep})", dtype, dims)
        total = e.lines.name(
            f"tl.reduce({total} * {exponential}({lanes} - {most}), {e.axis()}, fold_sum{keep})", dtype, dims
        )
        top = e.env[self.first] = b.select(b.eq(total, b.constant(0.0)), b.constant(float("-inf")), most)
        centre = e.value(self.centre)
        beside = b.emit(f"{exponential}({b.sub(top, centre)})", dtype, top)
        if self.centre is not self.first:
            total = b.mul(total, beside)
        total = b.select(b.eq(b.abs(top), b.constant(float("inf"))), beside, total)
        size = symbols.product(t.size for t in e.schedule.tiles if t.name == "r")
        if not symbols.known_positive(size):
            total = e.lines.name(f"tl.where({e.indices.write(size)} > 0, {total}, 0.0)", dtype, dims)
        e.env[self.second] = total


def find_exponentials(node: Node, nodes: list[Node]) -> Exponentials | None:
    """The pair whose exponentials the reduction `node` sums up."""
    if node.operands[0].kind != "exp" or node.operands[0].operands[0].kind != "sub":
        return None
    value, centre = node.operands[0].operands[0].operands
    top = next((n for n in nodes if is_maximum(n) and n.operands[0] is value), None)
    if top is None or node.dtype not in (torch.float32, torch.float64) or not follows(centre, top):
        return None
    return Exponentials(top, node, value, centre)


def find_pairs(kernel: Kernel) -> list[Exponentials | Moments]:
    """The pairs of a kernel that goes through rows in passes, each reduction in one at most.

    Sets depths anew: the second of a pair is known as soon as the first.
    """
    found: dict[Node, Exponentials | Moments] = {}
    for node in kernel.nodes:
        if node.kind == "reduce" and node.attributes["kind"] == "sum":
            pair = find_exponentials(node, kernel.nodes) or find_moments(node, kernel.nodes)
            if pair is not None and all(p.first is not pair.first for p in found.values()):
                found[node] = pair
    for node in kernel.nodes:
        below = max((x.depth for x in node.operands), default=0)
        node.depth = found[node].first.depth if node in found else below + (node.kind == "reduce")
    return list(found.values())


def is_maximum(node: Node) -> bool:
    return node.kind == "reduce" and node.attributes["kind"] == "max"


def follows(node: Node, top: Node) -> bool:
    """Whether a value is made of the maximum and numbers alone."""
    return (
        node is top or node.kind == "constant" or (node.cls is not None and all(follows(x, top) for x in node.operands))
    )


def group(e: TritonEmitter) -> int:
    """How many elements share a lane; 1 in tiles of several dimensions, and in tiny ones."""
    if len(e.blocks) > 1:
        return 1
    count = at_once(e) or e.schedule.elements // (32 * e.schedule.num_warps)
    return count if 1 < count < e.schedule.elements else 1


def at_once(e: TritonEmitter) -> int:
    """How many elements of a row a thread loads at once; 0 where they are not aligned for that."""
    accesses = [n.access for n in e.kernel.nodes if n.access and not e.inner.isdisjoint(n.access.address.dims)]
    count = LOAD // max((access.dtype.itemsize for access in accesses), default=LOAD)
    for access in accesses:
        strides = [stride for name, stride in access.address.strides.items() if name not in e.inner]
        if any(symbols.mod(n, count) != 0 for n in (*strides, access.address.rest)):
            return 0
    return count


def is_fast(e: TritonEmitter, exponentials: Exponentials) -> bool:
    """Whether the fast exponential is accurate enough, as for half types: its error, 2^-24 for each unit of the argument, is
    weighted by exp(argument)."""
    half = exponentials.value.kind == "cast" and exponentials.value.operands[0].dtype in HALF
    return exponentials.value.dtype == torch.float32 and (half or e.rounded)


def function(e: TritonEmitter, exponentials: Exponentials) -> str:
    """The name of what takes a block in; its text is among the emitter's functions."""
    lanes, fast = group(e), is_fast(e, exponentials)
    name = "fold_fast_exponentials" if fast else "fold_exponentials"
    words = {**(SIDE_BY_SIDE if at_once(e) else APART), "GROUP": str(lanes), "FUNCTION": name}
    words |= {"EXP": "exp_flushed" if fast else "libdevice.exp"}
    words |= {"PARAMETER": f", {PTX}: tl.constexpr" if fast else "", "ARGUMENT": f", {PTX}" if fast else ""}
    text = GROUPED if lanes > 1 else LANEWISE
    for word, means in words.items():
        text = text.replace(word, means)
    e.functions |= {"exp2_flushed": EXP2, "exp_flushed": FAST} if fast else {}
    e.functions |= {"sum": function_text("sum"), name: text}
    return name
