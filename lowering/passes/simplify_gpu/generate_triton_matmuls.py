"""generate-triton-matmuls: matmuls on a GPU become kernels, where what fusion then saves is worth it."""

from collections.abc import Callable, Sequence
from dataclasses import field
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Unary
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.matmul.persistent import ALIGNMENT, COLUMNS, ROWS
from mlirc.lowering.kernel.typical_sizes import static
from mlirc.lowering.module.target_attribute import target_of
from mlirc.lowering.passes.fuse.generate_matmuls import make_matmul_kernel
from mlirc.lowering.passes.lower.split_unaligned import classes, is_by_rows
from mlirc.lowering.passes.simplify_gpu.pad_matmuls import is_returned
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import NOT_TEXT
from mlirc.lowering.target import Target

# The cost model: times on an H200, in microseconds.
# A library matmul takes OPERATIONS a microsecond, and SHORT_K / K of its time more (measured at K from 768 to 5632).
OPERATIONS, SHORT_K = 790e6, 160
# A generated one: each tile of 128 x 256 that a multiprocessor computes, and each step along K of it.
TILE, STEP = 2.0, 0.0107
# The same for tiles of 128 x 128 whose epilogues overlap with multiplications (gpu/matmul/overlapped_epilogue.py).
OVERLAPPED_TILE, OVERLAPPED_STEP = 1.45, 0.0053
UNALIGNED_TILE = 0.6  # more for a tile whose rows are not aligned to 16 bytes
BYTES = 4.3e6  # that a kernel reads and writes in a microsecond
LAUNCH, EDGES = 2.5, 6  # split-unaligned: each of its matmuls beyond its work; the columns at the edges
ACTIVATION = 0.4e-6  # an element's activation, in an epilogue that nothing overlaps with

Chooser = Callable[[Sequence[Any], bool], bool]
"""Called with the matmul and the ops of its would-be epilogue, in order, and with the cost model's answer. Returns whether the
matmul becomes a kernel."""


@dataclass(frozen=True)
class GenerateTritonMatmuls:
    """Make a large matmul of half types a kernel, which fusion then gives its epilogue (persistent.py).

    before:  %0 = "mlirc.addmm"(%b, %x, %w)                      after:  %0 = "mlircx.kernel"(%b, %x, %w) ({
             %1 = "mlirc.gelu"(%0)                                           reduce(mul(read %x, read %w)) + read %b })
                                                                         %1 = "mlirc.gelu"(%0)
    ACTIVATION  the only reader is an activation, and its traffic costs more time than the generated matmul loses to the library
    UNALIGNED   the graph returns it, its rows begin anywhere, and it has a bias: the library would need a padded copy; or it
                has few rows: split-unaligned would read the weight once for each class of them
    FASTER      the library is faster, by the cost model in this file (measured on an H200); on other GPUs its matmul stays
    chooser   decides in place of the cost model, except for UNALIGNED: it measures (codegen/tuning/matmul_tuning.py)
    always    every matmul that the rules allow becomes a kernel
    """

    name = "generate-triton-matmuls"
    takes = "graph"
    always: bool = False
    chooser: Chooser | None = field(default=None, metadata=NOT_TEXT)

    def run(self, function: Any, ledger: Ledger) -> None:
        target = target_of(function)
        matmuls = ("mlirc.matmul", "mlirc.addmm")  # found first: replacing one erases what follows it
        for op in [op for op in function.regions[0].blocks[0].operations if op.operation.name in matmuls]:
            if not is_large(op, target):
                continue
            programs = target.gpu(info_of(op.results[0]).device).multiprocessors
            *bias, x, w = op.operands
            unaligned = is_by_rows(info_of(x), info_of(w), info_of(op.results[0])) and is_returned(op.results[0])
            activated = is_activated(op.results[0])
            if not activated and not unaligned:
                continue
            if activated or bias:
                numbers = nanoseconds(op, activated, programs)
                taken = is_worth(numbers)
            else:
                numbers = nanoseconds_of_classes(op, programs)
                taken = self.always or is_worth(numbers)
            if activated:
                taken = self.takes_over(op, last_reader(op.results[0])[1], taken)
            taken = taken and ledger.allows(self.name, op)
            rule = "FASTER" if not taken else "ACTIVATION" if activated else "UNALIGNED"
            ledger.record(self.name, "generate", op.operation.name, rule, taken, op, **numbers)
            if taken:
                make_matmul_kernel(op)

    def takes_over(self, matmul: Any, last: Any, modelled: bool) -> bool:
        """Whether the matmul becomes a kernel, with an epilogue that ends in `last`."""
        return self.always or (modelled if self.chooser is None else self.chooser(between(matmul, last), modelled))


def between(first: Any, last: Any) -> list[Any]:
    """The ops that depend on `first`, and it, up to `last`, in order."""
    found, made = [first], set(first.results)
    block = list(first.operation.block.operations)
    places = {op.operation: k for k, op in enumerate(block)}
    for op in block[places[first.operation] + 1 : places[last.operation] + 1]:
        if not made.isdisjoint(op.operands):
            found.append(op)
            made |= set(op.results)
    return found


def is_large(op: Any, target: Target) -> bool:
    """Whether it is a matmul on a Hopper GPU, of half types and known sizes, of a tile at least for each multiprocessor."""
    infos = [info_of(v) for v in (*op.operands, op.results[0])]
    out = infos[-1]
    if (
        out.rank != 2
        or not out.device.startswith("cuda")
        or not all(isinstance(n, int) for i in infos for n in i.shape)
    ):
        return False
    gpu = target.gpu(out.device)
    if any(i.dtype not in (torch.float16, torch.bfloat16) for i in infos) or not gpu.is_hopper:
        return False
    rows, columns = static(out.shape)
    step = 16 // out.dtype.itemsize
    aligned = all(1 in i.stride and all(s == 1 or s % step == 0 for s in i.stride) for i in infos[-3:-1])
    return aligned and -(-rows // ROWS) * -(-columns // COLUMNS) >= gpu.multiprocessors


def last_reader(x: ir.Value) -> tuple[ir.Value, Any | None]:
    """(value, op): the only op that reads `x`, or a view of all of `x`, and the value that it reads; (x, None) where several ops do."""
    readers = [use.owner for use in x.uses]
    if len(readers) != 1:
        return x, None
    reader = readers[0]
    if reader.operation.name == "mlirc.view" and info_of(reader.results[0]).numel == info_of(x).numel:
        return last_reader(reader.results[0])
    return x, reader


def is_activation(op: Any) -> bool:
    """Whether the op is an elementwise function of one operand, of the same dtype, that is not cheap."""
    cls = OPS.get(op.operation.name.removeprefix("mlirc."), object)
    return issubclass(cls, Unary) and not cls.cheap and info_of(op.results[0]).dtype == info_of(op.operands[0]).dtype


def is_activated(x: ir.Value) -> bool:
    """Whether one activation alone reads the value, or a view of all of it."""
    _, reader = last_reader(x)
    return reader is not None and is_activation(reader)


def is_worth(numbers: dict[str, int]) -> bool:
    """Whether ours takes less time, by what the next two functions say."""
    return numbers["ours"] < numbers["library"]


def nanoseconds(op: Any, activated: bool, programs: int) -> dict[str, int]:
    """How long ours takes, and the library's matmul and the kernel after it, which reads and writes the result."""
    x, out = info_of(op.operands[len(op.operands) - 2]), info_of(op.results[0])
    (rows, columns), inner = static(out.shape), static(x.shape)[1]
    tiles = -(-rows // ROWS) * -(-columns // COLUMNS)
    if activated and columns * out.dtype.itemsize % ALIGNMENT == 0:
        ours = -(-2 * tiles // programs) * (OVERLAPPED_TILE + OVERLAPPED_STEP * inner)
    else:
        more = ACTIVATION * rows * columns * activated
        ours = -(-tiles // programs) * (TILE + STEP * inner) + more
    library = 2 * rows * columns * inner / OPERATIONS * (1 + SHORT_K / inner)
    library += 2 * rows * columns * out.dtype.itemsize / BYTES
    return {"ours": round(ours), "library": round(library)}


def nanoseconds_of_classes(op: Any, programs: int) -> dict[str, int]:
    """How long ours takes, and split-unaligned's matmuls, one for each class of rows, which read all of the weight."""
    (rows, columns), inner = static(info_of(op.results[0]).shape), static(info_of(op.operands[0]).shape)[1]
    size = info_of(op.results[0]).dtype.itemsize
    parts = classes(columns, size)
    tiles = -(-rows // ROWS) * -(-columns // COLUMNS)
    ours = -(-tiles // programs) * (TILE + UNALIGNED_TILE + STEP * inner)
    work = 2 * (rows // parts) * columns * inner / OPERATIONS * (1 + SHORT_K / inner)
    memory = columns * (inner + rows // parts) * size / BYTES
    return {"ours": round(ours), "library": round(parts * (max(work, memory) + LAUNCH) + EDGES)}
