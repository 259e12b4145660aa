"""Units that threads take chunk by chunk: each is done once, and by others where their owner is late."""

import ctypes
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from mlirc.codegen.llvm.machine_code import compile_ir, mlir_to_llvm
from mlirc.dialects.core.context import context
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.loops import threads as kernel_threads
from mlirc.lowering.cpu.loops.work_stealing import COUNTER_BYTES, MOST_OWNERS, WorkStealing
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.host import host_cpu
from mlirc.lowering.kernel.axes import Vector
from tests.kernel_runner import NativeKernel, info

CHUNK = 3


class Done:
    """Calls body(counters, done, thread, threads, units), which adds one to done[unit] for each unit that it gets."""

    def __init__(self):
        with context():
            self.code = compile_ir(mlir_to_llvm(self.text()))
        types = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 3
        self.function = ctypes.CFUNCTYPE(None, *types)(self.code.address("body"))

    def text(self) -> str:
        e = VectorEmitter(Vector(None, 1), host_cpu())
        for name in ("thread", "threads", "units"):
            e.env[name] = Value(f"%{name}", torch.int64)

        def unit(number: Value, state: list[Value]) -> list[Value]:
            b = e.index
            place = b.emit(f"llvm.getelementptr %done[{number}] : (!llvm.ptr, i64) -> !llvm.ptr, i64", torch.int64)
            before = b.emit(f"llvm.load {place} : !llvm.ptr -> i64", torch.int64)
            e.lines.append(f"llvm.store {b.add(before, e.i64(1))}, {place} : i64, !llvm.ptr")
            return state

        shares = WorkStealing(e, Value("%counters", torch.int64), e.env["units"], e.i64(CHUNK))

        def units(first: Value, end: Value) -> None:
            e.loop(first, end, e.i64(1), [], [], unit)

        shares.each(units)
        head = "llvm.func @body(%counters: !llvm.ptr, %done: !llvm.ptr, %thread: i64, %threads: i64, %units: i64) {"
        lines = [head, *e.text.preamble, *e.lines, "llvm.return", "}"]
        return "\n".join(["module {", *lines, "}"])

    def run(self, order: list[list[int]], threads: int, units: int) -> list[list[int]]:
        """How often each unit was done after each of the steps, whose threads run at once."""
        counters, done = (ctypes.c_int64 * (threads * COUNTER_BYTES // 8))(), (ctypes.c_int64 * (units + 1))()
        found = []
        with ThreadPoolExecutor(threads) as pool:
            for step in order:
                list(pool.map(lambda thread: self.function(counters, done, thread, threads, units), step))
                found.append(list(done[:units]))
        return found


@pytest.fixture(scope="module")
def done() -> Done:
    return Done()


@pytest.mark.thinned(10)
@pytest.mark.parametrize("units", [1, 2, 3, 29, 20_000])
@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_each_unit_is_done_once(done, threads, units):
    for _ in range(20):
        (found,) = done.run([list(range(threads))], threads, units)
        assert found == [1] * units


def test_who_is_done_does_the_work_of_those_that_are_late(done):
    first, both = done.run([[0], [1]], threads=2, units=31)
    assert first == both == [1] * 31


def test_a_thread_helps_the_next_few(done):
    threads, units = MOST_OWNERS + 3, 700
    first, second, _ = done.run([[2], [threads - 1], [0]], threads, units)
    bounds = [units * k // threads for k in range(threads + 1)]
    owners = [next(k for k in range(threads) if unit < bounds[k + 1]) for unit in range(units)]
    assert first == [int(owner in range(2, 2 + MOST_OWNERS)) for owner in owners]
    helped = {(threads - 1 + k) % threads for k in range(MOST_OWNERS)} | set(range(2, 2 + MOST_OWNERS))
    assert second == [int(owner in helped) for owner in owners]


def kernels(dtype: torch.dtype):
    """Rows that are shared, whose last pass waits for the next row's, or that go in pairs; a long axis that is cut."""

    def softmax(k, x):
        row, column = k.dims
        top = k.reduce("max", k.read(x, (row, column)))
        power = k.exp(k.sub(k.read(x, (row, column)), top))
        return [(k.div(power, k.reduce("sum", power)), (row, column), info(dtype, "700, 130"))]

    def sums(k, x):
        return [(k.reduce("sum", k.read(x, k.dims)), k.dims[:1], info(dtype, "700"))]

    def squares(k, x):
        value = k.read(x, k.dims)
        return [(k.mul(value, value), k.dims, info(dtype, "91000"))]

    yield NativeKernel([info(dtype, "700, 130")], "700", "130", softmax), torch.randn(700, 130)
    yield NativeKernel([info(dtype, "700, 130")], "700", "130", sums), torch.randn(700, 130)
    yield NativeKernel([info(dtype, "91000")], "91000", "", squares), torch.randn(91000)


def test_kernels_by_pieces(monkeypatch):
    monkeypatch.setattr(kernel_threads, "CHUNK_POINTS", 512)
    for kernel, x in kernels(torch.float32):
        assert "atomicrmw" in kernel.mlir
        kernel.check(x, threads=(1, 2, 3, 5))
