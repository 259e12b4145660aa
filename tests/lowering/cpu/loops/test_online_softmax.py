"""A row's maximum and its sum of exponentials in one pass, and products that are summed unrounded."""

import math

import pytest
import torch

from mlirc.lowering.cpu.math import exp as vector_math_exp
from mlirc.lowering.cpu.math.builder import MlirFunctionText, VectorBuilder
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info
from tests.vector_kernel import elementwise

f32 = torch.float32
INF, NAN = math.inf, math.nan


def joined(lanes: int = 8) -> bool:
    """Whether this machine picks numbers out of a table, without which there are two passes."""
    return vector_math_exp.has_factors(VectorBuilder(MlirFunctionText(host_cpu()), [], f32, lanes))


def statistics(k, x):
    a = k.read(x, k.dims)
    largest = k.reduce("max", a)
    place = info(f32, str(k.parallel[0]))
    return [(largest, k.dims[:1], place), (k.reduce("sum", k.exp(k.sub(a, largest))), k.dims[:1], place)]


def expected(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    largest = x.amax(-1)
    return largest, (x.double() - largest.double()[:, None]).exp().sum(-1)


def special_rows(length: int) -> torch.Tensor:
    """Rows whose maximum moves in every way, and comes late; what is no number, anywhere."""
    rows = [torch.randn(length) * scale for scale in (0.0, 1e-3, 1.0, 30.0, 1e30)]
    rows += [torch.arange(length) * step for step in (0.01, 1.0, 50.0, -0.5)]
    rows += [torch.full((length,), value) for value in (INF, -INF, NAN, -3.4e38, 3.4e38, -200.0)]
    for value in (INF, NAN, -NAN, -INF, 90.0, 3e38):
        for at in (0, length // 2, length - 1):
            row = torch.randn(length)
            row[at] = value
            rows.append(row)
            hidden = torch.full((length,), -INF)  # all but one are masked
            hidden[at] = value
            rows.append(hidden)
    both = torch.randn(length)
    both[1], both[-1] = INF, NAN
    return torch.stack([*rows, both, both.flip(0)])


@pytest.mark.parametrize("length", [3, 8, 31, 32, 77, 1024, 1040, 3072])
def test_statistics_of_special_rows(length):
    x = special_rows(length)
    kernel = NativeKernel([info(f32, f"{len(x)}, {length}")], str(len(x)), str(length), statistics)
    largest, total = torch.empty(len(x)), torch.empty(len(x))
    kernel([x], [largest, total])
    exact = expected(x)
    torch.testing.assert_close(largest, exact[0], rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(total.double(), exact[1], rtol=1e-6, atol=0, equal_nan=True)


def test_one_pass_reads_a_row_once():
    kernel = NativeKernel([info(f32, "4, 3072")], "4", "3072", statistics)
    body = kernel.mlir.split("_body(")[1].split("llvm.return")[0]
    # what follows the comparison of the sum with itself looks for NaN again
    assert ("scf.if" in body) == joined()


def test_error_of_a_long_sum():
    x = torch.randn(64, 50257) * torch.linspace(0.1, 6, 64)[:, None]
    kernel = NativeKernel([info(f32, "64, s0")], "64", "s0", statistics)
    largest, total = torch.empty(64), torch.empty(64)
    kernel([x], [largest, total], s0=50257)
    exact = expected(x)[1]
    eager = (x - x.amax(-1, keepdim=True)).exp().sum(-1)
    assert (total - exact).norm() <= 2 * (eager - exact).norm() + 1e-7 * exact.norm()


@pytest.mark.parametrize("lanes", [16, 8])
def test_factors_of_exp(lanes):
    if not joined(lanes):
        pytest.skip("no table of so many numbers on this processor")
    x = torch.cat([-torch.rand(1 << 16) * 87, -torch.logspace(-30, 1, 1024), torch.tensor([0.0, -0.0] * 8)])

    def product(b, x):
        return b.mul(*vector_math_exp.exp_factors(b, x))

    power = elementwise(product, [f32], f32, lanes)
    exact = x.double().exp()
    error = (power(x) - exact).abs() / exact
    assert (error <= 1.5e-7 + 1.5e-8 * x.double().abs()).all()
    assert (power(torch.zeros(lanes)) == 1).all()
    assert power(torch.tensor([NAN, -NAN] * 8)).isnan().all()
    far = power(torch.tensor([-INF, -3e38, -88.0, -1e4] * 4))
    assert ((far >= 0) & (far < 2e-38)).all()


def test_products_are_summed_unrounded():
    """The sum of squares of a row is that of exact squares: nothing is lost that a float32 product would round away."""
    x = 1 + torch.arange(96).repeat(2, 1) * 2.0**-23
    place = info(f32, "2")

    def squares(k, x):
        a = k.read(x, k.dims)
        return [(k.sub(k.reduce("sum", k.mul(a, a)), 96.0), k.dims[:1], place)]

    kernel = NativeKernel([info(f32, "2, 96")], "2", "96", squares)
    assert sum("arith.mulf" in line and "vector" in line for line in kernel.mlir.splitlines()) == 0
    out = torch.empty(2)
    kernel([x], [out])
    exact = (x.double() ** 2).sum(-1) - 96
    torch.testing.assert_close(out.double(), exact, rtol=0, atol=1e-5)
