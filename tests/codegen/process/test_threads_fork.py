"""One program called from many threads at once, and in a forked child."""

import os
import signal
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from tests.memory_level import aten, build, call, equal, operators, slot

N = 64
T = f"tensor<{N}x{N}xf32>"
OPS = [
    slot("%0", T),
    call("matmul", "%x, %x, %0", f"{T}, {T}, {T}"),
    slot("%1", T, str(4 * N * N)),
    call("matmul", "%0, %x, %1", f"{T}, {T}, {T}"),
    aten("%2", "aten.relu.default", '[{"$": %1}]', f"({T}) -> {T}"),
    f"return %2 : {T}",
]
SIGNATURE = f'(%x: {T}) -> {T} attributes {{mlirc.arena = "{8 * N * N}"}}'


def test_threads_never_share_an_arena():
    program = build(SIGNATURE, OPS)
    inputs = [torch.randn(N, N) for _ in range(4)]
    with torch.no_grad():
        want = [program([x])[0] for x in inputs]

    def run(k: int) -> None:
        with torch.no_grad():
            for _ in range(200):
                equal(program([inputs[k]])[0], want[k])

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(run, range(4)))


def test_a_call_does_not_hold_the_gil_while_it_waits():
    """Two calls meet at a barrier inside an ATen call: each is in its own arena then."""
    barrier = threading.Barrier(2, timeout=30)

    def meet(x):
        barrier.wait()
        return x.clone()

    ops = [
        slot("%s", "tensor<4xf32>"),
        call("copy", "%x, %s", "tensor<4xf32>, tensor<4xf32>"),
        aten("%0", "mlirc_meet.meet.default", '[{"$": %x}]', "(tensor<4xf32>) -> tensor<4xf32>"),
        aten("%1", "aten.add.Tensor", '[{"$": %0}, {"$": %s}]', "(tensor<4xf32>, tensor<4xf32>) -> tensor<4xf32>"),
        "return %1 : tensor<4xf32>",
    ]
    with operators("mlirc_meet", meet=meet), ThreadPoolExecutor(2) as pool:
        program = build('(%x: tensor<4xf32>) -> tensor<4xf32> attributes {mlirc.arena = "16"}', ops)

        def run(value: float) -> torch.Tensor:
            with torch.no_grad():
                return program([torch.full((4,), value)])[0]

        for _ in range(20):
            one, two = pool.map(run, (1.0, 2.0))
            assert one.tolist() == [2.0] * 4 and two.tolist() == [4.0] * 4


def test_compiling_from_several_threads():
    def compile_and_run(k: int) -> bool:
        t = "tensor<4xf32>"
        ops = [aten("%0", "aten.add.Scalar", f'[{{"$": %x}}, {k}]', f"({t}) -> {t}"), f"return %0 : {t}"]
        program = build(f"(%x: {t}) -> {t}", ops)
        with torch.no_grad():
            return program([torch.zeros(4)])[0].tolist() == [float(k)] * 4

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(compile_and_run, range(16)))


CHILD = """
import os, signal, sys, torch
from tests.memory_level import build
from tests.codegen.process.test_threads_fork import OPS, SIGNATURE, parallel_kernel

torch.set_num_threads(2)
with torch.no_grad():
    program, kernel = build(SIGNATURE, OPS), parallel_kernel()
    x, large = torch.randn(64, 64), torch.randn(700, 700)
    want = program([x])[0]
    assert kernel([torch.zeros((), dtype=torch.int64)])[0].item() == 2  # libgomp's team exists now
    large @ large
    pid = os.fork()
    if pid == 0:
        signal.alarm(20)  # a child that waits for ever dies of it
        ok = torch.equal(program([x])[0], want)
        ok &= kernel([torch.zeros((), dtype=torch.int64)])[0].item() == torch.get_num_threads() == 2
        torch.set_num_threads(1)
        ok &= kernel([torch.zeros((), dtype=torch.int64)])[0].item() == 1
        large @ large
        os._exit(0 if ok else 1)
    status = os.waitpid(pid, 0)[1]
    assert torch.get_num_threads() == 2 and kernel([torch.zeros((), dtype=torch.int64)])[0].item() == 2
    sys.exit(os.waitstatus_to_exitcode(status))
"""


def parallel_kernel():
    """A program whose kernel counts the threads that libgomp gives it, as generated kernels ask for them."""
    text = """
llvm.func @GOMP_parallel(!llvm.ptr, !llvm.ptr, i32, i32)
llvm.func internal @kernel_0_part(%x: !llvm.ptr) {
  %one = llvm.mlir.constant(1 : i64) : i64
  %old = llvm.atomicrmw add %x, %one monotonic : !llvm.ptr, i64
  llvm.return
}
func.func @kernel_0(%args: !llvm.ptr) -> i64 {
  %x = llvm.load %args : !llvm.ptr -> !llvm.ptr
  %at = llvm.getelementptr %args[1] : (!llvm.ptr) -> !llvm.ptr, i64
  %threads = llvm.load %at : !llvm.ptr -> i32
  %flags = arith.constant 0 : i32
  %zero = arith.constant 0 : i64
  %part = llvm.mlir.addressof @kernel_0_part : !llvm.ptr
  %one = arith.constant 1 : i32
  %many = arith.cmpi sgt, %threads, %one : i32
  scf.if %many {
    llvm.call @GOMP_parallel(%part, %x, %threads, %flags) : (!llvm.ptr, !llvm.ptr, i32, i32) -> ()
  } else {
    llvm.call @kernel_0_part(%x) : (!llvm.ptr) -> ()
  }
  return %zero : i64
}"""
    run = '"mlircx.run"(%x) {kernel = "kernel_0", symbols = "", messages = []} : (tensor<i64>) -> ()'
    return build("(%x: tensor<i64>) -> tensor<i64>", [run, "return %x : tensor<i64>"], text)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform")
def test_a_forked_child_does_not_wait_for_its_parents_threads():
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, f"exit code {done.returncode} (-{signal.SIGALRM} is a hang)\n{done.stderr}"
