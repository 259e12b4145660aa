"""fuse-matmul-epilogue: GELU by tanh goes into the library's matmul that it follows, on a GPU."""

from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.graph_builder import read_constant
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.pipeline.ledger import Ledger

CLOSE = 1e-3  # relative: to which a constant may have been rounded, to bfloat16 say
CUBE, SLOPE = 0.044715, 0.7978845608028654  # of gelu's approximation: tanh(SLOPE * (x + CUBE * x**3))


@dataclass(frozen=True)
class FuseMatmulEpilogue:
    """Let cuBLAS apply GELU to what it multiplies, while it has it in registers.

    before:  %0 = "mlirc.addmm"(%b, %x, %w) : (tensor<3072xbf16>, tensor<8192x768xbf16>, tensor<768x3072xbf16>)
             %1 = "mlirc.gelu_tanh"(%0)              or x * 0.5 * (1 + tanh(0.798 * (x + 0.0447 * x**3))) written out
    after:   %1 = "mlirc.addmm_gelu"(%b, %x, %w)

    ONE READER  of a matmul with a bias of half types; cuBLAS has no GELU by erf, and relu only for what is no NaN
    """

    name = "fuse-matmul-epilogue"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        for op in list(function.regions[0].blocks[0].operations):
            x = activated(op)
            if x is None:
                continue
            matmul = only_matmul(x, op)
            if matmul is not None and not ledger.allows(self.name, op):
                continue
            ledger.record(self.name, "fuse", "gelu", "ONE READER", matmul is not None, op)
            if matmul is None:
                continue
            with ir.InsertionPoint(matmul), matmul.location:
                made = create("addmm_gelu", list(matmul.operands), [matmul.results[0].type]).out
            matmul.results[0].replace_all_uses_with(made)
            op.results[0].replace_all_uses_with(x if x != matmul.results[0] else made)


def activated(op: Any) -> ir.Value | None:
    """What the op's result is GELU by tanh of; None for any other op."""
    if op.operation.name == "mlirc.gelu_tanh":
        return op.operands[0]
    if op.operation.name != "mlirc.mul" or not info_of(op.results[0]).device.startswith("cuda"):
        return None
    for half, one in (tuple(op.operands), tuple(op.operands)[::-1]):
        x, bent = scaled(half, 0.5), added(one, 1.0)
        inner = owner(bent) if bent is not None else None
        if x is None or inner is None or inner.operation.name != "mlirc.tanh":
            continue
        total = owner(scaled(inner.operands[0], SLOPE))
        if total is not None and total.operation.name == "mlirc.add":
            for first, second in (tuple(total.operands), tuple(total.operands)[::-1]):
                power = scaled(second, CUBE)
                if same(first, x) and power is not None and is_cube(power, x):
                    return x
    return None


def owner(x: ir.Value | None) -> Any | None:
    """The op that makes the value, behind casts."""
    x = plain(x) if x is not None else None
    return None if x is None or isinstance(x.owner, ir.Block) else x.owner


def plain(x: ir.Value) -> ir.Value:
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.cast":
        if not info_of(x.owner.operands[0]).dtype.is_floating_point:
            break
        x = x.owner.operands[0]
    return x


def same(x: ir.Value, y: ir.Value) -> bool:
    return plain(x) == plain(y)


def scaled(x: ir.Value, factor: float) -> ir.Value | None:
    """y, where x is y * factor."""
    return _beside(x, "mlirc.mul", factor)


def added(x: ir.Value, number: float) -> ir.Value | None:
    """y, where x is y + number."""
    return _beside(x, "mlirc.add", number)


def _beside(x: ir.Value, name: str, number: float) -> ir.Value | None:
    op = owner(x)
    if op is None or op.operation.name != name:
        return None
    for y, constant in (tuple(op.operands), tuple(op.operands)[::-1]):
        made = owner(constant)
        if made is not None and made.operation.name == "mlirc.constant":
            value = read_constant(attribute_value(made.attributes["value"]))
            if abs(value - number) <= CLOSE * abs(number):
                return plain(y)
    return None


def is_cube(power: ir.Value, x: ir.Value) -> bool:
    op = owner(power)
    if op is None or op.operation.name != "mlirc.mul":
        return False
    for square, last in (tuple(op.operands), tuple(op.operands)[::-1]):
        twice = owner(square)
        if twice is not None and twice.operation.name == "mlirc.mul" and same(last, x):
            return all(same(y, x) for y in twice.operands)
    return False


def only_matmul(x: ir.Value, last: Any) -> Any | None:
    """The addmm whose result is `x`, or what `x` is a view of, where nothing but what ends in `last` reads it."""
    if not is_read_only_by(x, last) or info_of(x) != info_of(last.results[0]):
        return None
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        view, x = x.owner, x.owner.operands[0]
        if [use.owner.operation for use in x.uses] != [view.operation] or info_of(x).numel != info_of(
            view.results[0]
        ).numel:
            return None
    matmul = None if isinstance(x.owner, ir.Block) else x.owner
    if matmul is None or matmul.operation.name != "mlirc.addmm":
        return None
    bias, out = info_of(matmul.operands[0]), info_of(matmul.results[0])
    fits = out.rank == 2 and bias.shape == out.shape[1:] and out.dtype.itemsize == 2 and out.is_contiguous
    return matmul if fits and out.device.startswith("cuda") else None


def is_read_only_by(x: ir.Value, last: Any) -> bool:
    """Whether every way from `x` leads into `last`, and nothing on them leads elsewhere."""
    inside = {last.operation}
    waiting = [use.owner.operation for use in x.uses]
    while waiting:
        op = waiting.pop()
        if op in inside:
            continue
        if not op.name.startswith("mlirc.") or op.name == "mlirc.assign" or not below(op, last):
            return False
        inside.add(op)
        waiting += [use.owner.operation for result in op.results for use in result.uses]
    return True


def below(op: Any, last: Any) -> bool:
    """Whether `last` is computed from the op's result, by the few ops of a GELU."""
    steps, level = 12, {last.operation}
    for _ in range(steps):
        if op in level:
            return True
        level = {y.owner.operation for o in level for y in o.operands if not isinstance(y.owner, ir.Block)}
    return False
