"""Two rows at once: the same results for any number of rows, any length of them, and whatever else a kernel does."""

import pytest
import torch

from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info
from tests.lowering.cpu.emitter.test_emitter import layer_norm, softmax

f32, bf16 = torch.float32, torch.bfloat16


def goes_by_pairs(kernel) -> bool:
    return "step %c2_i64" in kernel.mlir


def norm(rows: int, width: int, build=layer_norm, dtype=f32) -> NativeKernel:
    given = [info(dtype, f"{rows}, {width}"), info(f32, f"{width}"), info(f32, f"{width}")]
    return NativeKernel(given, str(rows), str(width), build)


def inputs(rows: int, width: int, dtype=f32) -> list[torch.Tensor]:
    return [torch.randn(rows, width).to(dtype), torch.randn(width), torch.randn(width)]


@pytest.mark.parametrize(("rows", "width"), [(67, 1024), (1, 16384), (2, 16384), (1001, 77), (129, 1000), (3, 12288)])
def test_layer_norm(rows, width):
    kernel = norm(rows, width)
    assert goes_by_pairs(kernel) or rows < 8 or width < 128
    kernel.check(*inputs(rows, width), threads=(1, 2, 5), rtol=1e-5, atol=2e-6)


def test_half_types():
    def rounded(k, x, weight, bias):
        a = k.cast(k.read(x, k.dims), f32)
        scale = k.rsqrt(k.div(k.reduce("sum", k.mul(a, a)), 1024.0))
        y = k.add(k.mul(k.mul(a, scale), k.read(weight, k.inner_dims)), k.read(bias, k.inner_dims))
        return [(k.cast(y, bf16), k.dims, info(bf16, "66, 1024"))]

    kernel = norm(66, 1024, rounded, bf16)
    assert goes_by_pairs(kernel)
    kernel.check(*inputs(66, 1024, bf16), rtol=1e-2, atol=1e-2)


def with_statistics(k, x, weight, bias):
    """Expensive values of two passes, kept in scratch memory, and a number of each row as a result."""
    a = k.exp(k.read(x, k.dims))
    mean = k.div(k.reduce("sum", a), 1024.0)
    c = k.sin(k.sub(a, mean))
    scale = k.rsqrt(k.reduce("sum", k.mul(c, c)))
    y = k.add(k.mul(k.mul(k.sub(c, a), scale), k.read(weight, k.inner_dims)), k.read(bias, k.inner_dims))
    return [(y, k.dims, info(f32, "77, 1024")), (mean, k.dims[:1], info(f32, "77"))]


def test_scratch_and_a_number_for_each_row():
    kernel = norm(77, 1024, with_statistics)
    assert goes_by_pairs(kernel)
    kernel.check(*inputs(77, 1024), threads=(1, 2, 3))


def test_in_place():
    x, weight, bias = inputs(67, 1024)
    kernel = norm(67, 1024)
    out, scales = torch.empty_like(x), torch.empty(67)
    kernel([x, weight, bias], [out, scales], threads=2)
    kernel([x, weight, bias], [x, scales], threads=2)
    assert torch.equal(x, out)


def test_the_same_bits_with_any_number_of_threads():
    given, kernel = inputs(67, 1024), norm(67, 1024)
    first, second = ([torch.empty(67, 1024), torch.empty(67)] for _ in range(2))
    kernel(given, first)
    kernel(given, second, threads=7)
    assert torch.equal(first[0], second[0]) and torch.equal(first[1], second[1])


def test_rows_that_share_nothing_go_alone():
    assert not goes_by_pairs(NativeKernel([info(f32, "256, 1024")], "256", "1024", softmax))


def test_shared_numbers_are_read_once_for_two_rows():
    """The loop over both rows reads two rows, a weight and a bias."""
    kernel, vector = norm(64, 1024), f"vector<{host_cpu().lanes(f32)}xf32>"
    loops = [loop.splitlines() for loop in kernel.mlir.split("scf.for")]
    counts = [
        tuple(sum(op in line and vector in line for line in loop) for op in ("llvm.load", "llvm.store"))
        for loop in loops
    ]
    assert (4, 2) in counts  # two rows at once
    assert (6, 2) in counts  # the last one of an odd number, two vectors at a time
