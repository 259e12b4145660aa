"""What every gemm has around its tiles: what threads share, and the scalar work on the sums, row by row, with columns along the lanes."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.addresses import F32, load_floats
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.scratch import take_floats
from mlirc.lowering.cpu.loops.entry import decode_indices
from mlirc.lowering.cpu.loops.epilogue import enter_call, enter_row, finish_vector
from mlirc.lowering.cpu.loops.frame import KernelText, begin, framed
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.target import CpuTarget


class MatmulWriter(ABC):
    """Writes the functions of a gemm.

    block_columns   columns of a column block, which are finished together; the last block may have fewer
    """

    block_columns: int

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        self.p, self.name, self.target = gemm, name, target
        self.e = VectorEmitter(Vector(gemm.n, target.vector_bytes // 4), target)
        self.lanes = self.e.lanes

    @property
    def column_blocks(self) -> int:
        return -(-self.p.n_size // self.block_columns)

    @abstractmethod
    def make_room(self) -> None:
        """Takes scratch memory."""

    @abstractmethod
    def loops(self) -> tuple[Int, Int, int]:
        """Writes the loops over a thread's part. Gives the work, the number of items that threads share, and how many of them
        they take at a time; 0: equal parts."""

    def write(self) -> KernelText:
        p, e, names = self.p, self.e, self.p.kernel.symbols
        begin(e, p.kernel, names)
        enter_call(e, p.epilogue)
        self.make_room()
        return framed(e, self.name, self.target, p.kernel, names, *self.loops())

    def take(self, name: str, floats: Int) -> None:
        self.e.env[name] = take_floats(self.e, floats)

    # ---- the scalar work

    def whole_or_rest(self, column_block: Value) -> Iterator[int]:
        """The number of columns of a column block, of which the last may have fewer: code for each."""
        rest = self.p.n_size % self.block_columns
        if not rest or self.column_blocks == 1:
            yield rest or self.block_columns
        else:
            yield from self.e.either(
                self.e.index.ne(column_block, self.e.i64(self.column_blocks - 1)), self.block_columns, rest
            )

    def bind_row(self, row: Value) -> None:
        if self.p.m:
            decode_indices(self.e, self.p.m, row)
        enter_row(self.e, self.p.epilogue, self.p.m)

    def finish_vector(self, column: Value, sums: Sequence[Value], mask: Value | None) -> None:
        """The scalar work on the columns from `column` on, whose sums are at these addresses."""
        loaded = [load_floats(self.e, address, F32) for address in sums]
        totals = [total for total, _ in self.p.totals]
        finish_vector(self.e, self.p.kernel, self.p.n, column, dict(zip(totals, loaded, strict=True)), mask)
