"""What the writers of attention's kernels share: operands by name, and how threads share heads and blocks."""

from collections.abc import Callable, Sequence

import torch

from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.lowering.cpu.attention.call import AttentionProblem
from mlirc.lowering.cpu.attention.memory import place_of
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops.entry import shared_memory
from mlirc.lowering.cpu.loops.frame import KernelText, begin, framed, operands_only
from mlirc.lowering.cpu.loops.work_stealing import WorkStealing
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder
from mlirc.lowering.kernel.axes import Axis, Vector
from mlirc.lowering.target import CpuTarget


class AttentionWriter:
    """What writes the functions of attention's kernel `name` has in common. `operands` are names, `symbols` are the arguments that
    give sizes, `axis` is what the lanes run along, where values of a body are computed."""

    def __init__(
        self,
        a: AttentionProblem,
        name: str,
        target: CpuTarget,
        operands: Sequence[str],
        symbols: list[str],
        axis: Axis | None = None,
    ):
        self.a, self.name, self.target, self.operands, self.symbols = a, name, target, operands, symbols
        self.e = VectorEmitter(Vector(axis, target.vector_bytes // 4), target)
        self.lanes = self.e.lanes
        self.choose_sizes()

    def choose_sizes(self) -> None:
        """Chooses the sizes of tiles and blocks, once all that is given is known."""

    @property
    def wide(self) -> VectorBuilder:
        return self.e.builder(torch.float32, True)

    def begin(self) -> None:
        """Begins the body: `e.env` has each operand's address by its name from here on."""
        begin(self.e, operands_only(len(self.operands)), self.symbols)
        for number, name in enumerate(self.operands):
            self.e.env[name] = self.e.env["base", number]

    def framed(self, work: Int, items: Int) -> KernelText:
        """The kernel's functions; a thread takes one work item at a time."""
        given = operands_only(len(self.operands))
        return framed(self.e, self.name, self.target, given, self.symbols, work, items, chunk=1)

    def head(self, which: str) -> int:
        """Elements of a query and a key (k), or of a value."""
        size = (self.a.v if which == "v" else self.a.q).shape[3]
        assert isinstance(size, int)
        return size

    def padded(self, which: str) -> int:
        """The elements of a head of `which`, rounded up to whole vectors."""
        return -(-self.head(which) // self.lanes) * self.lanes

    def each_item(self, items: Int, body: Callable[[Value], None]) -> None:
        """`body(number)` for each work item of this thread, and for those that it takes from others."""
        e = self.e

        def some(first: Value, end: Value) -> None:
            with e.each(first, end) as number:
                body(number)

        WorkStealing(e, shared_memory(e), e.integer(items), e.i64(1)).each(some)

    def each_head(self, batch: Int, heads: Int, body: Callable[[Value, Value], None]) -> None:
        """`body(batch, head)` for each head of this thread, and for those that it takes from others."""
        self.each_item(batch * heads, lambda number: body(*divided(self.e, number, self.e.integer(heads))))

    def mask_of(self, info: TensorInfo, batch: Value, head: Value) -> Value:
        """The address of the mask of a head's queries."""
        place = (x if n != 1 else self.e.i64(0) for x, n in zip((batch, head), info.shape, strict=False))
        return place_of(self.e, self.e.env["mask"], info, *place)


def operands_of(a: AttentionProblem) -> list[str]:
    return ["q", "k", "v", *(["mask"] if a.mask else []), "out", "lse"]


def divided(e: VectorEmitter, x: Value, by: Value) -> tuple[Value, Value]:
    """Quotient and remainder of what is not negative."""
    return e.index.binary("arith.divui", x, by), e.index.binary("arith.remui", x, by)
