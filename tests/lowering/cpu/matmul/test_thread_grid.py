"""Threads share rows and panels of a gemm: every tile is computed once, with the same bits for any number of threads."""

import ctypes
from collections import Counter

import pytest
import torch

from mlirc.codegen.llvm.machine_code import compile_ir, mlir_to_llvm
from mlirc.dialects.core.context import context
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops.entry import FRAME_SLOTS, NEXT
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.thread_grid import MANY_THREADS, Costs, ThreadGrid
from mlirc.lowering.host import host_cpu
from mlirc.lowering.kernel.axes import Vector

PACKS, READS = Costs(24, 36, 64), Costs(24, 12, 32)


def product(a, b):
    return torch.relu(a @ b)


def linear(a, w):
    return torch.nn.functional.linear(a, w.t().contiguous()).sigmoid()


def gradient(a, b):
    return a.t().contiguous().t() @ b + 1


@pytest.mark.thinned(2)
@pytest.mark.parametrize("build", [product, linear, gradient])
@pytest.mark.parametrize(("rows", "k", "columns"), [(256, 300, 768), (70, 1500, 200), (333, 64, 40)])
def test_same_bits(build, rows, k, columns):
    a, b = torch.randn(rows, k), torch.randn(k, columns)
    call, before = torch.compile(build, backend="mlirc"), torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        alone = call(a, b)
        torch.testing.assert_close(alone, build(a.double(), b.double()).float(), rtol=1e-4, atol=1e-4)
        for threads in (2, 4, 7):
            torch.set_num_threads(threads)
            assert torch.equal(call(a, b), alone)
    finally:
        torch.set_num_threads(before)


def tickets(panels: int, blocks: int, threads: int, costs: Costs, **choice) -> list[tuple[int, int]]:
    """Panels and blocks of rows of each ticket. The code that is written says which tiles it gives to whom.

    A thread at work on the last ticket has taken no other: with few tickets, another thread would have nothing to do.
    """
    e = VectorEmitter(Vector(None, 1), host_cpu())
    e.env["threads"] = Value("%threads", torch.int64)
    with context():

        def take(within: tuple[Value, Value], rows: tuple[Value, Value], then: Value) -> None:
            b = e.index
            number = b.add(b.add(b.mul(within[0], e.i64(1000)), rows[0]), e.i64(1))
            counter = b.emit(f"llvm.getelementptr %frame[{NEXT}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
            taken = b.emit(f"llvm.load {counter} : !llvm.ptr -> i64", torch.int64)
            end = b.emit(f"llvm.getelementptr %out[{panels * blocks}] : (!llvm.ptr) -> !llvm.ptr, i64", torch.int64)
            e.lines.append(f"llvm.store {taken}, {end} : i64, !llvm.ptr")
            with e.each(*within) as panel, e.each(*rows) as block:
                b = e.index
                at = b.add(b.mul(panel, e.i64(blocks)), block)
                place = b.emit(f"llvm.getelementptr %out[{at}] : (!llvm.ptr, i64) -> !llvm.ptr, i64", torch.int64)
                was = b.emit(f"llvm.load {place} : !llvm.ptr -> i64", torch.int64)
                e.lines.append(f"llvm.store {b.add(was, number)}, {place} : i64, !llvm.ptr")

        ThreadGrid(e, panels, e.i64(blocks), costs, **choice).each(take)
        head = "llvm.func @body(%frame: !llvm.ptr, %out: !llvm.ptr, %threads: i64) {"
        code = compile_ir(
            mlir_to_llvm("\n".join(["module {", head, *e.text.preamble, *e.lines, "llvm.return", "}", "}"]))
        )
    frame, out = (ctypes.c_int64 * FRAME_SLOTS)(), (ctypes.c_int64 * (panels * blocks + 1))()
    ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64)(code.address("body"))(frame, out, threads)
    *out, taken = out
    assert all(out)
    assert taken <= max(len(set(out)), threads) or ("group" in choice and threads < MANY_THREADS)
    sizes = []
    for number, count in Counter(out).items():
        panel, block = divmod(number - 1, 1000)
        assert panel < panels and block < blocks and out[panel * blocks + block] == number  # nobody else added to it
        wide = len({at // blocks for at, x in enumerate(out) if x == number})
        sizes.append((wide, count // wide))
    return sizes


def longest(sizes: list[tuple[int, int]], threads: int) -> int:
    """Tiles of the thread that has the most, where each takes the next ticket as soon as it is free."""
    busy = [0] * threads
    for wide, high in sizes:
        busy[busy.index(min(busy))] += wide * high
    return max(busy)


@pytest.mark.parametrize("costs", [PACKS, READS])
@pytest.mark.parametrize("threads", [4, 6, 16, 32, 64])
@pytest.mark.parametrize(("panels", "blocks"), [(24, 22), (96, 22), (24, 132), (16, 64), (3, 200), (100, 3)])
@pytest.mark.thinned
def test_many_threads_have_equal_parts(panels, blocks, threads, costs):
    sizes = tickets(panels, blocks, threads, costs)
    assert sum(wide * high for wide, high in sizes) == panels * blocks
    assert longest(sizes, threads) <= 1.5 * -(-panels * blocks // threads)


@pytest.mark.parametrize("choice", [{}, {"by_rows": True}, {"group": 4}])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_few_threads_have_all_tiles(threads, choice):
    for panels, blocks in ((1, 1), (7, 5), (24, 22)):
        sizes = tickets(panels, blocks, threads, PACKS, **choice)
        assert sum(wide * high for wide, high in sizes) == panels * blocks
        assert {high for _, high in sizes} == {blocks} or "by_rows" in choice
