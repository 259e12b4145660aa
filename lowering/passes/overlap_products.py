"""The pass overlap-products: see OverlapProducts."""

from dataclasses import dataclass
from math import prod
from typing import Any

from mlirc.dialects.bindings import ir
from mlirc.dialects.tensor_types import info_of
from mlirc.lowering.asides import ASIDE, join_before
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.liveness import ARGUMENT, Buffer, Liveness, byte_size, is_tensor, liveness
from mlirc.lowering.source_lines import source_line
from mlirc.lowering.stage_forms import PRODUCTS

BETWEEN = {"mlirc.view", "mlirc.size"}  # what may stand between products of one group: they cost nothing
Group = list[int]  # positions


@dataclass(frozen=True)
class OverlapProducts:
    """Let products that nothing waits for run in a GPU's second stream: most leave multiprocessors idle while their last tiles
    are computed, and between any two kernels all are idle for a moment.

    before:  %dx = "mlirc.matmul"(%dy, %w)
             %dw = "mlirc.matmul"(%dy as 5632x4096, %x)
             %1 = "mlircx.kernel"(%dx)
    after:   %dw = "mlirc.matmul"(%dy as 5632x4096, %x) {mlirc.aside}
             %dx = "mlirc.matmul"(%dy, %w)
             %1 = "mlircx.kernel"(%dx)
             "mlirc.join"()                             before the next such group, or before who reads %dw

    A group: products that follow each other, of at least `least` operations each, and that do not all depend on each other.
    FIRST READ   those that are needed first stay, with what they depend on; the others go aside, to the front
    MEMORY       until the join, what these read and write is in use: together no more than there is at the graph's peak. If it
                 would be more, they are joined at the group's end; if it still is, they are not taken aside
    """

    name = "overlap-products"
    takes = "kernel"
    least: int = 4 << 30

    def run(self, function: Any, ledger: Ledger) -> None:
        found = liveness(function)
        groups = [group for group in self.groups(found) if len(components(found, group)) > 1]
        if not groups or any(not isinstance(byte_size(info_of(b.value)), int) for b in found.buffers):
            return
        order = _Order(found, in_use(found, "mlirc.consumes" in function.attributes))
        starts = [group[0] for group in groups]
        for number, group in enumerate(groups):
            after = starts[number + 1] if number + 1 < len(starts) else len(found.ops) - 1
            taken = order.take_aside(group, after)
            line = source_line(found.ops[group[0]].location)
            ledger.record(self.name, "overlap", "products", "MEMORY", taken, line, products=len(group))
        order.write(function)

    def groups(self, found: Liveness) -> list[Group]:
        """Products that follow each other."""
        groups: list[Group] = [[]]
        for position, (op, name) in enumerate(zip(found.ops, found.names, strict=True)):
            if name in PRODUCTS and operations(op) >= self.least:
                groups[-1].append(position)
            elif name not in BETWEEN and groups[-1]:
                groups.append([])
        return [group for group in groups if len(group) > 1]


def operations(op: Any) -> int:
    """Of a product on a GPU; -1 for others, and for sizes that are not known."""
    a, b = (info_of(x) for x in list(op.operands)[-2:])
    sizes = (*a.shape, b.shape[-1])
    if not a.device.startswith("cuda") or not all(isinstance(n, int) for n in sizes):
        return -1
    return 2 * prod(n for n in sizes if isinstance(n, int))


def components(found: Liveness, group: Group) -> list[Group]:
    """The group's products, by which of them read each other's results."""
    parts: list[Group] = []
    for position in group:
        read = {found.buffer_of[x].start for x in found.ops[position].operands}
        joined = [part for part in parts if read & {*part}]
        parts = [part for part in parts if part not in joined]
        parts.append([*(k for part in joined for k in part), position])
    return parts


def in_use(found: Liveness, consumes: bool) -> list[int]:
    """Bytes in use at each op. Arguments count where the graph frees them (`consumes`)."""
    bytes_ = [0] * len(found.ops)
    for buffer in found.buffers:
        if buffer.kind != ARGUMENT or consumes:
            add(bytes_, buffer, buffer.start, buffer.end + 1)
    return bytes_


def add(bytes_: list[int], buffer: Buffer, start: int, end: int) -> None:
    size = byte_size(info_of(buffer.value))
    assert isinstance(size, int)
    for k in range(max(start, 0), end):
        bytes_[k] += size


class _Order:
    """In what order ops are to run, which of them aside, and where those are waited for.

    moved   the first position of a group -> its positions in their new order
    joins   positions before which there is a join
    """

    def __init__(self, found: Liveness, bytes_: list[int]):
        self.found, self.bytes = found, bytes_
        self.peak = max(bytes_)
        self.asides: list[int] = []
        self.moved: dict[int, list[int]] = {}
        self.joins: set[int] = set()

    def take_aside(self, group: Group, after: int) -> bool:
        """Takes products of the group aside, until `after` at most, if memory allows. Whether it does."""
        parts = components(self.found, group)
        reads = {part[0]: min(self.first_read(k, group) for k in part) for part in parts}
        parts.sort(key=lambda part: reads[part[0]])
        aside = sorted(k for part in parts[1:] for k in part)
        for end in dict.fromkeys((min(after, *(reads[part[0]] for part in parts[1:])), group[-1] + 1)):
            bytes_ = self.with_aside(group, aside, end)
            if max(bytes_[group[0] : end]) <= self.peak:
                self.bytes = bytes_
                self.asides += aside
                self.joins.add(end)
                self.moved[group[0]] = self.rearranged(group, aside)
                return True
        return False

    def first_read(self, position: int, group: Group) -> int:
        """By an op that is not of the group; the return at the latest."""
        buffers = [self.found.buffer_of[x] for x in self.found.ops[position].results]
        reads = [k for buffer in buffers for k in buffer.touches if k > position and k not in group]
        return min(reads, default=len(self.found.ops) - 1)

    def with_aside(self, group: Group, aside: Group, end: int) -> list[int]:
        """Bytes in use at each op if these products of the group run aside until position `end`."""
        bytes_ = list(self.bytes)
        buffer_of, ops = self.found.buffer_of, self.found.ops
        used = dict.fromkeys(buffer_of[x] for k in aside for x in (*ops[k].operands, *ops[k].results))
        made = dict.fromkeys(buffer_of[x] for k in group for x in ops[k].results if is_tensor(x))
        for buffer in used:
            add(bytes_, buffer, buffer.end + 1, end)
        for buffer in made:
            add(bytes_, buffer, group[0], buffer.start)
        return bytes_

    def rearranged(self, group: Group, aside: Group) -> list[int]:
        """What is aside comes first; what stands between, before who reads it."""
        first, last = group[0], group[-1]
        made_at = {x: k for k in range(first, last + 1) for x in self.found.ops[k].results}
        made: dict[int, None] = {}

        def make(k: int) -> None:
            for x in self.found.ops[k].operands:
                if x in made_at and made_at[x] not in made:
                    make(made_at[x])
            made[k] = None

        for k in (*aside, *range(first, last + 1)):
            if k not in made:
                make(k)
        return list(made)

    def write(self, function: Any) -> None:
        ops, block = self.found.ops, function.regions[0].blocks[0]
        for k in self.asides:
            ops[k].attributes[ASIDE] = ir.UnitAttr.get()
        positions = list(range(len(ops)))
        for first, order in self.moved.items():
            positions[first : first + len(order)] = order
        for k in positions:
            block.append(ops[k].operation)
        for k in sorted(self.joins):
            join_before(ops[positions[k]])
