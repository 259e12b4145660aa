"""Generated matrix products: the kernel against float64, and packed weights against changes of the parameters."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from mlirc.dialects.core.tensor_types import TensorInfo
from mlirc.dialects.ops.movement.panels import Panels, panel_map
from tests.kernel_runner import NativeKernel, info

pytestmark = pytest.mark.thinned

STRICT = {"fallback": "error"}


def product(m: int, n: int, k: int, symbolic: bool, stride: str | None = None, vector_bytes: int = 0):
    """gelu(x @ w + b) as a native kernel over panels of w."""
    rows = "s0" if symbolic else str(m)
    x, b, out = (info(torch.float32, shape) for shape in (f"{rows}, {k}", f"{n}", f"{rows}, {n}"))
    if stride is not None:
        x = info(torch.float32, f"{rows}, {k}", stride)
    panels = TensorInfo(torch.float32, (-(-n // 32), k, 32))

    def build(kernel, x, w, b):
        row, column, at = kernel.dims
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, at)), kernel.read(w, panel_map(at, column))))
        return [(kernel.gelu(kernel.add(total, kernel.read(b, (column,)))), (row, column), out)]

    return NativeKernel([x, panels, b], f"{rows}, {n}", f"{k}", build, vector_bytes)


def check(kernel, x, n, threads, **symbols):
    k = x.shape[1]
    w, b = torch.randn(k, n), torch.randn(n)
    out = torch.full((x.shape[0], n), float("nan"))
    kernel([x, Panels.reference(w), b], [out], threads=threads, **symbols)
    exact = nn.functional.gelu(x.double() @ w.double() + b.double())
    eager = nn.functional.gelu(torch.addmm(b, x, w))
    limit = 2 * (eager - exact).norm() + 1e-6 * exact.norm()
    assert (out - exact).norm() <= limit


@settings(max_examples=12, deadline=None)
@given(
    m=st.sampled_from([1, 2, 3, 7, 13, 14, 15, 29, 64]),
    n=st.sampled_from([1, 10, 31, 32, 33, 100, 300]),
    k=st.sampled_from([1, 2, 5, 33, 255, 257, 600, 1024, 1500]),
    threads=st.integers(1, 3),
)
def test_any_size(m, n, k, threads):
    torch.manual_seed(m + n + k)
    check(product(m, n, k, symbolic=False), torch.randn(m, k), n, threads)


def test_one_kernel_for_all_numbers_of_rows():
    kernel = product(0, 70, 96, symbolic=True)
    for m in (0, 1, 5, 13, 14, 27, 28, 61):
        check(kernel, torch.randn(m, 96), 70, 2, s0=m)


@pytest.mark.parametrize("stride", ["1, 20", "2048, 1", "2048, 2"])
def test_rows_of_any_stride(stride):
    """Rows a power of two apart, and transposed ones, are packed first."""
    steps = tuple(int(s) for s in stride.split(","))
    x = torch.randn(20 * 2048 + 2048).as_strided((20, 64), steps)
    check(product(20, 64, 64, symbolic=False, stride=stride), x, 64, 2)


def test_narrower_vectors():
    check(product(20, 70, 50, symbolic=False, vector_bytes=32), torch.randn(20, 50), 70, 2)


# ---- packed parameters


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(48, 70), nn.ReLU(), nn.Linear(70, 10))


def agree(ours, eager, x):
    torch.testing.assert_close(ours(x), eager(x), rtol=1e-4, atol=1e-5)


def test_a_changed_parameter_is_packed_again():
    eager = model()
    ours, x = torch.compile(eager, backend="mlirc", options=STRICT), torch.randn(9, 48)
    with torch.no_grad():
        agree(ours, eager, x)
        eager[0].weight.mul_(2)
        agree(ours, eager, x)
        eager[2].weight.data = torch.randn(10, 70)
        agree(ours, eager, x)
        eager.load_state_dict(model().state_dict())
        agree(ours, eager, x)


def test_a_parameter_in_place_of_one_that_was_freed():
    eager = model()
    ours, x = torch.compile(eager, backend="mlirc", options=STRICT), torch.randn(9, 48)
    with torch.no_grad():
        for seed in range(3):
            agree(ours, eager, x)
            shape = eager[0].weight.shape
            eager[0].weight = None  # the next one of this size may get its address
            torch.manual_seed(seed)
            eager[0].weight = nn.Parameter(torch.randn(shape))


@pytest.mark.parametrize("rows", [1, 9, 200])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_linear_layer_keeps_no_copy_of_its_weight(rows, dtype):
    """So that a change is seen which PyTorch does not count."""
    eager = model().to(dtype)
    ours, x = torch.compile(eager, backend="mlirc", options=STRICT), torch.randn(rows, 48, dtype=dtype)
    close = {"rtol": 1e-4, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 0.05, "atol": 0.05}
    with torch.no_grad():
        torch.testing.assert_close(ours(x), eager(x), **close)
        eager[0].weight.data.mul_(4)
        torch.testing.assert_close(ours(x), eager(x), **close)


def test_rows_that_are_packed_in_several_parts():
    """Threads go through the columns once for each part of the rows, by tickets that go on from part to part."""
    layer = nn.Linear(1000, 100)
    ours = torch.compile(layer, backend="mlirc", options=STRICT, dynamic=True)
    before = torch.get_num_threads()
    try:
        with torch.no_grad():
            for threads in (1, 2, 3):
                torch.set_num_threads(threads)
                for rows in (9, 191, 193, 450):
                    x = torch.randn(rows, 1000)
                    exact = nn.functional.linear(x.double(), layer.weight.double(), layer.bias.double())
                    torch.testing.assert_close(ours(x).double(), exact, rtol=1e-5, atol=1e-5)
    finally:
        torch.set_num_threads(before)


def test_few_rows_by_a_weight_that_lies_the_other_way():
    """GPT-2's layers hold [K, N]: packed once, and anew when the weight has changed."""
    weight, bias = nn.Parameter(torch.randn(48, 70)), torch.randn(70)

    def run(x):
        return torch.addmm(bias, x, weight)

    ours = torch.compile(run, backend="mlirc", options=STRICT)
    with torch.no_grad():
        for rows in (1, 9, 64):
            x = torch.randn(rows, 48)
            agree(ours, run, x)
            weight.mul_(2)
            agree(ours, run, x)


def test_an_optimizer_between_calls():
    eager = model()
    ours, x = torch.compile(eager, backend="mlirc", options=STRICT), torch.randn(9, 48)
    optimizer = torch.optim.SGD(eager.parameters(), lr=0.1)
    for _ in range(3):
        eager(x).square().sum().backward()
        optimizer.step()
        with torch.no_grad():
            agree(ours, eager, x)


def test_inference_tensors_are_never_kept():
    with torch.inference_mode():
        eager = model()
        ours, x = torch.compile(eager, backend="mlirc", options=STRICT), torch.randn(9, 48)
        agree(ours, eager, x)
        eager[0].weight.mul_(3)
        agree(ours, eager, x)


def test_two_models_share_a_compiled_graph():
    first, second = model(), model()

    def run(m, x):
        return m(x)

    ours, x = torch.compile(run, backend="mlirc", options=STRICT, dynamic=True), torch.randn(9, 48)
    with torch.no_grad():
        for m in (first, second, first):
            torch.testing.assert_close(ours(m, x), m(x), rtol=1e-4, atol=1e-5)


def test_a_weight_that_the_graph_changes():
    layer = nn.Linear(40, 40)

    def run(x):
        y = layer(x)
        layer.weight.mul_(0.5)
        return y

    other = nn.Linear(40, 40)
    other.load_state_dict(layer.state_dict())
    ours, x = torch.compile(run, backend="mlirc", options=STRICT), torch.randn(5, 40)
    with torch.no_grad():
        for step in range(3):
            expected = nn.functional.linear(x, other.weight * 0.5**step, other.bias)
            torch.testing.assert_close(ours(x), expected, rtol=1e-4, atol=1e-5)
