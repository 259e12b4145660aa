"""Generated products of matrices that lie in memory as they are: the kernel against float64, and what fusion makes of it."""

from typing import Any
from unittest import mock

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import mlirc
from mlirc.lowering.cpu.loops import function
from tests.kernel_runner import NativeKernel, guarded, info

STRICT = {"fallback": "error"}
EPILOGUES = ("none", "bias", "gelu", "residual")
# how a matrix of r rows and c columns lies: a text for its strides, and a tensor's
LAYOUTS = {
    "rows": ("{c}, 1", lambda r, c: torch.randn(r, c)),
    "columns": ("1, {r}", lambda r, c: torch.randn(c, r).t()),
    "far rows": ("{c} + 1013, 1", lambda r, c: torch.randn(r, c + 1013)[:, :c]),
    "every second": ("2*{c}, 2", lambda r, c: torch.randn(r, 2 * c)[:, ::2]),
    "every second column": ("2, 2*{r}", lambda r, c: torch.randn(c, 2 * r)[:, ::2].t()),
}


def product(m: Any, n: int, k: Any, layouts: tuple[str, str], epilogue: str = "none", vector_bytes: int = 0):
    """epilogue(x[m, k] @ w[k, n]) as a native kernel; m and k may be symbols."""
    x_stride, w_stride = (LAYOUTS[name][0] for name in layouts)
    x = info(torch.float32, f"{m}, {k}", x_stride.format(r=m, c=k))
    w = info(torch.float32, f"{k}, {n}", w_stride.format(r=k, c=n))
    b, r, out = info(torch.float32, f"{n}"), info(torch.float32, f"{m}, {n}"), info(torch.float32, f"{m}, {n}")

    def build(kernel, x, w, b, r):
        row, column, at = kernel.dims
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, at)), kernel.read(w, (at, column))))
        if epilogue == "residual":
            return [(kernel.add(total, kernel.read(r, (row, column))), (row, column), out)]
        if epilogue != "none":
            total = kernel.add(total, kernel.read(b, (column,)))
        return [(kernel.gelu(total) if epilogue == "gelu" else total, (row, column), out)]

    with mock.patch.object(function, "kernel_text", side_effect=AssertionError("lowered as any other kernel")):
        return NativeKernel([x, w, b, r], f"{m}, {n}", f"{k}", build, vector_bytes)


def check(kernel: NativeKernel, m: int, n: int, k: int, layouts, epilogue="none", threads=1, **symbols: int) -> None:
    x, w = (LAYOUTS[name][1](*size) for name, size in zip(layouts, ((m, k), (k, n)), strict=True))
    b, r = torch.randn(n), torch.randn(m, n)
    memory, out = guarded(kernel.outputs[0], symbols)
    before = memory.clone()
    kernel([x, w, b, r], [out], threads=threads, **symbols)

    def wanted(x, w, b, r):
        total = {"none": x @ w, "residual": x @ w + r}.get(epilogue, x @ w + b)
        return nn.functional.gelu(total) if epilogue == "gelu" else total

    exact, eager = wanted(x.double(), w.double(), b.double(), r.double()), wanted(x, w, b, r)
    assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-6 * exact.norm()
    out.copy_(guarded(kernel.outputs[0], symbols)[1])
    assert torch.equal(memory.view(torch.int32), before.view(torch.int32)), "it wrote outside of its result"


@settings(max_examples=12, deadline=None)
@given(
    m=st.sampled_from([1, 2, 13, 14, 15, 29, 70, 300]),
    n=st.sampled_from([2, 10, 31, 32, 33, 100, 300]),
    k=st.sampled_from([2, 5, 16, 33, 257, 1024, 1025]),
    layouts=st.tuples(st.sampled_from(list(LAYOUTS)), st.sampled_from(list(LAYOUTS))),
    epilogue=st.sampled_from(EPILOGUES),
    vector_bytes=st.sampled_from([0, 0, 64, 32, 16]),
    threads=st.integers(1, 3),
)
def test_any_size_and_layout(m, n, k, layouts, epilogue, vector_bytes, threads):
    torch.manual_seed(m + n + k)
    check(product(m, n, k, layouts, epilogue, vector_bytes), m, n, k, layouts, epilogue, threads)


@pytest.mark.parametrize("layouts", [("rows", "columns"), ("columns", "rows")])
def test_one_kernel_for_all_sizes(layouts):
    """Rows and steps along k may be symbols: a batch's are, in the product for a weight's gradient."""
    kernel = product("s0", 70, "s1", layouts)
    for m, k in ((0, 5), (5, 0), (1, 1), (5, 300), (14, 256), (27, 255), (61, 700), (300, 17)):
        check(kernel, m, 70, k, layouts, threads=2, s0=m, s1=k)


@pytest.mark.parametrize("layout", ["columns", "every second column"])
def test_transposed_rows_are_packed_part_by_part(layout):
    """Several parts of them, and every number of rows that may be left."""
    kernel = product("s0", 70, 1000, (layout, "rows"))
    for m in (0, 1, 6, 127, 131, 400):
        check(kernel, m, 70, 1000, (layout, "rows"), threads=2, s0=m)


@settings(max_examples=16, deadline=None)
@given(
    m=st.sampled_from([9, 17, 25, 33, 49, 65, 81, 97]),
    n=st.sampled_from([5, 31, 72, 80, 161, 400]),
    k=st.sampled_from([7, 16, 100, 960, 1027, 1152]),
    rows=st.sampled_from(["rows", "far rows"]),
    epilogue=st.sampled_from(EPILOGUES),
    vector_bytes=st.sampled_from([0, 64, 64, 32]),
    threads=st.integers(1, 3),
)
def test_a_row_after_whole_vectors(m, n, k, rows, epilogue, vector_bytes, threads):
    """As of the 49 pixels of a 7x7 image: that row is not packed."""
    torch.manual_seed(m + n + k)
    check(product(m, n, k, (rows, "columns"), epilogue, vector_bytes), m, n, k, (rows, "columns"), epilogue, threads)


def test_a_row_after_whole_vectors_that_is_not_finite():
    x, w = torch.randn(49, 100), torch.randn(80, 100).t()
    x[48, 3], w[7, 9] = float("inf"), float("nan")
    out, kernel = torch.empty(49, 80), product(49, 80, 100, ("rows", "columns"), vector_bytes=64)
    kernel([x, w, torch.empty(80), torch.empty(49, 80)], [out], threads=2)
    exact = x.double() @ w.double()
    torch.testing.assert_close(out.double(), exact, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.parametrize("k", [768, 3072])
def test_rows_that_fall_into_the_same_cache_lines(k):
    check(product(40, 200, k, ("rows", "columns")), 40, 200, k, ("rows", "columns"), threads=2)


def test_more_rows_than_wait_for_the_next_block():
    check(product(700, 40, 1100, ("rows", "rows")), 700, 40, 1100, ("rows", "rows"), threads=2)


def test_the_same_bits_with_any_number_of_threads():
    x, w = torch.randn(100, 1500), torch.randn(1500, 130)
    kernel = product(100, 130, 1500, ("rows", "rows"))
    results = []
    for threads in (1, 2, 3):
        results.append(torch.empty(100, 130))
        kernel([x, w, torch.empty(130), torch.empty(100, 130)], [results[-1]], threads=threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


@pytest.mark.parametrize("k", [299, 1500])
def test_threads_take_each_group_of_panels_once(k):
    """Large groups first, then small ones; the last panel has one column, and a block of k no whole vectors."""
    x, w, b = torch.randn(163, k), torch.randn(1009, k).t(), torch.randn(1009)
    kernel, results = product(163, 1009, k, ("rows", "columns"), "bias"), []
    for threads in (1, 2, 5):
        results.append(torch.full((163, 1009), float("nan")))
        kernel([x, w, b, torch.empty(163, 1009)], [results[-1]], threads=threads)
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])
    exact, eager = x.double() @ w.double() + b, x @ w + b
    assert (results[0] - exact).norm() <= 2 * (eager - exact).norm()


def test_what_is_not_finite_stays_so():
    x, w = torch.randn(20, 40), torch.randn(40, 50)
    x[3, 5], w[7, 9], x[11] = float("inf"), float("nan"), float("-inf")
    kernel, out = product(20, 50, 40, ("rows", "rows")), torch.empty(20, 50)
    kernel([x, w, torch.empty(50), torch.empty(20, 50)], [out])
    torch.testing.assert_close(out, x @ w, equal_nan=True, rtol=1e-4, atol=1e-4)


# ---- in a graph


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def kernels(function, *args) -> list[str]:
    return [k["name"] for graph in mlirc.explain(function)(*args).data["graphs"] for k in graph["kernels"]]


def gradients(module: nn.Module, call, x: torch.Tensor) -> list[torch.Tensor]:
    x = x.clone().requires_grad_()
    module.zero_grad()
    call(x).square().mean().backward()
    return [x.grad, *(p.grad for p in module.parameters())]


@pytest.mark.parametrize("dynamic", [False, True])
def test_a_training_step(dynamic):
    eager = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 64))
    exact = nn.Sequential(nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 64)).double()
    exact.load_state_dict(eager.state_dict())
    ours = torch.compile(eager, backend="mlirc", options=STRICT, dynamic=dynamic)
    for batch in (64, 100) if dynamic else (64,):
        x = torch.randn(batch, 48)
        wanted, theirs = gradients(exact, exact, x.double()), gradients(eager, eager, x)
        for mine, other, want in zip(gradients(eager, ours, x), theirs, wanted, strict=True):
            assert (mine - want).norm() <= 2 * (other - want).norm() + 1e-6 * want.norm()


def test_what_follows_a_product_is_computed_on_its_tiles():
    def run(x, y, z):
        return torch.relu(x @ y.t() + 1) * z

    x, y, z = torch.randn(64, 80), torch.randn(96, 80), torch.randn(64, 96)
    assert len(kernels(run, x, y, z)) == 1
    torch.testing.assert_close(torch.compile(run, backend="mlirc", options=STRICT)(x, y, z), run(x, y, z))


def test_columns_that_are_split_and_rows_that_are_folded_stay_outside():
    """A product's kernel must remain one that fast code is written for."""

    def split(x, y):
        return (x @ y).view(64, 4, 24).transpose(1, 2).contiguous() * 2

    def folded(x, y):
        return (x @ y).sum(0), (x @ y).softmax(1)

    x, y = torch.randn(64, 80), torch.randn(80, 96)
    for run in (split, folded):
        assert "matmul" in kernels(run, x, y)
        for mine, other in zip(torch.compile(run, backend="mlirc", options=STRICT)(x, y), run(x, y), strict=True):
            torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)


def test_a_batch_of_products_and_small_ones_are_the_librarys():
    def run(x, y, z):
        return torch.bmm(x, y), z @ z.t()

    x, y, z = torch.randn(3, 64, 64), torch.randn(3, 64, 64), torch.randn(8, 64)
    assert kernels(run, x, y, z) == []
