"""plan-memory: every tensor gets its place: in the arena, in memory of its own, or in an input that is overwritten."""

from dataclasses import field
from typing import Any

import torch

from mlirc.dialects.control_flow.region_ops import REGION_OPS, is_shared, region_functions
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import make_attribute
from mlirc.dialects.core.memory_ops import arenas, set_arenas
from mlirc.dialects.core.symbols import Int, known_nonnegative
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.accesses import accesses, writes_where_read
from mlirc.lowering.analysis.liveness import PLANNED, Buffer, Liveness, byte_size, last_uses, liveness
from mlirc.lowering.memory.arena_layout import ArenaBlock, lay_out, live_peak
from mlirc.lowering.memory.explicit_copies import make_copies_explicit
from mlirc.lowering.memory.input_mutation import bufferize_assigns, move
from mlirc.lowering.module.forms import LIBRARY
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class PlanMemory:
    """Take a kernel-level function to memory level: one arena a device for all intermediate results, offsets from lifetimes.

    before:  %0 = "mlircx.kernel"(%x) ({ ... }) : (tensor<8xf32>) -> tensor<8xf32>
             %1 = "mlircx.kernel"(%0) ({ ... }) : (tensor<8xf32>) -> tensor<8xf32>
             return %1
    after:   %0 = "mlirc.slot"() {offset = "0"} : () -> tensor<8xf32>
             "mlircx.launch"(%x, %0) ({ ... }) {inputs = 1 : i64} : (tensor<8xf32>, tensor<8xf32>) -> ()
             %1 = "mlirc.allocate"() : () -> tensor<8xf32>
             "mlircx.launch"(%0, %1) ({ ... }) {inputs = 1 : i64} : (tensor<8xf32>, tensor<8xf32>) -> ()
             return %1

    Ops keep their order. What is returned is allocated, what ATen returns is ATen's and released after its last use,
    everything else gets a slot; views cost nothing. How values share memory:

    ARENA       slots overlap where lifetimes do not (arena_layout.py)
    REGIONS     an op with regions gets a block on each device for the largest arena of its regions' functions there
    ALONE       `alone` bytes or more, on a GPU, are allocated and released: an arena is as large as it ever gets while a
                backward graph's arguments are still there, when all that a forward graph saves is there, and beside
                a large result and what ATen returns
    IN PLACE    a kernel's output takes the slot of an operand that dies there, if it is written where that was read
    TO INPUT    a value that overwrites an input is computed there (input_mutation.py), else copied there
    OWN MEMORY, OLD VALUE: copies where one memory would be seen to be shared (explicit_copies.py)
    """

    name = "plan-memory"
    takes = "kernel"
    gives = "memory"
    alone: int = 1 << 24
    reuse: bool = True  # whether anything shares memory at all; if not, each buffer has a part of the arena of its own

    def run(self, function: Any, ledger: Ledger) -> None:
        if not ledger.allows(self.name, "the plan"):
            return
        make_copies_explicit(function, ledger, self.name)
        targets = bufferize_assigns(function, ledger, self.name)
        found = liveness(function)
        block_of = self.blocks(found, targets, ledger)
        arena_of = self.nested_arenas(found)
        device_of = {block: info_of(buffer.value).device for buffer, block in block_of.items()}
        device_of |= {block: device for nested in arena_of.values() for device, block in nested.items()}
        sizes = {
            d: lay_out([b for b in device_of if device_of[b] == d and not b.alone])
            for d in ("cpu", *sorted({*device_of.values()}))
        }
        nested = function.operation.parent.name in REGION_OPS or is_shared(function)
        self.report(found, block_of, sum(sizes.values(), start=0), ledger, "a region" if nested else "the graph")
        set_arenas(function, sizes)
        _Emitter(found, block_of, targets, arena_of).run()

    def nested_arenas(self, found: Liveness) -> dict[int, dict[str, ArenaBlock]]:
        """REGIONS: at the position of each op with regions, by device a block for the largest arena of its functions."""
        blocks: dict[int, dict[str, ArenaBlock]] = {}
        for position, op in enumerate(found.ops):
            if functions := region_functions(op):
                sizes: dict[str, Int] = {}
                for nested in functions:
                    for device, size in arenas(nested).items():
                        sizes[device] = symbols.maximum(sizes.get(device, 0), size)
                lives = (position, position) if self.reuse else (0, len(found.ops))
                blocks[position] = {device: ArenaBlock(size, *lives) for device, size in sizes.items()}
        return blocks

    def blocks(self, found: Liveness, targets: dict[ir.Value, ir.Value], ledger: Ledger) -> dict[Buffer, ArenaBlock]:
        """The block of the arena for each buffer that gets a slot; buffers that share memory in place have the same."""
        block_of: dict[Buffer, ArenaBlock] = {}
        taken_at: dict[ArenaBlock, int] = {}  # where a block was last taken over: two outputs of one kernel never share
        for buffer in found.buffers:
            if buffer.kind != PLANNED or buffer.returned or buffer.value in targets:
                continue
            size = byte_size(info_of(buffer.value))
            if not self.reuse:
                block_of[buffer] = ArenaBlock(size, 0, len(found.ops))
                continue
            op = found.ops[buffer.start]
            if not ledger.allows(self.name, op):  # what this buffer shares memory with, before or after it
                block_of[buffer] = ArenaBlock(size, 0, len(found.ops))
                continue
            alone = self.stands_alone(info_of(buffer.value))
            block = self.dying_operand(found, buffer, block_of, ledger, alone)
            if block is None or taken_at.get(block) == buffer.start:
                block = ArenaBlock(size, buffer.start, buffer.end, alone=alone)
            taken_at[block] = buffer.start
            block.end = buffer.end
            block_of[buffer] = block
        return block_of

    def stands_alone(self, info: TensorInfo) -> bool:
        size = byte_size(info)
        return isinstance(size, int) and size >= self.alone and info.device.startswith("cuda")

    def dying_operand(
        self, found: Liveness, out: Buffer, block_of: dict[Buffer, ArenaBlock], ledger: Ledger, alone: bool
    ) -> ArenaBlock | None:
        """IN PLACE. `alone`: of what kind the block has to be.

        before:  %1 = "mlircx.kernel"(%0, %w)        the last use of %0
        after:   %0 and %1 are slots at the same offset
        """
        op = found.ops[out.start]
        if found.names[out.start] != "mlircx.kernel":
            return None
        result = list(op.results).index(out.value)
        info = info_of(out.value)
        size = byte_size(info)
        operands: dict[Buffer, list[int]] = {}
        for k, operand in enumerate(op.operands):
            if operand in found.buffer_of:
                operands.setdefault(found.buffer_of[operand], []).append(k)
        access = None
        for buffer, positions in operands.items():
            block = block_of.get(buffer)
            if block is None or block.alone != alone or buffer.end != out.start or block.end != out.start:
                continue
            if info_of(buffer.value).device != info.device:
                continue
            if not (block.size == size or known_nonnegative(block.size - size)):
                continue
            access = access or accesses(op)
            views = [(k, info_of(op.operands[k]), found.offset_of[op.operands[k]]) for k in positions]
            taken = all(writes_where_read(access, result, info, 0, k, x, offset) for k, x, offset in views)
            ledger.record(self.name, "reuse", label(op), "IN PLACE", taken, op, bytes=number(size))
            if taken:
                return block
        return None

    def report(
        self, found: Liveness, block_of: dict[Buffer, ArenaBlock], arena: Int, ledger: Ledger, what: str
    ) -> None:
        slots: Int = 0
        results: Int = 0
        for buffer in found.buffers:
            if buffer.kind != PLANNED:
                continue
            op, size = found.ops[buffer.start], byte_size(info_of(buffer.value))
            if buffer in block_of and block_of[buffer].alone:
                ledger.record(self.name, "allocate", label(op), "ALONE", True, op, bytes=number(size))
            elif buffer in block_of:
                slots = slots + size
                place = {"bytes": number(size), "offset": number(block_of[buffer].offset)}
                ledger.record(self.name, "slot", label(op), "ARENA", True, op, **place)
            elif buffer.returned:
                results = results + size
        ledger.record(
            self.name,
            "arena",
            what,
            "TOTAL",
            True,
            arena=number(arena),
            slots=sum(not block.alone for block in block_of.values()),
            bytes_of_slots=number(slots),
            bytes_of_results=number(results),
            static_bytes_live_at_once=live_peak([b for b in dict.fromkeys(block_of.values()) if not b.alone]),
        )


@dataclass
class _Emitter:
    """Rewrites the ops one after the other, in place."""

    found: Liveness
    block_of: dict[Buffer, ArenaBlock]
    targets: dict[ir.Value, ir.Value]
    arena_of: dict[int, dict[str, ArenaBlock]]
    memory: dict[ArenaBlock, ir.Value] = field(default_factory=dict)  # of blocks that are alone

    def run(self) -> None:
        releases = last_uses(self.found)
        dead: dict[int, list[ArenaBlock]] = {}
        for block in dict.fromkeys(self.block_of.values()):  # buffers may share one
            if block.alone:
                dead.setdefault(block.end, []).append(block)
        ops = self.found.ops
        for position, (op, name) in enumerate(zip(ops, self.found.names, strict=True)):
            if name == "mlircx.kernel":
                self.write(op)
            elif name in LIBRARY or name == "mlirc.copy":
                self.write(op, name.partition(".")[2])
            elif name in REGION_OPS:
                self.write_regions(op, self.arena_of[position])
            elif name == "mlirc.assign":
                op.operation.erase()
            for value in (*releases.get(position, ()), *(self.memory[block] for block in dead.get(position, ()))):
                ir.Operation.create(
                    "mlirc.release", operands=[value], loc=value.owner.location, ip=ir.InsertionPoint(ops[position + 1])
                )

    def write(self, op: Any, callee: str = "") -> None:
        """A launch of a kernel, or a call of `callee`, which is given the memory of its results."""
        ip, location, inputs = ir.InsertionPoint(op), op.location, list(op.operands)
        outputs = [self.destination(result, ip, location) for result in op.results]
        attributes = dict(op.attributes.items()) | {"inputs": make_attribute(len(inputs))}
        if callee:
            attributes["callee"] = make_attribute(callee)
        name = "mlircx.call" if callee else "mlircx.launch"
        made = ir.Operation.create(
            name, operands=inputs + outputs, attributes=attributes, regions=len(op.regions), loc=location, ip=ip
        )
        for old, new in zip(op.regions, made.regions, strict=True):
            old.blocks[0].append_to(new)
        self.replace(op, outputs)

    def write_regions(self, op: Any, nested: dict[str, ArenaBlock]) -> None:
        """Writes an op with regions in memory form: it gets buffers for its results, and bytes for the arenas of its regions' functions."""
        ip, location, inputs = ir.InsertionPoint(op), op.location, list(op.operands)
        outputs = [self.destination(result, ip, location) for result in op.results]
        arenas_ = []
        for device, block in nested.items():
            bytes_ = type_of(TensorInfo(torch.uint8, (block.size,), device=device))
            offset = {"offset": ir.StringAttr.get(str(block.offset))}
            slot = ir.Operation.create("mlirc.slot", results=[bytes_], attributes=offset, loc=location, ip=ip)
            arenas_.append(slot.result)
        counts = {"inputs": len(inputs)} | ({"arenas": len(arenas_)} if len(arenas_) > 1 else {})
        made = ir.Operation.create(
            op.operation.name,
            operands=[*inputs, *outputs, *arenas_],
            attributes=dict(op.attributes.items()) | {name: make_attribute(n) for name, n in counts.items()},
            regions=len(op.regions),
            loc=location,
            ip=ip,
        )
        for old, new in zip(op.regions, made.regions, strict=True):
            old.blocks[0].append_to(new)
        self.replace(op, outputs)

    def destination(self, result: ir.Value, ip: ir.InsertionPoint, location: ir.Location) -> ir.Value:
        if result in self.targets:
            return move(self.targets[result], result.owner)
        block = self.block_of.get(self.found.buffer_of[result])
        if block in self.memory:  # IN PLACE
            return self.seen_as(self.memory[block], result.type, ip, location)
        if block is None or block.alone:
            made = ir.Operation.create("mlirc.allocate", results=[result.type], loc=location, ip=ip).result
            if block is not None:
                self.memory[block] = made
            return made
        offset = ir.StringAttr.get(str(block.offset))
        return ir.Operation.create(
            "mlirc.slot", results=[result.type], attributes={"offset": offset}, loc=location, ip=ip
        ).result

    def seen_as(self, memory: ir.Value, type_: ir.Type, ip: ir.InsertionPoint, location: ir.Location) -> ir.Value:
        """The memory from its start on, as a tensor of another type."""
        if memory.type == type_:
            return memory
        attributes = {"map": ir.StringAttr.get(""), "offset": ir.StringAttr.get("0")}
        return ir.Operation.create(
            "mlirc.view", results=[type_], operands=[memory], attributes=attributes, loc=location, ip=ip
        ).result

    def replace(self, op: Any, outputs: list[ir.Value]) -> None:
        for result, output in zip(op.results, outputs, strict=True):
            result.replace_all_uses_with(output)
        op.operation.erase()


def label(op: Any) -> str:
    """What people call the op: a kernel's label, else the op's name."""
    if "label" in op.attributes:
        return ir.StringAttr(op.attributes["label"]).value
    return op.operation.name.removeprefix("mlirc.")


def number(size: Int) -> int | str:
    return size if isinstance(size, int) else str(size)
