"""fold-constants: computes what is known at compile time, and drops ops that change nothing."""

from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Elementwise
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.tensor_types import TensorInfo, info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.constant_values import number_of, scalar_of
from mlirc.lowering.analysis.element_expressions import Elements
from mlirc.lowering.analysis.index_maps import identity
from mlirc.lowering.pipeline.ledger import Ledger

COMPARISONS = frozenset(("eq", "ne", "lt", "le", "gt", "ge"))


@dataclass(frozen=True)
class FoldConstants:
    """Compute what is known already, and drop work that changes nothing, to the last bit.

    before:  %0 = "mlirc.iota"() {expr = "d0"} : () -> tensor<128xi64>
             %1 = "mlirc.ge"(%0, %zero) : (tensor<128xi64>, tensor<i64>) -> tensor<128xi1>
             %2 = "mlirc.select"(%1, %x, %y) : ...
    after:   %x

    Elementwise ops of numbers, and comparisons of indices whose ranges decide them, are numbers. x*1, x/1, x-0 are x,
    and x+0 is where x is no float (-0.0 + 0 is 0). A cast back from a dtype that holds every value is no cast.
    """

    name = "fold-constants"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            if not isinstance(op, Elementwise):
                continue
            with ir.InsertionPoint(op), op.location:
                value = folded(op)
            if value is not None and ledger.allows(self.name, op):
                op.results[0].replace_all_uses_with(value)
                op.operation.erase()


def folded(op: Any) -> ir.Value | None:
    """A value to stand for the result of an elementwise op, of the same type, or None."""
    info = info_of(op.results[0])
    mnemonic = type(op).mnemonic
    if mnemonic == "bitcast":
        return None
    numbers = [number_of(x) for x in op.operands]
    if all(number is not None for number in numbers):
        operands = [torch.tensor(n, dtype=info_of(x).dtype) for n, x in zip(numbers, op.operands, strict=True)]
        number = scalar_of(op, operands)
        return None if number is None else filled(number, info)
    if mnemonic in COMPARISONS:
        sizes = {f"d{k}": n for k, n in enumerate(info.shape)}
        always = Elements(sizes).truth(op.results[0], identity(info.rank))
        return None if always is None else filled(bool(always), info)
    if mnemonic == "select":
        return None if numbers[0] is None else laid_out(op.operands[1 if numbers[0] else 2], info)
    if mnemonic in ("logical_and", "logical_or", "bitwise_and", "bitwise_or"):
        return folded_logic(op, numbers, info, mnemonic.endswith("and"))
    if mnemonic == "cast":
        return folded_cast(op, info)
    return without_effect(op, mnemonic, numbers)


def filled(number: float | int | bool, info: TensorInfo) -> ir.Value:
    """A tensor whose elements are all `number`."""
    g = GraphBuilder(info)
    constant = g.constant(number, info.dtype)
    if not info.rank:
        return constant
    return g.copy(g.expand(constant, info.shape), info)


def laid_out(x: ir.Value, info: TensorInfo) -> ir.Value:
    """`x` broadcast and converted to `info`."""
    g = GraphBuilder(info)
    if info_of(x) == info:
        return x
    x = g.cast(x, info.dtype)
    if info_of(x).shape != info.shape:
        x = g.expand(x, info.shape)
    return x if info_of(x) == info else g.copy(x, info)


def folded_logic(op: Any, numbers: list, info: TensorInfo, is_and: bool) -> ir.Value | None:
    """Folds a boolean and/or with one constant operand; None where it does not apply."""
    if any(info_of(x).dtype != torch.bool for x in op.operands):
        return None
    for number, other in zip(numbers, reversed(list(op.operands)), strict=True):
        if number is not None:
            return laid_out(other, info) if bool(number) == is_and else filled(not is_and, info)
    return None


def folded_cast(op: Any, info: TensorInfo) -> ir.Value | None:
    """A cast of a cast that lost nothing is one cast, or none."""
    before = op.x.owner
    if op.x.type == op.results[0].type:
        return op.x
    if isinstance(before, ir.Block) or getattr(type(before), "mnemonic", None) != "cast":
        return None
    source = info_of(before.x).dtype
    if not holds_every(source, info_of(op.x).dtype) or not is_same_conversion(source, info_of(op.x).dtype, info.dtype):
        return None
    return laid_out(before.x, info)


def holds_every(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether each value of `source` is one of `target`."""
    if source == target or source == torch.bool:
        return True
    if source.is_floating_point:
        return target.is_floating_point and torch.promote_types(source, target) == target
    bits = torch.iinfo(source).bits - (torch.iinfo(source).min < 0)
    if target.is_floating_point:
        return 2**bits <= 2 / torch.finfo(target).eps and 2**bits <= torch.finfo(target).max
    if target == torch.bool:
        return False
    return torch.iinfo(source).min >= torch.iinfo(target).min and torch.iinfo(source).max <= torch.iinfo(target).max


def is_same_conversion(source: torch.dtype, middle: torch.dtype, target: torch.dtype) -> bool:
    """Integers wrap around on the way to a small one; from a float they need not: those two must not be exchanged."""
    number = not source.is_floating_point and middle.is_floating_point
    return not number or target.is_floating_point or holds_every(source, target)


def without_effect(op: Any, mnemonic: str, numbers: list) -> ir.Value | None:
    """The operand that the op gives back unchanged, type included."""
    if mnemonic not in ("add", "sub", "mul", "div"):
        return None
    operands = list(op.operands)
    is_float = info_of(op.results[0]).dtype.is_floating_point
    sides = (0, 1) if mnemonic in ("add", "mul") else (1,)
    for side in sides:
        number, other = numbers[side], operands[1 - side]
        if number is not None and other.type == op.results[0].type and is_neutral(mnemonic, number, is_float):
            return other
    return None


def is_neutral(mnemonic: str, number: float | int | bool, is_float: bool) -> bool:
    if mnemonic in ("mul", "div"):
        return number == 1
    if number != 0:
        return False
    if not is_float:
        return True
    negative = str(float(number)).startswith("-")
    return negative if mnemonic == "add" else not negative  # -0.0 + 0.0 is 0.0, and -0.0 - -0.0 too
