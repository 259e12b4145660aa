"""Products of a few rows with columns that lie along k: the kernel against float64, in every width of vectors."""

import pytest
import torch
from torch import nn

from mlirc.lowering.cpu.matmul.match import MOST_COPIED
from tests.kernel_runner import NativeKernel, guarded, info

pytestmark = pytest.mark.thinned

DTYPES = (torch.float32, torch.bfloat16)
GAP = 3  # elements between rows, and between columns


def product(dtype: torch.dtype, m: int | str, n: int, k: int, vector_bytes: int = 0) -> NativeKernel:
    """relu(x @ w + b), columns and rows a few elements apart."""
    x, w = info(dtype, f"{m}, {k}", f"{k + GAP}, 1"), info(dtype, f"{k}, {n}", f"1, {k + GAP}")
    b, out = info(dtype, f"{n}"), info(dtype, f"{m}, {n}")

    def build(kernel, x, w, b):
        row, column, at = kernel.dims
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, at)), kernel.read(w, (at, column))))
        return [(kernel.relu(kernel.add(total, kernel.read(b, (column,)))), (row, column), out)]

    return NativeKernel([x, w, b], f"{m}, {n}", f"{k}", build, vector_bytes)


def check(kernel: NativeKernel, dtype: torch.dtype, m: int, n: int, k: int, threads: int) -> None:
    """What lies between rows and columns, and after them, is NaN."""
    matrices = [torch.full((r, k + GAP), float("nan"), dtype=dtype) for r in (m, n)]
    x, w = (matrix[:, :k].normal_() for matrix in matrices)
    sizes = dict.fromkeys(kernel.symbols, m)
    b, (memory, out) = torch.randn(n, dtype=dtype), guarded(kernel.outputs[0], {"s0": m})
    before = memory.clone()
    kernel([x, w.t(), b], [out], threads=threads, **sizes)
    exact = nn.functional.relu(x.double() @ w.double().t() + b.double())
    # of copies: on processors with tiles eager multiplies what lies between rows by 0
    eager = nn.functional.relu(torch.addmm(b, x.contiguous(), w.contiguous().t()))
    slack = 1e-6 if dtype == torch.float32 else 1e-3
    assert (out - exact).norm() <= 2 * (eager - exact).norm() + slack * exact.norm()
    out.copy_(guarded(kernel.outputs[0], {"s0": m})[1])
    bits = torch.int32 if dtype == torch.float32 else torch.int16
    assert torch.equal(memory.view(bits), before.view(bits)), "it wrote outside of its result"


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("m", range(1, 9))
def test_rows(dtype, m):
    """Whole tiles of rows and what is left of them; columns that no tile divides; several blocks of k, and no whole one."""
    for n, k, threads in ((93, 47, 1), (70, 64, 3), (6, 2 * 2048 + 21, 2)):
        kernel = product(dtype, m, n, k)
        assert "_dots" in kernel.mlir
        check(kernel, dtype, m, n, k, threads)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("vector_bytes", [16, 32])
@pytest.mark.parametrize("m", [1, 3, 8])
def test_narrower_vectors(dtype, vector_bytes, m):
    for n, k in ((13, 3), (30, 101)):
        check(product(dtype, m, n, k, vector_bytes), dtype, m, n, k, 2)


def test_rows_that_are_too_long_for_a_stack():
    k = MOST_COPIED // 2 + 1
    assert "_dots" not in product(torch.float32, 2, 4, k).mlir
    assert "_dots" in product(torch.float32, 2, 4, k - 1).mlir


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_not_finite(dtype):
    """A NaN or an infinity reaches its own row or column, and no other."""
    x, w = torch.zeros(2, 40, dtype=dtype), torch.ones(10, 40, dtype=dtype)
    x[0, 39], w[3, 0], w[7, 38] = float("nan"), float("inf"), float("-inf")
    x[1] = 1
    out = torch.empty(2, 10, dtype=dtype)
    kernel = product(dtype, 2, 10, 40)
    gaps = [torch.zeros(r, 40 + GAP, dtype=dtype) for r in (2, 10)]
    for gap, matrix in zip(gaps, (x, w), strict=True):
        gap[:, :40] = matrix
    kernel([gaps[0][:, :40], gaps[1][:, :40].t(), torch.zeros(10, dtype=dtype)], [out])
    wanted = torch.full((10,), 40.0, dtype=dtype)
    wanted[3], wanted[7] = float("inf"), 0
    assert out[0].isnan().all()
    assert torch.equal(out[1], wanted)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_that_are_a_symbol(dtype):
    """Few rows and many, by which code it is known when the kernel is called."""
    for n, k in ((93, 47), (70, 2100)):
        kernel = product(dtype, "s0", n, k)
        assert "_few_dots" in kernel.mlir and "_tile" in kernel.mlir
        for m in (0, 1, 2, 3, 4, 5, 7, 8, 9, 20):
            check(kernel, dtype, m, n, k, 2)


def test_many_sequences_are_never_few():
    assert "_few" not in product(torch.float32, "16*s0", 24, 32).mlir
