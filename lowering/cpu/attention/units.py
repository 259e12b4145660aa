"""How threads share the heads and blocks of an attention kernel."""

from collections.abc import Callable, Sequence

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops.entry import shared_memory
from mlirc.lowering.cpu.loops.frame import begin, operands_only
from mlirc.lowering.cpu.loops.work_stealing import WorkStealing
from mlirc.lowering.cpu.math.builder import Value


def begin_with(e: VectorEmitter, operands: Sequence[str], symbols: list[str]) -> None:
    """Begins the body: `e.env` has each operand's address by its name from here on."""
    begin(e, operands_only(len(operands)), symbols)
    for number, name in enumerate(operands):
        e.env[name] = e.env["base", number]


def each_unit(e: VectorEmitter, units: Int, body: Callable[[Value], None]) -> None:
    """`body(unit)` for a thread's part of them, and for those that it helps others with."""

    def some(first: Value, end: Value) -> None:
        with e.each(first, end) as number:
            body(number)

    WorkStealing(e, shared_memory(e), e.integer(units), e.i64(1)).each(some)


def each_head(e: VectorEmitter, batch: Int, heads: Int, body: Callable[[Value, Value], None]) -> None:
    """`body(batch, head)` for a thread's part of them."""
    each_unit(e, batch * heads, lambda number: body(*divided(e, number, e.integer(heads))))


def divided(e: VectorEmitter, x: Value, by: Value) -> tuple[Value, Value]:
    """Quotient and remainder of what is not negative."""
    return e.index.binary("arith.divui", x, by), e.index.binary("arith.remui", x, by)
