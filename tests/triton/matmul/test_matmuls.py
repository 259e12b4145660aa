"""Matrix products as Triton kernels: in one step for each tile, and by programs that go through all tiles."""

import re

import pytest
import torch

from mlirc.dialects.core.kernel_forms import broadcast_map
from mlirc.lowering.gpu.matmul import persistent as persistent_module
from mlirc.lowering.gpu.matmul.persistent import persistent
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel

bf16, f16 = torch.bfloat16, torch.float16


def close(kernel: TritonKernel, *inputs: torch.Tensor) -> None:
    kernel.check(*inputs, rtol=2**-6, atol=2**-6)


def product(m, n, k, x, w, epilogue=lambda b, total, row, column: total, dtype=bf16, out=None):
    """A kernel of x [m, k] by w [k, n] with these strides, and whatever `epilogue` does to the sum."""
    x, w = (info(dtype, f"{a}, {b}", stride) for (a, b), stride in zip(((m, k), (k, n)), (x, w), strict=True))

    def build(b, x, w, *more):
        row, column, at = b.dims
        total = b.reduce("sum", b.mul(b.read(x, (row, at)), b.read(w, (at, column))))
        value = epilogue(b, total, row, column, *more)
        return [(value, (row, column), info(dtype, f"{m}, {n}", out))]

    return x, w, build


def strided(m: int, n: int, stride: str, dtype=bf16) -> torch.Tensor:
    steps = [int(s) for s in stride.split(",")]
    memory = torch.randn(1 + (m - 1) * steps[0] + (n - 1) * steps[1]) / 4
    return memory.to(dtype).as_strided((m, n), steps)


@pytest.mark.parametrize(
    ("m", "n", "k", "x", "w"),
    [
        (70, 40, 48, "48, 1", "1, 48"),  # tails of rows and of columns
        (64, 16, 33, "33, 1", "16, 1"),  # a tail of k
        (5, 100, 64, "1, 5", "1, 70"),  # transposed, and with gaps
    ],
)
def test_tile_by_tile(m, n, k, x, w):
    *inputs, build = product(m, n, k, x, w)
    kernel = TritonKernel(inputs, f"{m}, {n}", f"{k}", build)
    assert "tl.dot(" in kernel.source and "descriptor" not in kernel.source
    close(kernel, strided(m, k, x), strided(k, n, w))


def test_several_products_share_their_rows():
    """silu(x @ a) * (x @ b): both sums in one loop."""
    infos = [info(f16, "40, 32"), info(f16, "32, 48", "1, 32"), info(f16, "32, 48", "1, 32")]

    def build(b, x, p, q):
        row, column, at = b.dims
        sums = [b.reduce("sum", b.mul(b.read(x, (row, at)), b.read(w, (at, column)))) for w in (p, q)]
        return [(b.mul(b.silu(sums[0]), sums[1]), (row, column), info(f16, "40, 48"))]

    kernel = TritonKernel(infos, "40, 48", "32", build)
    assert kernel.source.count("for k in") == 1 and kernel.source.count("tl.dot(") == 2
    close(kernel, strided(40, 32, "32, 1", f16), *(strided(32, 48, "1, 32", f16) for _ in range(2)))


def test_what_is_no_product_on_matrix_units_is_reduced():
    *inputs, build = product(8, 8, 32, "32, 1", "1, 32", dtype=torch.float32)
    assert "tl.dot(" not in TritonKernel(inputs, "8, 8", "32", build).source


def gelu_of_sum(b, total, row, column, bias, residual):
    return b.add(
        b.gelu(b.add(total, b.read(bias, broadcast_map(bias, (row, column))))), b.read(residual, (row, column))
    )


@pytest.mark.parametrize(
    ("n", "w", "out", "parts"),
    [
        (512, "1, 72", None, 2),  # w lies along k, with a gap
        (520, "520, 1", "528, 1", 2),  # along n; a tail of columns; rows of the result apart
        (514, "1, 64", None, 1),  # a result whose rows begin anywhere is written by pointers
    ],
)
def test_by_programs_that_go_through_all_tiles(monkeypatch, n, w, out, parts):
    """Blocks of a few elements, so that there are several tiles, and tails, in little time."""
    monkeypatch.setattr(persistent_module, "ROWS", 32)
    monkeypatch.setattr(persistent_module, "COLUMNS", 64)
    monkeypatch.setattr(persistent_module, "STEPS", 16)
    m, k = 70, 56
    x, columns, build = product(m, n, k, "64, 1", w, gelu_of_sum, out=out)
    infos = [x, columns, info(bf16, f"{n}"), info(bf16, f"{m}, {n}")]
    kernel = TritonKernel(infos, f"{m}, {n}", f"{k}", build, aligned=True, programs=3)
    assert kernel.source.count("make_tensor_descriptor") == 1 + parts and kernel.made.grid == [3, 1, 1]
    assert kernel.made.scratch == 128 * (1 + parts)
    given = strided(m, k, "64, 1"), strided(k, n, w), strided(1, n, f"{n}, 1")[0], strided(m, n, f"{n}, 1")
    close(kernel, *given)


def test_descriptors_need_whole_rows_of_16_bytes(monkeypatch):
    plans = []
    monkeypatch.setattr("mlirc.lowering.gpu.kernel.persistent", lambda *a: plans.append(persistent(*a)) or plans[-1])
    for x, aligned in (("64, 1", True), ("60, 1", True), ("64, 1", False)):
        *inputs, build = product(2048, 4096, 56, x, "1, 64")
        TritonKernel(inputs, "2048, 4096", "56", build, aligned=aligned)
    assert [plan is not None for plan in plans] == [True, False, False]


def test_few_tiles_are_computed_one_by_one():
    *inputs, build = product(1024, 1024, 64, "64, 1", "1, 64")
    made = TritonKernel(inputs, "1024, 1024", "64", build, aligned=True)
    assert "descriptor" not in made.source and re.search(r"YBLOCK: tl.constexpr", made.source)
