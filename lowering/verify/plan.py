"""Checks a memory plan for concrete sizes: no buffer is overwritten before its last read.

The check is independent of plan-memory. It goes through the memory-level ops with all sizes known, and tracks which value each byte of the arena
holds. Where a launch writes memory that it also reads, it compares all addresses.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mlirc.dialects.control_flow.region_ops import REGION_OPS, region_functions
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.interpreter.kernels import Points
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.source_lines import source_line

MOST = 1 << 22  # points of a launch that are looked at one by one; of more it is taken to be right


class PlanError(AssertionError):
    """A wrong plan: for example, an op reads an overwritten value, or a slot lies outside the arena."""


@dataclass(eq=False)
class PlannedMemory:
    """A block of memory. A slot is the bytes from `start` to `end` of the arena, and is undefined until it is written."""

    name: str
    slot: bool = False
    start: int = 0
    end: int = 0
    contents: str = "what the caller or the allocator left"
    device: str = "cpu"  # of a slot


def check_plan(function: Any, sizes: Mapping[str, int]) -> None:
    """Checks a memory-level function for these values of the symbols. Raises PlanError for a wrong plan, KeyError for a symbol without a value."""
    _Checker(function, sizes).run()


class _Checker:
    def __init__(self, function: Any, sizes: Mapping[str, int]):
        self.block = function.regions[0].blocks[0]
        self.sizes = sizes
        self.arenas = {device: self.number(size) for device, size in arenas(function).items()}
        self.slots: list[PlannedMemory] = []
        # each tensor's memory and its first byte in it, None where an ATen call made the view
        self.places: dict[ir.Value, tuple[PlannedMemory, int | None]] = {}
        self.compared: dict[tuple, bool] = {}  # what by_point found
        for k, argument in enumerate(self.block.arguments):
            self.places[argument] = PlannedMemory(f"argument {k}"), 0

    def number(self, expr: Int) -> int:
        return symbols.evaluate(expr, self.sizes)

    def run(self) -> None:
        for op in self.block.operations:
            name = op.operation.name
            where = f"{name} ({source_line(op.location)})"
            if name == "mlirc.slot":
                self.slot(op, where)
            elif name == "mlirc.allocate":
                self.places[op.results[0]] = PlannedMemory("an allocation", contents=""), 0
            elif name == "mlirc.view":
                memory, first = self.places[op.operands[0]]
                offset = self.number(symbols.parse(attribute_value(op.attributes["offset"])))
                moved = None if first is None else first + offset * info_of(op.results[0]).dtype.itemsize
                self.places[op.results[0]] = memory, moved
            elif name in ("mlircx.launch", "mlircx.call", "mlircx.run"):
                self.write(op, where)
            elif name in REGION_OPS:
                self.call_regions(op, where)
            elif name in ("mlircx.aten", "mlircx.aten_effect"):
                self.call_aten(op, where)
            elif name == "func.return":
                self.check_results(op, where)

    def slot(self, op: Any, where: str) -> None:
        info = info_of(op.results[0])
        start = self.number(symbols.parse(attribute_value(op.attributes["offset"])))
        end = start + self.bytes(info)
        if start % 64 or start < 0 or end > self.arenas.get(info.device, 0):
            raise PlanError(f"{where}: bytes {start} to {end} of an arena of {self.arenas.get(info.device, 0)}")
        memory = PlannedMemory(f"the slot at {start}", True, start, end, contents="", device=info.device)
        self.slots.append(memory)
        self.places[op.results[0]] = memory, 0

    def bytes(self, info: TensorInfo) -> int:
        shape = [self.number(n) for n in info.shape]
        if 0 in shape:
            return 0
        stride = [self.number(s) for s in info.stride]
        return (1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))) * info.dtype.itemsize

    def read(self, x: ir.Value, where: str) -> None:
        if x not in self.places or not isinstance(x.type, ir.RankedTensorType) or self.bytes(info_of(x)) == 0:
            return
        memory, _ = self.places[x]
        if not memory.contents:
            raise PlanError(f"{where} reads {memory.name} before anything is written there")
        if memory.slot and memory.contents != "its own":
            raise PlanError(f"{where} reads {memory.name}, overwritten by {memory.contents}")

    def call_regions(self, op: Any, where: str) -> None:
        """The functions of its regions have an arena of their own, all of which may be written."""
        count = attribute_value(op.attributes["inputs"])
        operands = list(op.operands)
        for x in operands[:count]:
            self.read(x, where)
        for m, out in enumerate(operands[count:], count):
            if any(self.overlap(x, out) for x in operands[:m]):
                raise PlanError(f"{where}: writing operand {m} spoils another")
        for function in region_functions(op):
            check_plan(function, self.sizes)
        for out in operands[count:]:
            self.overwrite(self.places[out][0], where)

    def call_aten(self, op: Any, where: str) -> None:
        for x in op.operands:
            self.read(x, where)
        aliases = symbols.parse_list(attribute_value(op.attributes["aliases"]))
        for result, alias in zip(op.results, aliases, strict=True):
            fresh = PlannedMemory("a tensor of ATen"), 0
            self.places[result] = fresh if alias == -1 else (self.places[op.operands[alias]][0], None)

    def check_results(self, op: Any, where: str) -> None:
        for x in op.operands:
            self.read(x, where)
            if x in self.places and self.places[x][0].slot:
                raise PlanError(f"{where}: a result lies in the arena")

    def write(self, op: Any, where: str) -> None:
        count = attribute_value(op.attributes["inputs"])
        operands = list(op.operands)
        for x in operands[:count]:
            self.read(x, where)
        for m, out in enumerate(operands[count:]):
            for k, x in enumerate(operands[:count] + operands[count : count + m]):
                if self.overlap(x, out):
                    in_place = op.operation.name in ("mlircx.launch", "mlircx.run") and k < count
                    if not in_place or not self.same_address(op, k, m):
                        raise PlanError(f"{where}: writing output {m} spoils operand {k}")
        for out in operands[count:]:
            self.overwrite(self.places[out][0], where)

    def overwrite(self, memory: PlannedMemory, where: str) -> None:
        for other in self.slots if memory.slot else ():
            if other.device == memory.device and other.start < memory.end and memory.start < other.end:
                other.contents = where
        memory.contents = "its own"

    def overlap(self, x: ir.Value, y: ir.Value) -> bool:
        """Whether two tensors may share a byte."""
        if x not in self.places or not isinstance(x.type, ir.RankedTensorType):
            return False
        (a, first), (b, second) = self.places[x], self.places[y]
        if not (a is b or (a.slot and b.slot and a.device == b.device)):
            return False
        sizes = self.bytes(info_of(x)), self.bytes(info_of(y))
        if first is None or second is None:
            return a is b and min(sizes) > 0
        start, other = a.start + first, b.start + second
        return min(sizes) > 0 and start < other + sizes[1] and other < start + sizes[0]

    def same_address(self, op: Any, k: int, m: int) -> bool:
        """Whether each address that output m writes is read through operand k only by the point that writes it."""
        count = attribute_value(op.attributes["inputs"])
        x, out = op.operands[k], op.operands[count + m]
        if info_of(x).dtype.itemsize != info_of(out).dtype.itemsize or self.places[x][1] is None:
            return False
        parallel, inner = (
            tuple(self.number(n) for n in symbols.parse_list(attribute_value(op.attributes[name])))
            for name in ("parallel", "inner")
        )
        block = op.regions[0].blocks[0]
        ops = list(block.operations)
        texts = attribute_value(ops[-1].attributes["maps"])
        reads = tuple(
            attribute_value(item.attributes["map"])
            for item in ops
            if item.operation.name == "mlirc.read" and item.operands[0] == block.arguments[k]
        )
        same = info_of(x) == info_of(out) and self.places[x] == self.places[out] and set(reads) <= {texts[m]}
        if same and sorted(texts[m].split(", ")) == sorted(f"d{d}" for d in range(len(parallel) + len(inner))):
            return True
        if math.prod((*parallel, *inner)) > MOST:
            return True
        apart = self.place(x) - self.place(out)
        key = (parallel, inner, texts[m], reads, info_of(x), info_of(out), apart)  # layers are often equal
        if key not in self.compared:
            self.compared[key] = self.by_point(Points(parallel, inner, self.sizes), x, reads, out, texts[m])
        return self.compared[key]

    def by_point(self, points: Points, x: ir.Value, reads: Sequence[str], out: ir.Value, writes: str) -> bool:
        """Whether no point reads, by the maps `reads` of x, an address that another point writes by the map `writes` of out."""
        written = self.addresses(points, symbols.parse_list(writes), out)
        # an outer value is written once for each parallel point, an inner one at every point
        by_row = all(size == 1 for size in written.shape[points.parallel_rank :])
        shape = points.outer_shape if by_row else points.shape
        numbers = torch.arange(math.prod(shape)).reshape(shape).expand(points.shape)
        width = info_of(out).dtype.itemsize
        written = (written.expand(numbers.shape).flatten() - self.place(out)) // width
        writer = torch.full((self.bytes(info_of(out)) // width,), -1)  # of each element of out's memory: the last one
        writer.scatter_reduce_(0, written, numbers.flatten(), "amax")
        for read in reads:
            map_ = symbols.parse_list(read)
            if any(name[0] == "i" for expr in map_ for name in symbols.free_symbols(expr)):
                return False
            at = (self.addresses(points, map_, x).expand(numbers.shape).flatten() - self.place(out)) // width
            found = writer[at.clamp(0, len(writer) - 1)]
            inside = (at >= 0) & (at < len(writer))
            if (inside & (found >= 0) & (found != numbers.flatten())).any():
                return False
        return True

    def place(self, x: ir.Value) -> int:
        """The byte at which a tensor begins, counted from the start of the arena or of the value's own memory."""
        memory, first = self.places[x]
        return memory.start + (first or 0)

    def addresses(self, points: Points, map_: tuple[Int, ...], x: ir.Value) -> torch.Tensor:
        """The byte address at each point, counted from the start of the arena or of the value's own memory."""
        info = info_of(x)
        total = torch.full((1,) * len(points.shape), self.place(x))
        for index, stride in zip(map_, info.stride, strict=True):
            total = total + points.evaluate(index) * self.number(stride) * info.dtype.itemsize
        return total.expand([b if a == 1 else a for a, b in zip(total.shape, points.outer_shape, strict=True)])
