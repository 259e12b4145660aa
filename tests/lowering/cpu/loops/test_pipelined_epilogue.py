"""A row's last pass in the next row's loop: the same results for any number of rows and threads, any length, in place."""

import re

import pytest
import torch

from tests.kernel_runner import NativeKernel, info
from tests.lowering.cpu.emitter.test_emitter import softmax

f32, bf16 = torch.float32, torch.bfloat16


def is_behind(kernel) -> bool:
    """Whether a loop over a row begins with what is done only if a row came before."""
    return re.search(r"scf\.for[^\n]*\{\n\s*scf\.if", kernel.mlir) is not None


def of(rows: int, width: int, build=softmax, dtype=f32, *more) -> NativeKernel:
    return NativeKernel([info(dtype, f"{rows}, {width}"), *more], str(rows), str(width), build)


@pytest.mark.parametrize(("rows", "width"), [(67, 1024), (1, 1024), (9, 3000), (301, 77), (5, 8192)])
def test_softmax(rows, width):
    kernel = of(rows, width)
    assert is_behind(kernel) == (rows > 1 and width < 8192)  # one row is shared by threads, 32 KB are no scratch memory
    kernel.check(torch.randn(rows, width), threads=(1, 2, 5), rtol=1e-5, atol=1e-7)


def test_half_types():
    kernel = of(66, 1024, dtype=bf16)
    assert is_behind(kernel)
    kernel.check(torch.randn(66, 1024).bfloat16(), rtol=1e-2, atol=1e-6)


def norm(k, x, weight, scale):
    """As gelu, addition and layer norm: kept values, two sums of them, a number of each row that is read late, one written."""
    a = k.exp(k.read(x, k.dims))
    mean = k.div(k.reduce("sum", a), 999.0)
    centered = k.sub(a, mean)
    spread = k.reduce("sum", k.mul(centered, centered))
    y = k.mul(k.mul(centered, k.rsqrt(spread)), k.mul(k.read(weight, k.inner_dims), k.read(scale, k.dims[:1])))
    return [(y, k.dims, info(f32, "78, 999")), (k.add(mean, spread), k.dims[:1], info(f32, "78"))]


def norm_kernel() -> NativeKernel:
    return of(78, 999, norm, f32, info(f32, "999"), info(f32, "78"))


def test_what_only_the_last_pass_reads():
    given = [torch.randn(78, 999), torch.randn(999), torch.randn(78)]
    kernel = norm_kernel()
    assert not is_behind(kernel)  # the numbers may be written where those of the rows are read
    kernel.check(*given, threads=(1, 2, 3), rtol=1e-4, atol=1e-6)
    out, numbers = torch.empty(78, 999), torch.empty(78)
    kernel(given, [out, numbers])
    again = torch.empty(78, 999)
    kernel(given, [again, given[2]])
    assert torch.equal(again, out) and torch.equal(given[2], numbers)


def norm_alone(k, x, weight, scale):
    return norm(k, x, weight, scale)[:1]


def test_norm_and_in_place():
    kernel = of(78, 999, norm_alone, f32, info(f32, "999"), info(f32, "78"))
    assert is_behind(kernel)
    x, *others = torch.randn(78, 999), torch.randn(999), torch.randn(78)
    kernel.check(x, *others, threads=(1, 2, 3), rtol=1e-4, atol=1e-6)
    first, second = torch.empty(78, 999), torch.empty(78, 999)
    kernel([x, *others], [first])
    kernel([x, *others], [second], threads=7)
    kernel([x, *others], [x], threads=2)
    assert torch.equal(first, second) and torch.equal(first, x)


def test_nan_and_infinity_stay_in_their_rows():
    x = torch.randn(9, 1024)
    x[2, 700], x[4] = torch.nan, -torch.inf
    x[7, 3] = torch.inf
    kernel = of(9, 1024)
    out = torch.empty_like(x)
    kernel([x], [out], threads=2)
    assert out.isnan().any(1).tolist() == [k in (2, 4, 7) for k in range(9)]
    torch.testing.assert_close(out, x.softmax(1), equal_nan=True)


def test_what_costs_nothing_to_compute_again_waits_for_nothing():
    def centered(k, x):
        a = k.read(x, k.dims)
        return [(k.sub(a, k.reduce("sum", a)), k.dims, info(f32, "50, 1024"))]

    assert not is_behind(of(50, 1024, centered))
