"""Writes a launch as a Triton kernel: the text of one `@triton.jit` function, and what compiling and launching it needs.

A program goes over its tile in passes, as a CPU's kernel does (loops/schedule.py): pass k computes the reductions that depend on k others. A
row that fits stays in registers, and there is one pass.
"""

from collections.abc import Callable, Iterable
from dataclasses import field, replace

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.matmul.function import (
    STEPS,
    Tiling,
    TritonMatmul,
    choose_tiling,
    match_matmul,
    schedule_of,
    write_matmul,
)
from mlirc.lowering.gpu.matmul.overlapped_epilogue import DESCRIPTORS, TILING, fits_ping_pong, write_ping_pong
from mlirc.lowering.gpu.matmul.overlapped_epilogue import IMPORTS as GLUON
from mlirc.lowering.gpu.matmul.persistent import persistent, write_persistent
from mlirc.lowering.gpu.triton import means
from mlirc.lowering.gpu.triton.builder import TL_DTYPE, TRITON_DTYPE, TritonValue, literal
from mlirc.lowering.gpu.triton.emitter import FAILURE, TRAP, TritonEmitter
from mlirc.lowering.gpu.triton.folds import TritonFold
from mlirc.lowering.gpu.triton.indices import LARGEST
from mlirc.lowering.gpu.triton.moments import means_of_variances
from mlirc.lowering.gpu.triton.online_softmax import find_pairs
from mlirc.lowering.gpu.triton.programs import bind_programs, counts_of
from mlirc.lowering.gpu.triton.rounded import PTX
from mlirc.lowering.gpu.triton.schedule import TritonSchedule, TritonTile, make_schedule
from mlirc.lowering.kernel.axes import make_axes
from mlirc.lowering.kernel.division import divide_axes
from mlirc.lowering.kernel.nodes import Kernel, Node, Output
from mlirc.lowering.target import GpuTarget

IMPORTS = "import triton\nimport triton.language as tl\n"
UNROLLED = 4  # rows of a program that are unrolled: Triton moves no load above a store that may alias it
LIBDEVICE = "from triton.language.extra import libdevice\n"


@dataclass(frozen=True)
class TritonKernel:
    """The attributes of a memory_ops.Triton op. scratch: bytes of memory that each program needs."""

    source: str
    signature: list[str]
    constants: dict[str, int]
    grid: list[Int]
    num_warps: int
    divisible: list[int] = field(default_factory=list)
    symbols: list[str] = field(default_factory=list)
    num_stages: int = 1
    scratch: int = 0


def triton_kernel(
    kernel: Kernel,
    name: str,
    infos: list[TensorInfo],
    gpu: GpuTarget,
    aligned: Iterable[int] = (),
    change: Callable[[TritonSchedule], TritonSchedule] | None = None,
    tiling: Tiling | None = None,
) -> TritonKernel:
    """The Triton kernel of a launch. `infos` are its operands; `aligned` are those whose addresses are multiples of 16 bytes.

    `change` maps the cost model's schedule to another one. Writing changes `kernel`, so it must be read anew for another kernel.
    `tiling`: tiles for a matmul that is read by pointers; else as many programs as multiprocessors go through its tiles.
    """
    names = kernel.symbols
    matmul = match_matmul(kernel)
    if matmul is not None:
        return matmul_kernel(matmul, name, infos, gpu, tuple(aligned), tiling)
    divide_axes(kernel, "gpu")
    schedule = make_schedule(kernel, make_axes(kernel))
    schedule = change(schedule) if change else schedule
    e = TritonEmitter(kernel, schedule, index_dtype(schedule, infos))
    _body(e)
    return finished(e, name, infos, aligned, names, symbols.product(counts_of(schedule)))


def matmul_kernel(
    matmul: TritonMatmul,
    name: str,
    infos: list[TensorInfo],
    gpu: GpuTarget,
    aligned: tuple[int, ...],
    tiling: Tiling | None = None,
) -> TritonKernel:
    """A matmul with its epilogue."""
    programs = gpu.multiprocessors
    strategy = persistent(matmul, aligned, programs) if tiling is None else None
    if strategy and gpu.is_hopper and fits_ping_pong(matmul, strategy):
        e = matmul_emitter(matmul, TILING, infos)
        write_ping_pong(e, matmul, strategy)
        made = finished(e, name, infos, aligned, matmul.kernel.symbols, programs, {STEPS: TILING.steps}, gluon=True)
        return replace(made, scratch=DESCRIPTORS)
    tiling = tiling or (strategy.tiling if strategy else choose_tiling(matmul))
    e = matmul_emitter(matmul, tiling, infos)
    if strategy:
        write_persistent(e, matmul, strategy)
    else:
        write_matmul(e, matmul, tiling)
        _store(e, matmul.kernel.outputs)
    grid = programs if strategy else symbols.product(counts_of(e.schedule))
    made = finished(e, name, infos, aligned, matmul.kernel.symbols, grid, {STEPS: tiling.steps})
    return replace(made, num_stages=tiling.num_stages, scratch=strategy.scratch if strategy else 0)


def matmul_emitter(matmul: TritonMatmul, tiling: Tiling, infos: list[TensorInfo]) -> TritonEmitter:
    schedule = schedule_of(matmul, tiling)
    return TritonEmitter(matmul.kernel, schedule, index_dtype(schedule, infos))


def finished(
    e: TritonEmitter,
    name: str,
    infos: list[TensorInfo],
    aligned: Iterable[int],
    names: list[str],
    grid: Int,
    more: dict[str, int] | None = None,
    gluon: bool = False,
) -> TritonKernel:
    """The kernel of what an emitter has written. `names`: its symbols; `more`: constants besides block sizes; `gluon`: whether it is Gluon."""
    kernel = e.kernel
    checks = any(n.kind == "check_index" for n in kernel.nodes)
    signature = [f"*{TRITON_DTYPE[i.dtype]}" for i in infos] + ["i64"] * len(names) + ["*i64"] * checks
    constants = {e.block_name(tile): tile.block for tile in e.blocks}
    constants |= (more or {}) | ({TRAP: 1} if checks else {})
    constants |= {PTX: 1} if any(PTX in line for line in e.lines.text) else {}
    parameters = [f"p{k}" for k in range(len(infos))] + names + [FAILURE] * checks
    parameters += [f"{constant}: tl.constexpr" for constant in constants]
    head = f"@{'gluon' if gluon else 'triton'}.jit\ndef {name}({', '.join(parameters)}):"
    text = "\n".join([head, *e.lines.text]) + "\n"
    definitions = "\n\n".join([*e.functions.values(), text])
    imports = IMPORTS + (LIBDEVICE if "libdevice." in definitions else "") + (GLUON if gluon else "")
    source = "\n\n".join([imports, definitions])
    return TritonKernel(source, signature, constants, [grid, 1, 1], e.schedule.num_warps, sorted(aligned), names)


def index_dtype(schedule: TritonSchedule, infos: list[TensorInfo]) -> torch.dtype:
    """int32 where all offsets into tensors and all numbers of points fit it, else int64."""
    sizes = [i.extent for i in infos] + [symbols.product(t.size for t in schedule.tiles) + schedule.elements]
    sizes += [t.size + t.block for t in schedule.tiles]
    return torch.int32 if all(isinstance(n, int) and n <= LARGEST for n in sizes) else torch.int64


# ---- the body


def _body(e: TritonEmitter) -> None:
    bind_programs(e)
    row = next((tile for tile in e.schedule.tiles if tile.name == "r"), None)
    if e.schedule.rows > 1:
        _row_loop(e, e.schedule.tiles[0])
    elif row is None or not e.schedule.looped:
        if row is not None:
            e.bind(row, "0")
        _at_once(e)
    else:
        _in_passes(e, row)


def _at_once(e: TritonEmitter) -> None:
    """Writes one pass, in which each row is a block in registers."""
    _compute(e)
    _store(e, e.kernel.outputs)


def _compute(e: TritonEmitter) -> None:
    """Computes the outputs of rows that are blocks in registers."""
    pairs = {pair.first: pair for pair in means_of_variances(e.kernel)}
    for node in e.kernel.nodes:
        if node.kind == "reduce" and node not in e.env:
            fold, x = e.folded(node)
            parts = [x, e.place(x.tile)] if fold.positional else [x]
            total = e.reduced(fold, parts)
            if node in pairs:
                pairs[node].at_once(e, total)
                continue
            e.env[node] = e.result(fold, means.alone(e, node, total) if fold.is_mean else total)
        elif node.kind != "constant":
            e.value(node)


def _row_loop(e: TritonEmitter, rows: TritonTile) -> None:
    """Writes the loop over a program's rows, after the values that the rows share. All rows are within bounds."""
    down = {a.name for a in rows.axes}
    for node in e.kernel.nodes:
        if node.kind != "constant" and not node.dims & down:
            e.value(node)
    last = f"first + {e.schedule.rows}"
    e.lines.add(f"for {rows.name} in tl.range(first, {last}, loop_unroll_factor={UNROLLED}):")
    with e.scope():
        e.indices.known[rows.name,] = TritonValue(rows.name, e.indices.dtype)
        _compute(e)
        _store(e, e.kernel.outputs)


def _store(e: TritonEmitter, outputs: list[Output]) -> None:
    if any(_in_place(e, output) for output in outputs):
        e.lines.add("tl.debug_barrier()  # a warp may still have to read what another one writes")
    for output in outputs:
        e.store(output)


def _in_place(e: TritonEmitter, output: Output) -> bool:
    """Whether an output may share memory with an input that another warp still reads; False where all warps access memory in one order."""
    alike = len(e.blocks) == 1 and not e.inner and e.schedule.elements >= 32 * e.schedule.num_warps
    return e.schedule.num_warps > 1 and not alike and e.kernel.may_be_in_place(output)


def _in_passes(e: TritonEmitter, row: TritonTile) -> None:
    found = find_pairs(e.kernel)
    together = {n for p in found for n in (p.first, p.second)}
    passes = _plan(e)
    checks = [n for n in e.kernel.nodes if n.kind == "check_index"]
    for k, outputs in enumerate(passes):
        pairs = [p for p in found if p.first.depth == k + 1]
        reductions = [n for n in e.kernel.nodes if n.kind == "reduce" and n.depth == k + 1 and n not in together]
        roots = [n.operands[0] for n in reductions] + [p.value for p in pairs] + [o.node for o in outputs]
        roots += [n for n in checks if n.depth == k]
        wanted = _before(e, roots)
        for node in wanted:
            e.value(node)
        accumulators = {n: _start(e, n) for n in reductions}
        states = [p.start(e) for p in pairs]
        for node in _below(e, roots):
            if node.kind == "scan":
                _start_scan(e, node)
        reported = set(e.reported)
        for first, last, whole in _row_loops(e, row):
            e.reported = set(reported)
            bounds = e.indices.bounds(first, last, row.block, e.block_name(row))
            e.lines.add(f"for start in {_range(e, row, bounds)}:")
            with e.scope():
                e.bind(row, "start", whole)
                for root in roots:
                    e.value(root)
                for node, state in accumulators.items():
                    _step(e, node, state)
                for p, lanes in zip(pairs, states, strict=True):
                    p.step(e, lanes)
                _store(e, outputs)
        for node, state in accumulators.items():
            fold = TritonFold(node)
            total = e.reduced(fold, state[:1] if fold.is_mean else state)
            e.env[node] = e.result(fold, means.alone(e, node, total, state[1:]) if fold.is_mean else total)
        for p, lanes in zip(pairs, states, strict=True):
            p.finish(e, lanes)
    _store(e, [o for o in e.kernel.outputs if not _is_written_inside(e, o)])


def _row_loops(e: TritonEmitter, row: TritonTile) -> list[tuple[str, Int, bool]]:
    """(first, end, whole) of each loop over a row. A contiguous row is read without masks up to its last block, so that loads are as wide as its
    alignment allows."""
    if len(e.blocks) == 1 and isinstance(row.size, int) and row.size > row.block and not row.divides:
        last = row.size // row.block * row.block
        return [("0", last, True), (str(last), row.size, False)]
    return [("0", row.size, False)]


def _range(e: TritonEmitter, row: TritonTile, bounds: str) -> str:
    """What the loop over a row's blocks goes through: two at once where columns are reduced of little that is read, so that
    twice as much is on its way (on an H200 up to a tenth faster; four at once, or more that is read, gained nothing)."""
    reads = [n for n in e.kernel.nodes if n.kind == "read" and e.dims_of(n.dims) == {"x", "r"}]
    few = len(e.blocks) == 2 and len(reads) <= 2
    long = isinstance(row.size, int) and row.size >= 4 * row.block
    return f"tl.range({bounds}, loop_unroll_factor=2)" if few and long else f"range({bounds})"


def _plan(e: TritonEmitter) -> list[list[Output]]:
    """The outputs of each pass: each is written as early as it is known, unless a later pass reads memory that it may share."""
    inside = [o for o in e.kernel.outputs if _is_written_inside(e, o)]
    folds = max((n.depth for n in e.kernel.nodes if n.kind == "reduce"), default=0)
    count = max([folds, *(o.node.depth + 1 for o in inside)])
    passes: list[list[Output]] = [[] for _ in range(count)]
    for output in inside:
        passes[-1 if e.kernel.may_be_in_place(output) else output.node.depth].append(output)
    return passes


def _is_written_inside(e: TritonEmitter, output: Output) -> bool:
    return e.is_inner(output.node) or not e.inner.isdisjoint(output.access.address.dims)


def _below(e: TritonEmitter, roots: list[Node]) -> list[Node]:
    """The inner nodes that a pass computes for `roots`, and the outer nodes that these read."""
    seen: dict[Node, None] = {}
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in seen:
            continue
        seen[node] = None
        if e.is_inner(node):
            stack += node.operands
    return list(seen)


def _before(e: TritonEmitter, roots: list[Node]) -> list[Node]:
    """Computes the outer nodes among `roots`, before the loop."""
    return [n for n in _below(e, roots) if not e.is_inner(n) and n.kind != "constant"]


def _start(e: TritonEmitter, node: Node) -> list[TritonValue]:
    """The accumulators of a reduction."""
    fold = TritonFold(node)
    e.functions[fold.function] = fold.function_text
    dims = e.lanes_of(node.operands[0])
    state = [_filled(e, fold.identity, fold.dtype, dims)]
    if fold.positional:  # the index of the extreme: 0 where no element exceeds the identity
        state.append(_filled(e, 0, e.indices.dtype, dims))
    return state + means.start(e, node) if fold.is_mean else state


def _filled(e: TritonEmitter, value: float | int, dtype: torch.dtype, dims: frozenset[str]) -> TritonValue:
    return e.lines.name(f"tl.full({e.shape(dims)}, {literal(value)}, {TL_DTYPE[dtype]})", dtype, dims)


def _step(e: TritonEmitter, node: Node, state: list[TritonValue]) -> None:
    fold, x = e.folded(node)
    if not fold.positional:
        e.lines.add(f"{state[0]} = fold_{fold.function}({state[0]}, {x})")
        if fold.is_mean:
            means.step(e, node, state[1:])
        return
    e.lines.add(f"{state[0]}, {state[1]} = fold_{fold.function}({state[0]}, {state[1]}, {x}, {e.place(x.tile)})")


def _start_scan(e: TritonEmitter, node: Node) -> None:
    fold = TritonFold(node)
    dims = frozenset(tile.name for tile in e.blocks) if e.has_block else e.dims_of(node.operands[0].dims)
    dims -= {"r"}
    value = f"{literal(fold.identity)}, {TL_DTYPE[fold.dtype]}"
    shape = "[]" if len(e.blocks) == 1 else e.shape(dims)
    e.lines.add(f"{e.carry(node)} = tl.full({shape}, {value})")
