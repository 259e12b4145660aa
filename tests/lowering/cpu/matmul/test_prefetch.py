"""Products whose tiles ask for what comes next, as they do with AVX-512: here forced on any machine, with the lines written down."""

import ctypes

import pytest
import torch

from mlirc.lowering.cpu.emitter.addresses import advance, prefetch
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul import blocked, tile, transposed
from tests.kernel_runner import NativeKernel, info

LINE, ROOM = 64, 1 << 19
SHAPES = {
    "tiles wait for blocks of k": (110, 150, 2048),
    "one block of k": (110, 400, 768),
    "tiles come out transposed": (90, 512, 256),  # rows that fill their panels
}
# where no column or no row is fetched: they lie apart, or as few as are packed at once
OTHER = {"columns along n": (110, 200, 1300), "rows apart": (110, 300, 768), "few columns": (110, 40, 768)}


@pytest.fixture
def asked(monkeypatch):
    """Tiles fetch, and the addresses that they ask for are in the list that this gives: [how many, ...]."""
    seen = (ctypes.c_int64 * (ROOM + 1))()
    for module in (blocked, transposed):
        monkeypatch.setattr(module, "fetches", lambda target: True)

    def fetch(e, address: Value, level: int) -> None:
        prefetch(e, address, level)
        b, start = e.index, e.index.emit(f"arith.constant {ctypes.addressof(seen)} : i64", torch.int64)
        list_ = b.emit(f"llvm.inttoptr {start} : i64 to !llvm.ptr", torch.int64)
        count = b.emit(f"llvm.atomicrmw add {list_}, {e.i64(1)} monotonic : !llvm.ptr, i64", torch.int64)
        place = advance(e, list_, b.add(b.and_(count, e.i64(ROOM - 1)), e.i64(1)), torch.int64)
        number = b.emit(f"llvm.ptrtoint {address} : !llvm.ptr to i64", torch.int64)
        e.lines.append(f"llvm.store {number}, {place} : i64, !llvm.ptr")

    monkeypatch.setattr(tile, "prefetch", fetch)
    return seen


def product(m: int, n: int, k: int, x_stride: str, w_stride: str) -> NativeKernel:
    x, w = info(torch.float32, f"{m}, {k}", x_stride), info(torch.float32, f"{k}, {n}", w_stride)
    out = info(torch.float32, f"{m}, {n}")

    def build(kernel, x, w):
        row, column, at = kernel.dims
        product = kernel.mul(kernel.read(x, (row, at)), kernel.read(w, (at, column)))
        return [(kernel.reduce("sum", product), (row, column), out)]

    return NativeKernel([x, w], f"{m}, {n}", f"{k}", build)


def covered(lines: set[int], x: torch.Tensor) -> float:
    """Which part of a tensor's cache lines is among these."""
    first, last = x.data_ptr() // LINE, (x.data_ptr() + 4 * x.numel() - 1) // LINE
    return sum(line in lines for line in range(first, last + 1)) / (last - first + 1)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", SHAPES)
def test_what_comes_next_is_asked_for(asked, case, threads):
    m, n, k = SHAPES[case]
    kernel = product(m, n, k, f"{k}, 1", f"1, {k}")
    x, w, out = torch.randn(m, k), torch.randn(n, k), torch.empty(m, n)
    kernel([x, w.t()], [out], threads=threads)
    assert (out - x.double() @ w.double().t()).norm() <= 1e-6 * (out.double().norm() + 1)
    count = asked[0]
    assert 0 < count < ROOM
    lines = {address // LINE for address in asked[1 : count + 1]}
    inside = sum(x.data_ptr() <= a < x.data_ptr() + 4 * x.numel() for a in asked[1 : count + 1]) + sum(
        w.data_ptr() <= a < w.data_ptr() + 4 * w.numel() for a in asked[1 : count + 1]
    )
    assert inside > 0.7 * count, "what is not the product's is asked for"
    if "transposed" not in case:
        assert covered(lines, x) > 0.95
    # of two threads, one may take chunks of the other from the end, for which nothing is asked
    assert covered(lines, w) > (0.6 if threads == 1 else 0.4), "the first group's columns alone are not asked for"


@pytest.mark.parametrize("case", OTHER)
def test_other_matrices(asked, case):
    m, n, k = OTHER[case]
    far = 16 * (case == "rows apart")
    kernel = product(m, n, k, f"{k + far}, 1", f"{n}, 1" if case == "columns along n" else f"1, {k}")
    x, out = torch.randn(m, k + far)[:, :k], torch.empty(m, n)
    w = torch.randn(k, n) if case == "columns along n" else torch.randn(n, k).t()
    kernel([x, w], [out], threads=2)
    assert (out - x.double() @ w.double()).norm() <= 1e-6 * (out.double().norm() + 1)
    assert "_fetching" in kernel.mlir
