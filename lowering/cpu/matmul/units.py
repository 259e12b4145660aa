"""The common part of gemms with a weight [N, K] (columns along k): blocks of columns that threads share, and the epilogue on their
tiles.

TransposedWriter (transposed.py) and DotWriter (dot_product.py) go over units of columns, which threads share, and do the scalar
work on a unit's tiles row by row, with columns along the lanes.
"""

from collections.abc import Iterator

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import store
from mlirc.lowering.cpu.emitter.scratch import DECLARATION, opening, take, takes
from mlirc.lowering.cpu.loops.entry import LIBGOMP, PART_FUNCTION, decode_indices, entry_text, load_words, thread_part
from mlirc.lowering.cpu.loops.function import KernelText
from mlirc.lowering.cpu.loops.threads import ThreadSplit
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.cpu.matmul.vectors import BF16, F32, Vectors
from mlirc.lowering.kernel.axes import Vector
from mlirc.lowering.target import CpuTarget

FEW_UNITS = 8  # of columns: below it threads share the rows

Range = tuple[Value, Value]


class UnitsWriter(Vectors):
    """Writes the functions of a product of float32, or of bfloat16: in pairs along k, or widened.

    unit            columns that are finished together, at most a vector of them
    panel           rows that threads share as one, where columns are few
    steps_in_all    along k, pairs or single ones; `step` is the bytes of one in memory
    alike           multiplications that take as long as one of the operations that threads are counted by
    chunk           so many units are taken at a time; 0: equal parts
    columns_apart   elements from column to column
    """

    unit: int
    panel: int
    chunk = 0
    alike = 4

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        assert gemm.plain is not None and gemm.plain[1] == 1 and len(gemm.totals) == 1
        super().__init__(VectorEmitter(Vector(gemm.n, target.vector_bytes // 4), target), name)
        self.p, self.target = gemm, target
        self.columns_apart = gemm.plain[0]
        self.pairs = may_pair(gemm, target)
        self.widens = gemm.dtype == BF16 and not self.pairs
        self.step = gemm.dtype.itemsize * (1 + self.pairs)
        self.steps_in_all = symbols.floordiv(gemm.k.size, 1 + self.pairs)

    @property
    def units(self) -> int:
        return -(-self.p.n_size // self.unit)

    def make_room(self) -> None:
        """Takes scratch memory."""
        raise NotImplementedError

    def multiply(self, units: Range, panels: Range) -> None:
        """Writes the loops over these units and panels of rows, epilogue and all."""
        raise NotImplementedError

    def share_units(self, panels: Range) -> None:
        """This thread's part of the units, with these panels of rows."""
        self.multiply(thread_part(self.e, self.e.i64(self.units)), panels)

    def functions(self) -> list[str]:
        """What the body calls."""
        return list(self.e.text.functions.values())

    def write(self) -> KernelText:
        p, e, kernel = self.p, self.e, self.p.kernel
        names = kernel.symbols
        e.env["thread"], e.env["threads"] = Value("%thread", torch.int64), Value("%threads", torch.int64)
        load_words(e, kernel, names, "%args")
        e.nodes = [n for n in p.epilogue if not n.dims and n.depth == 0]
        e.enter()
        e.nodes = ()
        panels = self.panels()
        self.m, self.k = e.integer(p.m_size), e.integer(self.steps_in_all)
        self.make_room()
        by_columns = self.units >= FEW_UNITS
        if by_columns:
            self.share_units((e.i64(0), e.integer(panels)))
        else:
            self.multiply((e.i64(0), e.i64(self.units)), thread_part(e, e.integer(panels)))
        work = symbols.floordiv(symbols.product([p.m_size, p.n_size, p.k.size]), self.alike)
        units = self.units if by_columns else panels
        split = ThreadSplit(Vector(None, 1), chunk=self.chunk * by_columns, units=units, work=work)
        head = f"llvm.func internal @{self.name}_body(%frame: !llvm.ptr, %thread: i64, %threads: i64) {{"
        parts = [
            *self.functions(),
            "\n".join([head, *opening(e), *e.text.preamble, *e.lines, "llvm.return", "}"]),
            entry_text(kernel, split, names, self.name, self.target, e.scratch_bytes),
            PART_FUNCTION.replace("KERNEL", self.name),
        ]
        return KernelText("\n".join(parts), e.text.declarations + LIBGOMP + [DECLARATION] * takes(e), names)

    def panels(self) -> Int:
        return symbols.floordiv(self.p.m_size + self.panel - 1, self.panel)

    # ---- loops

    def whole_or_rest(self, unit: Value) -> Iterator[int]:
        """How many columns a unit has, the last maybe fewer: code for each."""
        rest = self.p.n_size % self.unit
        if not rest or self.units == 1:
            yield rest or self.unit
        else:
            yield from self.e.either(self.e.index.ne(unit, self.e.i64(self.units - 1)), self.unit, rest)

    # ---- a unit

    def size_of(self, unit: Value) -> Value:
        """Columns of a unit: the last may have fewer."""
        e, b = self.e, self.e.index
        if self.p.n_size % self.unit == 0:
            return e.i64(self.unit)
        return b.minimum(e.i64(self.unit), b.sub(e.i64(self.p.n_size), b.mul(unit, e.i64(self.unit))))

    def columns_at(self, unit: Value, k: Value) -> tuple[Value, Value]:
        """Where a unit's columns are in memory, from `k` on, and how many bytes apart."""
        e, b = self.e, self.e.index
        ((_, access),) = self.p.totals
        size = self.p.dtype.itemsize
        apart = b.mul(e.integer(self.columns_apart), e.i64(size))
        a = self.at(e.env["base", access.operand], b.mul(e.integer(access.address.rest), e.i64(size)))
        return self.at(a, b.add(b.mul(b.mul(unit, e.i64(self.unit)), apart), b.mul(k, e.i64(self.step)))), apart

    def rows_from(self) -> tuple[Value, Value]:
        """Where the rows are in memory, and how many bytes apart."""
        e, b, p = self.e, self.e.index, self.p
        size = e.i64(p.dtype.itemsize)
        return self.at(e.env["base", p.rows.operand], b.mul(e.integer(p.rows.address.rest), size)), b.mul(
            e.integer(p.lda), size
        )

    def bind_row(self, row: Value) -> None:
        e, p = self.e, self.p
        if p.m:
            decode_indices(e, p.m, row)
        e.nodes = [n for n in p.epilogue if n.depth == 0]
        e.enter(*(axis.name for axis in p.m))
        e.nodes = ()

    def epilogue(self, column: Value, size: Value, line: Value) -> None:
        e, p = self.e, self.p
        wide = e.builder(F32, True)
        ((total, _),) = p.totals
        text = f"llvm.load {line} {{alignment = 4 : i64}} : !llvm.ptr -> {wide.type_text(F32)}"
        e.env[total] = wide.emit(text, F32)
        e.env[p.n.name] = column
        e.bound.add(p.n.name)
        if self.unit < self.lanes or p.n_size % self.unit:
            e.mask = self.below(size)
        for output in p.kernel.outputs:
            e.value(output.node)
        for output in p.kernel.outputs:
            store(e, output.access, output.node)

    # ---- memory

    def take(self, name: str, floats: Int) -> None:
        self.e.env[name] = take(self.e, floats, "f32", 4)

    @property
    def factor(self) -> torch.dtype:
        """What a step is loaded as: pairs move as if they were float32."""
        return BF16 if self.widens else F32

    def load_scalar(self, address: Value) -> Value:
        """One factor, in float32."""
        memory = torch.int16 if self.widens else F32
        b = self.e.builder(memory)
        text = f"llvm.load {address} {{alignment = {memory.itemsize} : i64}} : !llvm.ptr -> {b.type_text(memory)}"
        x = b.emit(text, memory)
        return b.cast(b.bitcast(x, BF16), F32) if self.widens else x


def may_pair(gemm: Gemm, target: CpuTarget) -> bool:
    """Whether steps along k can be pairs: neither matrix has half a one at its end."""
    k = gemm.k.size
    in_pairs = gemm.dtype == BF16 and target.bf16_pairs
    return in_pairs and isinstance(k, int) and k % 2 == 0 and gemm.ka == 1
