"""`_int_mm` of a few rows: the kernel in every width of vectors, exact, and what becomes one."""

import pytest
import torch

import mlirc
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info

int_mm = torch.ops.aten._int_mm
pytestmark = pytest.mark.thinned

I8, I32 = torch.int8, torch.int32
WIDTHS = [width for width in (64, 32, 16) if width <= host_cpu().vector_bytes]


def check(x: torch.Tensor, w: torch.Tensor, vector_bytes: int = 0, threads: int = 1) -> None:
    """x @ w.t() + b in 32 bits, which wrap."""
    (m, k), n = x.shape, len(w)

    def build(kernel, x, w, b):
        row, column, step = kernel.dims
        factors = [kernel.cast(kernel.read(y, (at, step)), I32) for y, at in ((x, row), (w, column))]
        total = kernel.add(kernel.reduce("sum", kernel.mul(*factors)), kernel.read(b, (column,)))
        return [(total, (row, column), info(I32, f"{m}, {n}"))]

    inputs = [info(I8, f"{m}, {k}"), info(I8, f"{n}, {k}"), info(I32, f"{n}")]
    kernel = NativeKernel(inputs, f"{m}, {n}", f"{k}", build, vector_bytes)
    assert "pmadd" in kernel.mlir
    b, out = torch.randint(-99, 99, (n,), dtype=I32), torch.empty(m, n, dtype=I32)
    kernel([x, w, b], [out], threads=threads)
    assert torch.equal(out, (x.long() @ w.t().long() + b).to(I32))


def random(*shape: int) -> torch.Tensor:
    return torch.randint(-128, 128, shape, dtype=I8)


@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("m", range(1, 9))
def test_rows_and_widths(m, vector_bytes):
    check(random(m, 160 if vector_bytes < 64 else 192), random(37, 160 if vector_bytes < 64 else 192), vector_bytes)


@pytest.mark.parametrize("vector_bytes", WIDTHS)
def test_the_lowest_numbers(vector_bytes):
    """-128 * -128, twice, and so many of them that the sum wraps."""
    lowest = torch.full((2, 1 << 17), -128, dtype=I8)
    check(lowest[:, :64].contiguous(), lowest[:, :64].contiguous(), vector_bytes)
    check(lowest[:1], lowest, vector_bytes)


def test_threads_share_a_large_weight():
    check(random(2, 1024), random(1100, 1024), threads=3)


# ---- forms of models


def product(x, w):
    return int_mm(x, w.t())


def dynamic(x, w, scale, bias):
    """Rows are quantised as they come."""
    largest = x.abs().amax(1, keepdim=True) / 127
    q = (x / largest).round().clamp(-127, 127).to(I8)
    total = int_mm(q, w.t()) if x.dtype != torch.float64 else q.double() @ w.t().double()
    return total.to(x.dtype) * largest * scale + bias


def rules(f, *given) -> list[str]:
    torch._dynamo.reset()
    (graph,) = mlirc.explain(f, options={"fallback": "error"})(*given).data["graphs"]
    found = [entry["rule"] for entry in graph["ledger"] if entry["pass_name"] == "generate-quantised-matmuls"]
    assert ("aten._int_mm.default" in graph["aten"]) == (found != ["INTEGERS"])
    return found


def compiled(f, *given):
    torch._dynamo.reset()
    return torch.compile(f, backend="mlirc", options={"fallback": "error"}, dynamic=False)(*given)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("m", [1, 5, 8])
def test_rows_that_are_quantised_as_they_come(m, dtype):
    torch.manual_seed(0)
    given = torch.randn(m, 128).to(dtype), random(70, 128), torch.rand(70).to(dtype), torch.randn(70).to(dtype)
    exact = dynamic(*(y.double() if y.is_floating_point() else y for y in given))
    out, eager = compiled(dynamic, *given), dynamic(*given)
    assert out.dtype == eager.dtype and out.stride() == eager.stride()
    assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-6 * exact.norm()
    assert rules(dynamic, *given) == ["INTEGERS"]


def test_what_is_left_to_the_library():
    x, w = random(3, 128), random(24, 128)
    assert rules(product, random(9, 128), w) == ["MANY ROWS"]
    assert rules(product, random(3, 104), random(24, 104)) == ["SPANS"]
    assert rules(int_mm, x, w.t().contiguous()) == ["PACKED"]
    wide = random(3, 300)
    assert rules(product, wide[:, 7:135], w) == ["INTEGERS"]
    for given in ((x, w), (random(9, 128), w), (wide[:, 7:135], w), (random(128, 3).t(), w)):
        out, eager = compiled(product, *given), product(*given)
        assert torch.equal(out, eager) and out.stride() == eager.stride()


def test_a_weight_that_the_graph_writes():
    def written(x, w):
        out = product(x, w)
        w.add_(1)
        return out

    x, w = random(2, 64), random(24, 64)
    mine, eager = w.clone(), w.clone()
    assert torch.equal(compiled(written, x, mine), written(x, eager)) and torch.equal(mine, eager)
