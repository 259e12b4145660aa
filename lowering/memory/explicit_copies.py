"""Inserts the copies that value semantics need, before memory is planned.

A tensor value keeps its contents, but an argument's memory does not once `assign` overwrites it; and two results of a
graph may be one value, but not one memory unless eager would alias them. Three rewrites of a kernel-level function:

OLD VALUE      what is read of an argument after it was overwritten is read from a copy taken before
OWN MEMORY     a result that is an argument, or shares memory with a result of another alias group, becomes a copy
SCALAR WORK    constants, sizes, iotas and copies that are still ops of their own become kernels
"""

from dataclasses import field
from typing import Any

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.graph_builder import GraphBuilder, read_constant
from mlirc.dialects.core.graph_signature import result_groups
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_forms import form_of
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.liveness import ARGUMENT, SCALAR_WORK, Buffer, Liveness, is_tensor, liveness
from mlirc.lowering.module.errors import UnsupportedByPass
from mlirc.lowering.pipeline.ledger import Ledger


def make_copies_explicit(function: Any, ledger: Ledger, pass_name: str) -> None:
    """Runs the rewrites. Raises UnsupportedByPass for a result that should alias an argument and does not."""
    found = liveness(function)
    Copies(function, found, ledger, pass_name).run()
    for op in list(function.regions[0].blocks[0].operations):
        name = op.operation.name
        if name in SCALAR_WORK and is_tensor(op.results[0]):
            if next(iter(op.results[0].uses), None) is None:
                op.operation.erase()
            else:
                scalar_work(op)


@dataclass
class Copies:
    function: Any
    found: Liveness
    ledger: Ledger
    pass_name: str
    # (what is copied, position of the assign, alias group of the result or "") -> the copy
    saved: dict[tuple[ir.Value, int, str], ir.Value] = field(default_factory=dict)

    def run(self) -> None:
        assigns: dict[Buffer, list[int]] = {}
        for position, name in enumerate(self.found.names):
            if name == "mlirc.assign":
                assigns.setdefault(self.buffer(position, 0), []).append(position)
        for buffer, positions in assigns.items():
            if buffer.kind != ARGUMENT:
                raise UnsupportedByPass(
                    self.found.ops[positions[0]], "assign overwrites only arguments and views of them"
                )
            self.keep_old_values(buffer, positions[0])
        self.separate_results(assigns)

    def buffer(self, position: int, operand: int) -> Buffer:
        return self.found.buffer_of[self.found.ops[position].operands[operand]]

    def keep_old_values(self, buffer: Buffer, first: int) -> None:
        """OLD VALUE, for everything but the results.

        before:  "mlirc.assign"(%arg0, %1)
                 %2 = "mlircx.kernel"(%arg0)
        after:   %0 = "mlirc.copy"(%arg0)
                 "mlirc.assign"(%arg0, %1)
                 %2 = "mlircx.kernel"(%0)
        """
        for position in buffer.touches:
            if position <= first or self.found.names[position] == "mlircx.aten_effect":
                continue
            op = self.found.ops[position]
            for k, operand in enumerate(op.operands):
                is_target = self.found.names[position] == "mlirc.assign" and k == 0
                if self.found.buffer_of.get(operand) is buffer and not is_target:
                    op.operands[k] = self.before(operand, first, op)

    def separate_results(self, assigns: dict[Buffer, list[int]]) -> None:
        """OWN MEMORY."""
        end = len(self.found.ops) - 1
        op = self.found.ops[end]
        owner: dict[Buffer, str] = {}
        copies: dict[tuple[ir.Value, str], ir.Value] = {}
        arguments = list(self.function.regions[0].blocks[0].arguments)
        groups = result_groups(self.function, len(op.operands))
        for k, group in enumerate(groups):
            value = op.operands[k]
            buffer = self.found.buffer_of.get(value)
            if buffer is None:
                continue
            if group.startswith("arg"):
                if buffer.value != arguments[int(group[3:])]:
                    raise UnsupportedByPass(op, f"result {k} should be the memory of argument {group[3:]}, and is not")
                continue
            if buffer.kind != ARGUMENT and owner.setdefault(buffer, group) == group:
                continue
            if (value, group) not in copies:
                rule = "is an argument" if buffer.kind == ARGUMENT else "is another result too"
                self.ledger.record(self.pass_name, "copy", f"result {k}", f"OWN MEMORY: {rule}", True, op)
                alone = groups.count(group) == 1  # others of its group are views of the same copy
                if buffer in assigns or not alone:
                    copies[value, group] = self.before(value, assigns.get(buffer, [end])[0], op, group)
                else:
                    copies[value, group] = copy_before(value, op)
            op.operands[k] = copies[value, group]

    def before(self, value: ir.Value, assign: int, reader: Any, group: str = "") -> ir.Value:
        """`value`, whose memory the op at position `assign` overwrites, as it was before. Views are looked through."""
        owner = value.owner
        if not isinstance(owner, ir.Block) and owner.name == "mlirc.view":
            base = self.before(owner.operands[0], assign, reader, group)
            with ir.InsertionPoint(reader), owner.location:
                attributes = {"map": owner.attributes["map"], "offset": owner.attributes["offset"]}
                return create("view", [base], [value.type], attributes).out
        alias = aliased_operand(value)
        if alias is not None:
            return self.viewed_by_aten(value, alias, assign, reader, group)
        key = (value, assign, group)
        if value not in self.found.buffer_of:  # a copy that was made here, for what is read of the argument
            if group and key not in self.saved:
                self.saved[key] = copy_before(value, reader)
            return self.saved[key] if group else value
        if not isinstance(owner, ir.Block) and self.found.ops.index(owner) > assign:
            raise UnsupportedByPass(owner, "what is read of an argument is made after the argument was overwritten")
        if key not in self.saved:
            op = self.found.ops[assign]
            self.saved[key] = copy_before(value, op)
            self.ledger.record(self.pass_name, "copy", "argument", "OLD VALUE", True, op)
        return self.saved[key]

    def viewed_by_aten(self, value: ir.Value, alias: int, assign: int, reader: Any, group: str) -> ir.Value:
        """What ATen's view is of its operand, of the operand as it was before."""
        key = (value, assign, group)
        if key not in self.saved:
            base = self.before(value.owner.operands[alias], assign, reader, group)
            with ir.InsertionPoint(reader):
                again = value.owner.operation.clone()
            again.operands[alias] = base
            for old, new in zip(value.owner.results, again.results, strict=True):
                if aliased_operand(old) == alias:
                    self.saved[old, assign, group] = new
        return self.saved[key]


def aliased_operand(value: ir.Value) -> int | None:
    """Which operand's memory it is that an ATen call gives as `value`."""
    op = value.owner
    if isinstance(op, ir.Block) or op.name != "mlircx.aten":
        return None
    alias = symbols.parse_list(attribute_value(op.attributes["aliases"]))[ir.OpResult(value).result_number]
    return None if alias == -1 else int(str(alias))


def copy_before(value: ir.Value, op: Any) -> ir.Value:
    """A copy of `value` with the same strides, made just before `op`.

    Where the strides leave gaps or repeat elements, all from the first to past the last one is copied and viewed.
    """
    info = info_of(value)
    g = GraphBuilder()
    with ir.InsertionPoint(op), op.location:
        if info.is_dense:
            return g.copy(value, info)
        extent = symbols.maximum(info.extent, 0)
        flat = g.copy(g.view(value, [extent], [1], None))
        return g.view(flat, info.shape, info.stride, None)


def scalar_work(op: Any) -> ir.Value:
    """SCALAR WORK: replaces the op by a kernel and returns the result. What kernels cannot do stays a copy: a dtype that
    they do not know, another device."""
    result = op.results[0]
    info = info_of(result)
    if op.operation.name == "mlirc.copy" and info_of(op.operands[0]).device != info.device:
        return result
    if info.dtype not in KERNEL_DTYPES:
        if op.operation.name != "mlirc.copy":
            raise UnsupportedByPass(op, f"{info.dtype} is no dtype that kernels compute with")
        return result
    with ir.InsertionPoint(op), op.location:
        form = form_of(type(op))
        (made,) = form(KernelBuilder, op) if form else number(op, info)
    result.replace_all_uses_with(made)
    op.operation.erase()
    return made


def number(op: Any, info: TensorInfo) -> list[ir.Value]:
    """The kernel that writes a 0-d constant or size."""
    k = KernelBuilder((), label=type(op).mnemonic)
    if op.operation.name == "mlirc.constant":
        value = k.constant(read_constant(attribute_value(op.attributes["value"])), info.dtype)
    else:
        value = k.cast(k.size(symbols.parse(attribute_value(op.attributes["expr"]))), info.dtype)
    return k.finish([(value, (), info)])
