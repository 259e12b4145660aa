"""What kernels save by knowing that x - max(x) is at most 0 and a softmax's sum at least 1; and points that take turns."""

import itertools
import math

import pytest
import torch

from mlirc.lowering.cpu.loops.interleaving import interleaved
from mlirc.lowering.cpu.math import exp as vector_math_exp
from tests.kernel_runner import NativeKernel, info
from tests.lowering.cpu.emitter.test_emitter import softmax
from tests.lowering.cpu.math.test_vector_math import assert_close
from tests.vector_kernel import elementwise

f32 = torch.float32
INF, NAN = math.inf, math.nan


@pytest.mark.parametrize("lanes", [16, 8, 1])
def test_exp_of_at_most_zero(lanes):
    tiny = torch.tensor([-0.0, 0.0, -1e-45, -INF, NAN, -3e38, -104.0, -103.9])
    x = torch.cat([tiny, tiny, -torch.rand(1 << 16) * 110, -torch.rand(1 << 16), -torch.logspace(-30, 1, 1024)])
    power = elementwise(vector_math_exp.exp_of_at_most_zero, [f32], f32, lanes)
    got = power(x)
    assert_close(got, x.double().exp(), x.exp())
    # a NaN of any bits stays one, whatever they would be as an exponent
    patterns = torch.tensor([0x7F800001, 0x7FC00000, 0x7FFFFFFF, -0x400000, -1, 0x7F812345, 0x7FC001FF, -0x3FFE01])
    assert power(patterns.to(torch.int32).view(f32).repeat(2)).isnan().all()


def test_gelu():
    """About as good as eager, or better, in the mean of any stretch of numbers; special values as its definition has them."""
    kernel = NativeKernel(
        [info(f32, "8192")], "8192", "", lambda k, x: [(k.gelu(k.read(x, k.dims)), k.dims, info(f32, "8192"))]
    )
    out = torch.empty(8192)
    ends = [-1e4, -20.0, -5.6, -5.0, -3.0, -1.2, -0.4, -1e-3, 0.0, 1e-3, 0.4, 1.2, 3.0, 5.0, 5.6, 20.0]
    for low, high in itertools.pairwise(ends):
        x = torch.empty(8192).uniform_(low, high)
        kernel([x], [out])
        exact, eager = x.double() * torch.special.ndtr(x.double()), torch.nn.functional.gelu(x)
        most = 1.6 if abs(low + high) > 10 else 1.2  # beyond 5 all but 1e-7 of Phi is 0 or 1
        assert (out - exact).norm() <= most * (eager - exact).norm()
    x = torch.zeros(8192)
    special = torch.tensor([INF, -INF, NAN, -NAN, -0.0, 0.0, 1e-45, -1e-45, 3e38, -3e38, -5.6, 5.6, -1e30])
    x[: len(special)] = special
    kernel([x], [out])
    exact = x.double() * torch.special.ndtr(x.double())  # eager's own infinity is NaN with AVX-512 in torch 2.11
    torch.testing.assert_close(out, exact.float(), rtol=2e-7, atol=1e-7, equal_nan=True)
    assert out[4].signbit() and not out[5].signbit()
    grid = torch.cat([(torch.arange(1, n) - 0.5) * (5.6 / (n - 1)) for n in (8, 16)])  # where the intervals meet
    x = (grid.view(torch.int32)[:, None] + torch.arange(-90, 90, dtype=torch.int32)).view(f32).flatten()
    x = torch.cat([x, -x, torch.zeros(8192 - 2 * len(x))])
    kernel([x], [out])
    assert ((out - x.double() * torch.special.ndtr(x.double())).abs() <= 1.2e-7 * (1 + x.abs())).all()


def test_gradient_of_gelu():
    x, y = torch.randn(8192), torch.randn(8192) * 3
    y[:6] = torch.tensor([-INF, NAN, -0.0, 1e30, -30.0, 5.6])
    place = info(f32, "8192")
    kernel = NativeKernel(
        [place, place],
        "8192",
        "",
        lambda k, x, y: [(k.gelu_backward(k.read(x, k.dims), k.read(y, k.dims)), k.dims, place)],
    )
    out, eager = torch.empty(8192), torch.ops.aten.gelu_backward(x, y)
    kernel([x, y], [out])
    torch.testing.assert_close(out, eager, rtol=1e-6, atol=1e-6, equal_nan=True)
    exact = torch.ops.aten.gelu_backward(x.double(), y.double())
    assert (out - exact)[6:].norm() <= 1.2 * (eager - exact)[6:].norm()


ROWS = {
    "a mask": [-INF] * 50 + [0.0] * 46,
    "all masked": [-INF] * 96,
    "inf": [INF] + [0.0] * 95,
    "NaN": [1.0] * 50 + [NAN] + [2.0] * 45,
    "far apart": [100.0 - 1.25 * k for k in range(96)],  # down to less than the smallest number
    "equal": [3e38] * 96,
}


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS.keys())
def test_softmax_without_division(row):
    x = torch.tensor([row, list(reversed(row))])
    kernel = NativeKernel([info(f32, "2, 96")], "2", "96", softmax)
    out = torch.empty(2, 96)
    kernel([x], [out])
    torch.testing.assert_close(out, x.double().softmax(-1).float(), rtol=5e-7, atol=2e-45, equal_nan=True)


def test_softmax_is_as_accurate_as_eager():
    x = torch.randn(64, 3072) * 4
    kernel = NativeKernel([info(f32, "64, 3072")], "64", "3072", softmax)
    out, exact = torch.empty_like(x), x.double().softmax(-1)
    kernel([x], [out])
    assert (out - exact).norm() <= 2 * (x.softmax(-1) - exact).norm()


def divisions(build) -> int:
    """Of vectors."""
    kernel = NativeKernel([info(f32, "4, 96")], "4", "96", build)
    return sum("arith.divf" in line and "vector" in line for line in kernel.mlir.splitlines())


def test_only_a_sum_of_exponentials_has_a_known_reciprocal():
    def other_sum(k, x):
        a = k.read(x, k.dims)
        return [(k.div(a, k.reduce("sum", a)), k.dims, info(f32, "4, 96"))]

    def other_power(k, x):
        e = k.exp(k.read(x, k.dims))
        return [(k.div(e, k.reduce("sum", e)), k.dims, info(f32, "4, 96"))]

    assert divisions(softmax) == 0
    assert divisions(other_sum) > 0
    assert divisions(other_power) > 0


def test_points_take_turns_and_regions_stay_whole():
    first = ["%a = load", "scf.if %c {", "scf.if %d {", "call", "}", "} else {", "other", "}", "store %a"]
    second = ["%b = load", "store %b"]
    assert interleaved([first, second]) == ["%a = load", "%b = load", *first[1:8], "store %b", "store %a"]
