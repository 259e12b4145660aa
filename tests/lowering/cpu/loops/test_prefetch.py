"""Rows that are fetched ahead: where that pays, once for each cache line, and nothing else of a kernel changes."""

import pytest
import torch

from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info
from tests.lowering.cpu.emitter.test_emitter import softmax
from tests.lowering.cpu.loops.test_online_softmax import joined, statistics

f32, bf16 = torch.float32, torch.bfloat16


def requests(kernel) -> int:
    return kernel.mlir.count("llvm.intr.prefetch")


@pytest.mark.parametrize("dtype", [f32, bf16])
def test_a_softmax_asks_for_the_next_row(dtype):
    kernel = NativeKernel([info(dtype, "5, 1024")], "5", "1024", softmax)
    # two vectors at once, with as many lanes as there are float32 in a register
    assert requests(kernel) == max(2 * host_cpu().lanes(f32) * dtype.itemsize // 64, 1)
    kernel.check(torch.randn(5, 1024).to(dtype))


def test_one_pass_for_maximum_and_sum_asks_for_the_next_row():
    kernel = NativeKernel([info(f32, "5, 1024")], "5", "1024", statistics)
    vectors = 4 if joined(host_cpu().lanes(f32)) else 2
    assert requests(kernel) == max(vectors * host_cpu().lanes(f32) * f32.itemsize // 64, 1)


@pytest.mark.parametrize(
    ("rows", "size"), [("5", "96"), ("5", "1000000"), ("5", "s0")], ids=["short", "long", "of any size"]
)
def test_rows_that_are_not(rows, size):
    assert requests(NativeKernel([info(f32, f"{rows}, {size}")], rows, size, softmax)) == 0


def test_cheap_passes_do_not_ask():
    def centered(k, x):
        a = k.read(x, k.dims)
        return [(k.sub(a, k.reduce("sum", a)), k.dims, info(f32, "5, 1024"))]

    assert requests(NativeKernel([info(f32, "5, 1024")], "5", "1024", centered)) == 0
