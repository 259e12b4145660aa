"""Kernels that write half types only call faster functions; any other kernel the exact ones."""

import pytest
import torch

from mlirc.dialects.core.dialect import OPS
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel

bf16, f32 = torch.bfloat16, torch.float32


def kernel(out: torch.dtype, build) -> TritonKernel:
    return TritonKernel(
        [info(bf16, "3000")], "3000", "", lambda k, x: [(build(k, k.read(x, k.dims)), k.dims, info(out, "3000"))]
    )


def gelu(k, x):
    return k.mul(x, k.add(k.erf(k.mul(x, 0.7071)), 1.0))


def quotient(k, x):
    return k.div(k.exp(x), k.sqrt(k.add(k.exp(k.neg(x)), 1.0)))


@pytest.mark.parametrize(
    ("build", "names"), [(gelu, ["libdevice.erf("]), (quotient, ["tl.div_rn(", "tl.sqrt_rn(", "libdevice.exp("])]
)
def test_exact_where_float32_is_written(build, names):
    assert all(name in kernel(f32, build).source for name in names)
    assert not any(name in kernel(bf16, build).source for name in names)


def test_a_small_erf_stays_exact():
    assert "libdevice.erf(" in kernel(bf16, lambda k, x: k.mul(k.erf(x), 2.0)).source


def test_gelu_is_as_exact_far_below_zero():
    """Where an erf beside 1 has nothing left: the error is relative."""
    kernel_ = kernel(bf16, lambda k, x: k.gelu(x))
    assert "gelu_rounded(" in kernel_.source and "erf" not in kernel_.source
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 80.0, 1e-30, -1e-30])
    x = torch.cat([special, torch.linspace(-8, 11, 2992)]).bfloat16()
    out = torch.empty(3000, dtype=bf16)
    kernel_([x], [out])
    want = x.double() * 0.5 * torch.special.erfc(x.double() * -(0.5**0.5))
    torch.testing.assert_close(out.double(), want, rtol=2**-8, atol=1e-25, equal_nan=True)
    assert out[:2].signbit().tolist() == [False, True]


def test_tanh_is_exact_near_zero():
    """The error is relative."""
    kernel_ = kernel(bf16, lambda k, x: k.apply(OPS["tanh"], x))
    assert "tanh_rounded(" in kernel_.source and "libdevice.tanh" not in kernel_.source
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 3e38, -3e38, 1e-30, -1e-30])
    x = torch.cat([special, torch.logspace(-6, 2, 1496), -torch.logspace(-6, 2, 1495)]).bfloat16()
    out = torch.empty(3000, dtype=bf16)
    kernel_([x], [out])
    torch.testing.assert_close(out.double(), x.double().tanh(), rtol=2**-8, atol=0.0, equal_nan=True)
    assert out[:2].signbit().tolist() == [False, True]


def test_the_gradient_of_gelu():
    kernel_ = kernel(bf16, lambda k, x: k.apply(OPS["gelu_backward"], k.constant(3.0, f32), x))
    assert "gelu_backward_rounded(" in kernel_.source and "erf" not in kernel_.source
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 80.0, -80.0, 1e-30, 1e30, -1e30])
    x = torch.cat([special, torch.linspace(-8, 11, 2990)]).bfloat16()
    out = torch.empty(3000, dtype=bf16)
    kernel_([x], [out])
    want = torch.ops.aten.gelu_backward(torch.full_like(x, 3.0).double(), x.double())
    torch.testing.assert_close(out.double(), want, rtol=2**-8, atol=1e-6, equal_nan=True)


@pytest.mark.parametrize("build", [gelu, quotient])
def test_error_is_gone_with_the_rounding(build):
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-30, -1e-30, 80.0, -80.0])
    x = torch.cat([special, torch.randn(3000 - 9) * 3]).bfloat16()
    kernel(bf16, build).check(x, rtol=2**-7, atol=1e-6)


@pytest.mark.parametrize("name", ["sigmoid", "silu", "silu_backward"])
def test_sigmoids_are_exact_far_below_zero(name):
    """The error is relative, also where the exponential is nearly infinite; beyond, results may be 0, as eager's are."""
    operands = (lambda k, x: (k.constant(3.0, f32), x)) if name == "silu_backward" else (lambda k, x: (x,))
    kernel_ = kernel(bf16, lambda k, x: k.apply(OPS[name], *operands(k, x)))
    assert f"{name}_rounded(" in kernel_.source
    special = torch.tensor([0.0, -0.0, float("inf"), -float("inf"), float("nan"), 1e-36, -1e-36, 3e38, -3e38, -200.0])
    x = torch.cat([special, torch.linspace(-88.5, 88.5, 2000), torch.linspace(-4, 4, 990)]).bfloat16()
    out = torch.empty(3000, dtype=bf16)
    kernel_([x], [out])
    wide, ops = x.float(), torch.ops.aten
    want = ops.silu_backward(torch.full_like(wide, 3.0), wide) if name == "silu_backward" else getattr(ops, name)(wide)
    near = x.double()[10:]
    exact = (
        near.sigmoid()
        * {"sigmoid": 1.0, "silu": near, "silu_backward": 3.0 * (1.0 + near * near.neg().sigmoid())}[name]
    )
    torch.testing.assert_close(out[:10].float(), want[:10], rtol=2**-7, atol=0.0, equal_nan=True)
    assert ((out[:10].signbit() == want[:10].signbit()) | want[:10].isnan()).all()
    # near its own zero at -1.28 silu's gradient is the small difference of large terms
    torch.testing.assert_close(out[10:].double(), exact, rtol=2**-8, atol=1e-7 if name == "silu_backward" else 0.0)
