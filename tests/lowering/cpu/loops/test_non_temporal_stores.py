"""Results that are written past the cache: which, and that they come out the same wherever their memory begins."""

import pytest
import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.cpu.loops import non_temporal_stores
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info

f32, f64, bf16 = torch.float32, torch.float64, torch.bfloat16
PAST = "nontemporal"


@pytest.fixture
def small_counts(monkeypatch):
    """Results of 1 KiB count as large."""
    monkeypatch.setattr(non_temporal_stores, "NON_TEMPORAL_BYTES", 1024)


def softmax(k, x):
    a = k.read(x, k.dims)
    e = k.exp(k.sub(a, k.reduce("max", a)))
    return [(k.div(e, k.reduce("sum", e)), k.dims, info(f32, symbols.print_list(k.parallel + k.inner)))]


def test_only_large_results_are_written_past_the_cache():
    rows = non_temporal_stores.NON_TEMPORAL_BYTES // 4096
    for count, streamed in ((rows, True), (rows - 1, False)):
        shape = info(f32, f"{count}, 1024")
        assert (PAST in NativeKernel([shape], f"{count}", "1024", softmax).mlir) == streamed


@pytest.mark.parametrize("dtype", [f32, f64, bf16])
@pytest.mark.parametrize("offset", [0, 1, 8])
def test_any_beginning(dtype, offset, small_counts):
    shape = info(dtype, "40, 128")
    kernel = NativeKernel([shape], "40, 128", "", lambda k, x: [(k.neg(k.read(x, k.dims)), k.dims, shape)])
    if host_cpu().lanes(f32) * dtype.itemsize >= 16:
        assert PAST in kernel.mlir and "x86.sse.sfence" in kernel.mlir
    x = torch.randn(40, 128, dtype=dtype)
    memory = torch.zeros(40 * 128 + 64, dtype=dtype)
    out = memory[offset : offset + 40 * 128]
    for threads in (1, 3):
        out.fill_(torch.nan)
        assert kernel([x], [out], threads=threads)[0] == 0
        assert torch.equal(out.view(40, 128), -x) and not memory[offset + 40 * 128 :].any()


def test_symbolic_sizes_decide_when_they_are_known(small_counts):
    kernel = NativeKernel([info(f32, "s0, 96")], "s0", "96", softmax)
    assert PAST in kernel.mlir
    for rows in (0, 1, 2, 3, 50):
        kernel.check(torch.randn(rows, 96), s0=rows)
    flat = info(f32, "s0")
    kernel = NativeKernel([flat], "s0", "", lambda k, x: [(k.neg(k.read(x, k.dims)), k.dims, flat)])
    for size in (0, 5, 255, 256, 257, 1024, 5000):
        kernel.check(torch.randn(size), threads=(1, 2, 3), s0=size)


@pytest.mark.parametrize("columns", ["97", "s1"])
def test_rows_that_begin_anywhere_are_not(columns, small_counts):
    kernel = NativeKernel([info(f32, f"40, {columns}")], "40", columns, softmax)
    assert PAST not in kernel.mlir
    kernel.check(torch.randn(40, 97), s1=97)


def test_rows_with_room_between_them(small_counts):
    shape = info(f32, "40, 100", "128, 1")
    kernel = NativeKernel([shape], "40, 100", "", lambda k, x: [(k.neg(k.read(x, k.dims)), k.dims, shape)])
    assert PAST in kernel.mlir
    kernel.check(torch.randn(40, 128)[:, :100])


def test_in_place(small_counts):
    kernel = NativeKernel([info(f32, "64, 128")], "64", "128", softmax)
    x = torch.randn(64, 128)
    want = x.softmax(-1)
    assert kernel([x], [x], threads=2)[0] == 0
    torch.testing.assert_close(x, want)


def test_what_is_read_back_is_not(small_counts):
    """exp(x - max) of a row too long for scratch memory is kept in the result, which the last pass reads."""
    kernel = NativeKernel([info(f32, "8, 20000")], "8", "20000", softmax)
    assert PAST not in kernel.mlir
    kernel.check(torch.randn(8, 20000))
