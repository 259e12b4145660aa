"""Generated products of bfloat16: kernels over both kinds of panels against float64, and whole graphs."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import mlirc
from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.ops.movement.pair_panels import PairPanels, pair_panel_map
from mlirc.dialects.ops.movement.panels import Panels, panel_map
from mlirc.lowering.host import OVERRIDE, host_cpu
from tests.kernel_runner import NativeKernel, info

pytestmark = pytest.mark.thinned

BF16 = torch.bfloat16
STRICT = {"fallback": "error"}
KINDS = ("pairs", "plain", "in place")


def product(
    kind: str, m: int | str, n: int, k: int, stride: str | None = None, vector_bytes: int = 0, then="gelu"
) -> NativeKernel:
    """gelu(x @ w + b) over panels of w, or over w[k, n] that lies along k; or relu."""
    x, b, out = info(BF16, f"{m}, {k}", stride), info(BF16, f"{n}"), info(BF16, f"{m}, {n}")
    shape = (-(-n // 32), -(-k // 2), 32, 2) if kind == "pairs" else (-(-n // 32), k, 32)
    index = {"pairs": pair_panel_map, "plain": panel_map, "in place": lambda k, n: (k, n)}[kind]
    w = info(BF16, f"{k}, {n}", f"1, {k}") if kind == "in place" else TensorInfo(BF16, shape)

    def build(kernel, x, w, b):
        row, column, at = kernel.dims
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, at)), kernel.read(w, index(at, column))))
        return [(getattr(kernel, then)(kernel.add(total, kernel.read(b, (column,)))), (row, column), out)]

    return NativeKernel([x, w, b], f"{m}, {n}", f"{k}", build, vector_bytes)


def packed(kind: str, w: torch.Tensor) -> torch.Tensor:
    if kind == "in place":
        return w.t().contiguous().t()
    return (PairPanels if kind == "pairs" else Panels).reference(w)


def check(kernel: NativeKernel, kind: str, x: torch.Tensor, n: int, threads: int = 2, **symbols: int) -> None:
    w, b = torch.randn(x.shape[1], n, dtype=BF16), torch.randn(n, dtype=BF16)
    out = torch.full((x.shape[0], n), float("nan"), dtype=BF16)
    kernel([x, packed(kind, w), b], [out], threads=threads, **symbols)
    exact = F.gelu(x.double() @ w.double() + b.double())
    eager = F.gelu(torch.addmm(b, x, w))
    assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-3 * exact.norm()


@settings(max_examples=10, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    m=st.sampled_from([1, 2, 3, 7, 13, 14, 15, 29, 64]),
    n=st.sampled_from([1, 10, 31, 32, 33, 100, 300]),
    k=st.sampled_from([1, 2, 3, 5, 33, 255, 257, 600]),
    threads=st.integers(1, 3),
)
def test_any_size(kind, m, n, k, threads):
    torch.manual_seed(m + n + k)
    check(product(kind, m, n, k), kind, torch.randn(m, k, dtype=BF16), n, threads)


@pytest.mark.parametrize("kind", KINDS)
def test_one_kernel_for_all_numbers_of_rows(kind):
    kernel = product(kind, "s0", 70, 96)
    for m in (0, 1, 5, 13, 14, 27, 28, 61):
        check(kernel, kind, torch.randn(m, 96, dtype=BF16), 70, s0=m)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("stride", ["1, 20", "2048, 1", "2048, 2", "67, 1"])
@pytest.mark.parametrize("k", [64, 65])
def test_rows_of_any_stride(kind, stride, k):
    """Transposed rows, rows a power of two apart, and pairs that begin at any element."""
    x = torch.randn(20 * 2048 + 2048, dtype=BF16).as_strided((20, k), tuple(map(int, stride.split(", "))), 1)
    check(product(kind, 20, 64, k, stride), kind, x, 64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("vector_bytes", [16, 32])
def test_narrower_vectors(kind, vector_bytes):
    """No such processor multiplies pairs: a kernel over them is then a plain reduction."""
    check(product(kind, 20, 70, 50, vector_bytes=vector_bytes), kind, torch.randn(20, 50, dtype=BF16), 70)


def test_the_instruction_is_used():
    """Without it the product would only be slow."""
    if host_cpu().bf16_pairs:
        for kind, rows in (("pairs", 4), ("in place", 4), ("in place", 40)):
            assert "dpbf16ps" in product(kind, rows, 64, 64).mlir
    assert "dpbf16ps" not in product("pairs", 4, 64, 64, vector_bytes=32).mlir


@pytest.mark.parametrize("kind", KINDS)
def test_special_numbers(kind):
    inf, nan = float("inf"), float("nan")
    x = torch.zeros(4, 64, dtype=BF16)
    x[0, 3], x[1, 5], x[2, 7], x[3, 9] = inf, nan, 3.0e38, -0.0
    w = torch.ones(64, 40, dtype=BF16)
    w[7] = 100.0
    out, b = torch.zeros(4, 40, dtype=BF16), torch.zeros(40, dtype=BF16)
    product(kind, 4, 40, 64, then="relu")([x, packed(kind, w), b], [out])
    torch.testing.assert_close(out, torch.addmm(b, x, w).relu(), rtol=0, atol=0, equal_nan=True)


def test_subnormal_factors_are_zero_as_in_eager():
    x, w = torch.full((4, 64), 2.0**-130, dtype=BF16), torch.full((64, 40), 2.0**20, dtype=BF16)
    out, b = torch.ones(4, 40, dtype=BF16), torch.zeros(40, dtype=BF16)
    product("pairs", 4, 40, 64, then="relu")([x, packed("pairs", w), b], [out])
    assert torch.equal(out, torch.addmm(b, x, w).relu())


# ---- whole graphs


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, width: int = 96, hidden: int = 130):
        super().__init__()
        self.up, self.down, self.norm = nn.Linear(width, hidden), nn.Linear(hidden, width), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x + self.down(F.gelu(self.up(x))))


def agrees(ours, model: nn.Module, x: torch.Tensor) -> None:
    with torch.no_grad():
        made, eager = ours(x), model(x)
        exact = model.double()(x.double())
        model.to(BF16)
    assert made.dtype == eager.dtype and made.stride() == eager.stride()
    assert (made - exact).norm() <= 2 * (eager - exact).norm()


@pytest.mark.parametrize("width", ["", "32"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_block(monkeypatch, width, dynamic):
    if width:
        monkeypatch.setenv(OVERRIDE, width)
    model = Block().to(BF16)
    ours = torch.compile(model, backend="mlirc", options=STRICT, dynamic=dynamic)
    for rows in (9, 14, 1):
        agrees(ours, model, torch.randn(2, rows, 96, dtype=BF16))


def test_no_product_is_a_library_call():
    model = Block().to(BF16)
    with torch.no_grad():
        data = mlirc.explain(model)(torch.randn(14, 96, dtype=BF16)).data
    assert not data["graphs"][0]["aten"]


def test_a_changed_parameter_is_packed_again():
    model = Block().to(BF16)
    ours, x = torch.compile(model, backend="mlirc", options=STRICT), torch.randn(9, 96, dtype=BF16)
    with torch.no_grad():
        before = ours(x)
        model.up.weight.mul_(2)
        torch.testing.assert_close(ours(x), model(x), rtol=0.05, atol=0.05)
        assert not torch.equal(before, ours(x))
