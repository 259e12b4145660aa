"""Writes the values of a kernel as MLIR text: reads and scalar work, each where all its operands are known."""

import torch

from mlirc.lowering.cpu.emitter.memory import load, pointer
from mlirc.lowering.cpu.emitter.scope import Scope
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.kernel.nodes import Node, computed_dtype


class VectorEmitter(Scope):
    """A Scope that computes the values of nodes."""

    def enter(self, *names: str) -> None:
        """The index of these axes is known from here on: emit what that makes computable."""
        self.bound.update(names)
        for node in self.nodes:
            if node.kind not in ("constant", "reduce") and node not in self.env and node.dims <= self.bound:
                self.value(node)
        for access in self.accesses:
            pointer(self, access)

    def value(self, node: Node) -> Value:
        """The value of a node here; a scan's or reduction's must have been put into `env`."""
        if node not in self.env:
            self.env[node] = self.compute(node, self.is_wide(node))
        return self.env[node]

    def compute(self, node: Node, wide: bool) -> Value:
        if node in self.saved:
            return load(self, self.saved[node], wide)
        if node.kind == "read":
            for x in node.access.scalars:  # checked where the address does not depend on it too
                self.value(x)
            return load(self, self.reads.get(node) or node.access, wide)
        if node.kind == "constant":
            return self.builder(node.dtype).constant(node.attributes["value"], node.dtype)
        if node.kind == "size":
            return self.linear(node.size, wide)
        if node.kind == "check_index":
            return self.check_index(node, wide)
        if node in self.late:
            return self.late[node]()
        if node.kind in ("reduce", "scan"):
            raise KeyError(f"the {node.kind} {node.attributes['kind']} is used before it is done")
        operands = [self.operand(x, wide) for x in node.operands]
        if node.kind in ("cast", "bitcast"):
            return getattr(self.builder(node.dtype, wide), node.kind)(operands[0], node.dtype)
        return node.cls.scalar(self.builder(computed_dtype(node), wide), *operands, **node.attributes)

    def check_index(self, node: Node, wide: bool) -> Value:
        """The index, wrapped; a lane outside is reported by a call of @bad_index and becomes 0."""
        b = self.builder(torch.int64, wide)
        x = self.operand(node.operands[0], wide)
        size = self.linear(node.size, wide and self.axis in node.size.dims)
        sizes = self.splat(size) if wide and self.axis not in node.size.dims else size
        zero = b.constant(0)
        wrapped = b.select(b.lt(x, zero), b.add(x, sizes), x) if node.attributes["wraps"] else x
        # as an unsigned number a negative one is larger than any size
        good = b.emit(f"arith.cmpi ult, {wrapped}, {sizes} : {b.type_text(torch.int64)}", torch.bool)
        bad = b.not_(good)
        if wide and self.mask is not None:
            bad = b.and_(bad, self.mask)
        scalar = self.index
        any_bad, worst = bad, x
        if wide:
            any_bad = scalar.emit(f"vector.reduction <or>, {bad} : {b.type_text(torch.bool)} into i1", torch.bool)
        self.lines.append(f"scf.if {any_bad} {{")
        if wide:
            shown = b.select(bad, x, b.constant(torch.iinfo(torch.int64).min))
            worst = scalar.emit(f"vector.reduction <maxsi>, {shown} : {b.type_text(torch.int64)} into i64", torch.int64)
        shown_size = size
        if sizes is size and wide:
            shown_size = scalar.emit(f"vector.extract {size}[0] : i64 from {b.type_text(torch.int64)}", torch.int64)
        number = scalar.emit(f"arith.constant {node.check} : i64", torch.int64)
        self.lines.append(
            f"llvm.call @KERNEL_bad_index(%frame, {number}, {worst}, {shown_size}) : (!llvm.ptr, i64, i64, i64) -> ()"
        )
        self.lines.append("}")
        self.env["checked", node] = good
        return b.select(good, wrapped, zero)
