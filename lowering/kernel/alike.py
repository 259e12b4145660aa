"""Equal ops become equal kernels: each kernel of `to-kernels` is built once, and copied for ops that are alike."""

from collections.abc import Hashable
from dataclasses import field
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise, attribute_value
from mlirc.dialects.core.graph_ops import Constant, Copy, Iota, Size, View
from mlirc.dialects.core.kernel_forms import Form, bitcast, cast, copy, elementwise, iota, reduction
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass

FORMS = (elementwise, cast, bitcast, copy, iota, reduction)
IN_CONTEXT = ("first_max", "first_min")  # of a reduction: its kernel depends on who reads the result


@dataclass(frozen=True)
class MadeKernel:
    """A kernel that was built, and which operands of the op that it was made of are its operands."""

    op: ir.Operation
    operands: tuple[int, ...]


@dataclass
class AlikeKernels:
    """What kernels of `to-kernels` were made of: kernels are alike, up to their operands and source lines, if they were made of the same.
    Who reads kernels next needs to read only one of those. Each node of such a kernel has the kernel's location.

    numbers    of descriptions of values that a kernel computes from sizes
    described  the number of a value's, None of one that kernels read. A value is described while the op that makes it is
               not yet a kernel; those whose users are not yet are in use no more
    kernels    by what they were made of
    made_of    by the kernels' results
    """

    numbers: dict[Hashable, int] = field(default_factory=dict)
    described: dict[ir.Value, int | None] = field(default_factory=dict)
    kernels: dict[Hashable, MadeKernel] = field(default_factory=dict)
    _made_of: dict[ir.Value, Hashable] = field(default_factory=dict)

    def key(self, form: Form, op: Any) -> Hashable:
        """What the kernel of an op follows from, up to which operands it has; None where it follows from more."""
        if form not in FORMS or (form is reduction and type(op).kind in IN_CONTEXT):
            return None
        operands = list(op.operands)
        first = {x: k for k, x in reversed(list(enumerate(operands)))}
        location = op.location
        whole = location.name_str if isinstance(location, ir.NameLoc) else ""
        attributes, types = tuple(op.attributes.items()), tuple([x.type for x in operands])
        computed = tuple([self.describe(x) for x in operands])
        return op.operation.name, attributes, types, computed, tuple(first.values()), op.results[0].type, whole

    def copied(self, key: Hashable, op: Any) -> ir.Value | None:
        """The result of a copy, in front of `op` and on its operands, of the kernel that was made of the same; None if there is none."""
        made = self.kernels.get(key)
        if made is None:
            return None
        location = op.location
        kernel = made.op.clone(ip=ir.InsertionPoint(op)).operation
        kernel.location = location
        block = kernel.regions[0].blocks[0]
        for argument in block.arguments:
            argument.set_location(location)
        for inner in block.operations:
            inner.operation.location = location
        operands, given = kernel.operands, op.operands
        for place, k in enumerate(made.operands):
            operands[place] = given[k]
        result = kernel.results[0]
        self._made_of[result] = key
        return result

    def add(self, key: Hashable, result: ir.Value, op: Any) -> None:
        """`result` is that of the kernel built of `op`."""
        kernel, operands = result.owner.operation, list(op.operands)
        self.kernels[key] = MadeKernel(kernel, tuple([operands.index(x) for x in kernel.operands]))
        self._made_of[result] = key

    def made_of(self, result: ir.Value) -> Hashable:
        """Equal for kernels that are alike; None of one that was not added."""
        return self._made_of.get(result)

    def release(self) -> None:
        """Forgets all: values and ops do not outlive what later passes do to them."""
        for known in (self.numbers, self.described, self.kernels, self._made_of):
            known.clear()

    def is_read(self, x: ir.Value) -> bool:
        """Whether kernels read a value: sizes alone do not decide it."""
        return self.describe(x) is None

    def describe(self, x: ir.Value) -> int | None:
        """A number, equal for values that kernel_forms.operand computes by the same scalar ops; None of one that it reads."""
        stack = [x]  # no recursion: a scalar may be the end of thousands of ops
        while x not in self.described:
            behind = computed_from(stack[-1])
            unknown = next((y for y in behind or () if y not in self.described), None)
            if unknown is not None:
                stack.append(unknown)
                continue
            value, parts = stack.pop(), [self.described[y] for y in behind or ()]
            self.described[value] = None if behind is None or None in parts else self._number(value, tuple(parts))
        return self.described[x]

    def _number(self, x: ir.Value, parts: tuple) -> int:
        op = x.owner
        key = op.operation.name, tuple(op.attributes.items()), x.type, parts
        return self.numbers.setdefault(key, len(self.numbers))


def computed_from(x: ir.Value) -> list[ir.Value] | None:
    """The values that `x` is computed from where sizes decide them (kernel_forms.operand); None where kernels read it all the same."""
    op = x.owner
    if isinstance(op, Constant | Size | Iota):
        return []
    if isinstance(op, View) and not attribute_value(op.attributes["map"]) and info_of(op.operands[0]).rank:
        return None
    if isinstance(op, Copy | View):
        return list(op.operands)
    if isinstance(op, Elementwise) and (info_of(x).rank == 0 or type(op).mnemonic == "cast"):
        return list(op.operands)
    return None
