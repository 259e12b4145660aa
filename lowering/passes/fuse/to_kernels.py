"""to-kernels: each op that computes elements becomes a kernel of its own."""

from collections.abc import Callable, Sequence
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.graph_ops import Constant, Copy, Size, View
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_forms import Form, form_of, operand
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.alike import AlikeKernels
from mlirc.lowering.kernel.label import MINOR
from mlirc.lowering.pipeline.ledger import Ledger


@dataclass(frozen=True)
class ToKernels:
    """Turn every op that computes elements into a kernel of its own; fusion then merges kernels.

    before:  %0 = "mlirc.exp"(%x) : (tensor<8xf32>) -> tensor<8xf32>
    after:   %0 = "mlircx.kernel"(%x) ({
             ^bb0(%a: tensor<8xf32>):
               %1 = "mlirc.read"(%a) {map = "d0", masked = false} : (tensor<8xf32>) -> f32
               %2 = "mlirc.exp"(%1) : (f32) -> f32
               "mlircx.yield"(%2) {maps = ["d0"]} : (f32) -> ()
             }) {parallel = "8", inner = "", label = "exp"} : (tensor<8xf32>) -> tensor<8xf32>

    Numbers and sizes become scalars of the kernels that use them. What another op needs as a tensor is a kernel too.
    Views, matmuls, ATen calls, and copies from one device to another stay.
    """

    name = "to-kernels"
    takes = "graph"
    gives = "kernel"

    def run(self, function: Any, ledger: Ledger) -> None:
        alike = AlikeKernels()
        # Users first: forms look at the constants and iotas behind their operands, which are then often not needed.
        for op in reversed(list(function.regions[0].blocks[0].operations)):
            form = number if is_number(op) else None if moves(op) else form_of(type(op))
            used = any(next(iter(result.uses), None) is not None for result in op.results)
            if form is None and (used or not isinstance(op, View)):
                continue  # a view that nobody reads any more goes
            if form is not None and used and not ledger.allows(self.name, op):
                continue
            if form is not None and used:
                values = kernel_of(op, form, alike)
                for old, new in zip(op.results, values, strict=True):
                    old.replace_all_uses_with(new)
            op.operation.erase()
        if ledger.fusion is None:
            ledger.left[function.operation] = alike


def kernel_of(op: Any, form: Form, alike: AlikeKernels) -> Sequence[ir.Value]:
    """The results of a new kernel for an op, in front of it."""
    key = alike.key(form, op)
    copied = None if key is None else alike.copied(key, op)
    if copied is not None:
        return [copied]
    location = op.location
    with ir.InsertionPoint(op), location:
        values = form(kernel_maker(location, alike.is_read), op)
    if key is not None:
        alike.add(key, values[0], op)
    return values


def kernel_maker(location: ir.Location, is_read: Callable[[ir.Value], bool]) -> Callable[..., KernelBuilder]:
    """Makes kernels labelled by their op, or by the composite that it is part of (decompose put it in the location)."""
    whole = location.name_str if isinstance(location, ir.NameLoc) else None

    def make(parallel: Sequence[Int], inner: Sequence[Int] = (), label: str = "") -> KernelBuilder:
        return KernelBuilder(parallel, inner, label if whole is None or label in MINOR else whole, is_read)

    return make


def moves(op: Any) -> bool:
    """Whether it copies from one device to another: no kernel touches the memory of two."""
    return isinstance(op, Copy) and info_of(op.operands[0]).device != info_of(op.out).device


def is_number(op: Any) -> bool:
    """Whether it is a constant or size as a 0-d tensor; a plain i64 is a SymInt, and stays."""
    return isinstance(op, Constant | Size) and isinstance(op.out.type, ir.RankedTensorType)


def number(make: Callable[..., KernelBuilder], op: Any) -> list[ir.Value]:
    k = make((), label=type(op).mnemonic)
    return k.finish([(operand(k, op.out, ()), (), info_of(op.out))])
