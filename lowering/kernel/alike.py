"""Which kernels of `to-kernels` are alike up to their operands and source lines, told without a look into them."""

from collections.abc import Hashable
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise
from mlirc.dialects.core.graph_ops import Constant, Copy, Iota, Size, View
from mlirc.dialects.core.tensor_types import info_of


class AlikeKernels:
    """What kernels of elementwise ops were made of, by their results. Who reads kernels next needs to read only one of those that were made of the
    same.

    Each node of such a kernel has the kernel's location.
    """

    def __init__(self) -> None:
        self._made_of: dict[ir.Value, Hashable] = {}

    def add(self, result: ir.Value, op: Any) -> None:
        """`result` is that of the kernel made of `op`."""
        operands = list(op.operands)
        if any(may_be_immediate(x) for x in operands):
            return
        first = {x: k for k, x in reversed(list(enumerate(operands)))}
        location = op.location
        whole = location.name_str if isinstance(location, ir.NameLoc) else ""
        attributes = tuple([(name, value) for name, value in op.attributes.items()])
        types = tuple([x.type for x in operands])
        self._made_of[result] = op.operation.name, attributes, types, tuple(first.values()), result.type, whole

    def made_of(self, result: ir.Value) -> Hashable:
        """Equal for kernels that are alike; None of one that was not added."""
        return self._made_of.get(result)

    def release(self) -> None:
        self._made_of.clear()


def may_be_immediate(x: ir.Value) -> bool:
    """Whether a kernel may compute the operand from sizes instead of reading it (kernel_forms.operand)."""
    op = x.owner
    while isinstance(op, View):
        op = op.operands[0].owner
    if isinstance(op, Elementwise):
        return type(op).mnemonic == "cast" or info_of(op.results[0]).rank == 0
    return isinstance(op, Constant | Size | Iota | Copy)
