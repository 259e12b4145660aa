"""What a lowered function relies on of its inputs: its arguments' types, the bounds of size expressions, which inputs it writes."""

from collections.abc import Sequence
from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS, nested_functions, region_functions
from mlirc.dialects.core import aten_arguments, symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_signature import argument_attributes
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.forms import ATEN
from mlirc.lowering.module.rules import expect
from mlirc.lowering.verify.regions import may_write

MOST_BYTES = 1 << 47  # of a tensor, or of an arena
SYMBOL = "mlirc.symbol"


@dataclass(frozen=True)
class InputPromises:
    """The promises of a function `@entry`, one entry an argument where it is a sequence of that length.

    infos        the tensor types; None for an argument that is an i64 or f64
    are_numbers  whether the input is a Python number: such an argument, or a 0-d tensor with the attribute mlirc.scalar
    named        size expressions whose values are inputs, by the argument's number
    nonnegative  size expressions that must be 0 or more, obligations of the verifier (lowering/verify/memory.py) among them
    divisors     size expressions that must not be 0
    written      numbers of the arguments whose memory the function may write
    """

    infos: tuple[TensorInfo | None, ...]
    are_numbers: tuple[bool, ...]
    named: dict[int, Int]
    nonnegative: tuple[Int, ...]
    divisors: tuple[Int, ...]
    written: tuple[int, ...]


def input_promises(function: Any, obligations: Sequence[Int]) -> InputPromises:
    """Reads the promises off a function in the lowered form. Raises StageError for a region that writes what it may only read."""
    arguments = function.regions[0].blocks[0].arguments
    infos = tuple(info_of(x) if isinstance(x.type, ir.RankedTensorType) else None for x in arguments)
    attributes = argument_attributes(function) or [{}] * len(infos)
    scalars = ["mlirc.scalar" in named for named in attributes]
    return InputPromises(
        infos=infos,
        are_numbers=tuple(info is None or scalar for info, scalar in zip(infos, scalars, strict=True)),
        named={
            k: symbols.parse(ir.StringAttr(named[SYMBOL]).value)
            for k, named in enumerate(attributes)
            if SYMBOL in named
        },
        nonnegative=(*obligations, *room_left(function)),
        divisors=tuple(divisors(function)),
        written=written_arguments(function),
    )


# ---- bounds of size expressions


def divisors(function: Any) -> list[Int]:
    """The symbolic divisors in the function's size expressions. Where one is 0, Python raises and a processor traps."""
    found: dict[Int, None] = {}
    waiting = [n for op in operations(function) for n in expressions(op)]
    while waiting:
        n = waiting.pop()
        if isinstance(n, int):
            continue
        for atom in (atom for monomial in n.terms for atom in monomial if not isinstance(atom, str)):
            name, a, b = atom
            waiting += [a, b]
            if name in ("floordiv", "mod") and not isinstance(b, int):
                found[b] = None
    return list(found)


def operations(op: Any) -> list[Any]:
    """The op and all ops nested in it."""
    inside = [x for region in op.regions for block in region.blocks for x in block.operations]
    return [op, *(x for each in inside for x in operations(each))]


def expressions(op: Any) -> list[Int]:
    """The size expressions with a division in an op's text attributes."""
    texts = [a.value for a in (ir.StringAttr(a) for a in op.attributes.values() if isinstance(a, ir.StringAttr))]
    found: list[Int] = []
    for text in texts:
        if "//" in text or "%" in text:
            try:
                found += symbols.parse_list(text)
            except (ValueError, SyntaxError):
                continue
    return found


def room_left(function: Any) -> list[Int]:
    """MOST_BYTES less the bytes of each tensor and of each arena: where that is 0 or more, 64-bit arithmetic on bytes does not overflow.

    Tensors whose sizes depend on data are left out: PyTorch has allocated them.
    """
    every_function = (function, *nested_functions(function))
    blocks = [each.regions[0].blocks[0] for each in every_function]
    values = [x for b in blocks for x in (*b.arguments, *(y for op in b.operations for y in op.results))]
    infos = [info_of(x) for x in values if isinstance(x.type, ir.RankedTensorType)]
    sizes = {info.extent * info.dtype.itemsize for info in infos}
    for each in every_function:
        if "mlirc.arena" in each.attributes:
            sizes |= set(arenas(each).values())
    bound = {name for x in blocks[0].arguments for name in names_of(x)}
    for named in argument_attributes(function):
        if SYMBOL in named:
            bound |= symbols.free_symbols(symbols.parse(ir.StringAttr(named[SYMBOL]).value))
    return [MOST_BYTES - n for n in sizes if not isinstance(n, int) and symbols.free_symbols(n) <= bound]


def names_of(x: ir.Value) -> set[str]:
    """The symbols in an argument's sizes."""
    shape = info_of(x).shape if isinstance(x.type, ir.RankedTensorType) else ()
    return {name for n in shape for name in symbols.free_symbols(n)}


# ---- writes


def written_arguments(function: Any) -> tuple[int, ...]:
    """Arguments whose memory an op of the memory form may write. Raises StageError for a region that writes what it may only read."""
    block = function.regions[0].blocks[0]
    of = {x: {k} for k, x in enumerate(block.arguments)}  # the arguments whose memory a value may be
    found: set[int] = set()
    for op in block.operations:
        name = op.operation.name
        reached = set[int]().union(*(of.get(x, set()) for x in op.operands))
        if name in ATEN and aten_arguments.resolve(attribute_value(op.attributes["op"]))._schema.is_mutable:
            found |= reached
        elif "inputs" in op.attributes:
            outputs = list(op.operands)[attribute_value(op.attributes["inputs"]) :]
            found |= set[int]().union(*(of.get(x, set()) for x in outputs))
        if name in REGION_OPS:
            for nested, allowed in zip(region_functions(op), may_write(op), strict=True):
                for k in written_arguments(nested):
                    expect(allowed[k], op, f"@{nested.name.value} overwrites argument {k}", "it may only read that")
        if name == "mlirc.view" or name in ATEN:
            of |= dict.fromkeys(op.results, reached)
    return tuple(sorted(found))
