"""Matmuls of a few rows by quantised weights: the kernel in every width of vectors, against float64."""

import pytest
import torch
from torch import nn

from mlirc.dialects.core.symbols import floordiv, mod
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info

pytestmark = pytest.mark.thinned

U8, F32, BF16 = torch.uint8, torch.float32, torch.bfloat16
NUMBERS = ("", "scale", "zero", "zero scale")
WIDTHS = [width for width in (64, 32, 16) if width <= host_cpu().vector_bytes]  # there is code for AVX-512 alone


def kernel_of(dtype, m, n, k, bits, group, numbers, vector_bytes=0, bytes_=U8) -> NativeKernel:
    """relu(x @ ((q - zero) * scale).t() + b), as the pass writes it."""
    per_group = info(dtype, f"{n}, {k // group}")
    inputs = [info(dtype, f"{m}, {k}"), info(bytes_, f"{n}, {k * bits // 8}"), info(dtype, f"{n}")]
    inputs += [per_group] * len(numbers.split())

    def build(kernel, x, w, b, *more):
        row, column, step = kernel.dims
        q = kernel.read(w, (column, step if bits == 8 else floordiv(step, 2)))
        if bits == 4:
            q = kernel.bitwise_and(kernel.shift_right(q, kernel.cast(kernel.size(mod(step, 2) * 4), U8)), 15)
        factor = kernel.cast(q, F32)
        for name, number in zip(numbers.split(), more, strict=True):
            value = kernel.read(number, (column, floordiv(step, group) if group != k else 0))
            factor = kernel.sub(factor, value) if name == "zero" else kernel.mul(factor, value)
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, step)), factor))
        out = kernel.relu(kernel.add(total, kernel.read(b, (column,))))
        return [(out, (row, column), info(dtype, f"{m}, {n}"))]

    return NativeKernel(inputs, f"{m}, {n}", f"{k}", build, vector_bytes)


def check(dtype, m, n, k, bits, group, numbers, vector_bytes=0, bytes_=U8, threads=1) -> str:
    kernel = kernel_of(dtype, m, n, k, bits, group, numbers, vector_bytes, bytes_)
    limits = torch.iinfo(bytes_)
    packed = torch.randint(limits.min, limits.max + 1, (n, k * bits // 8), dtype=bytes_)
    x, b = torch.randn(m, k).to(dtype), torch.randn(n).to(dtype)
    named = {name: torch.randn(n, k // group).to(dtype) for name in numbers.split()}
    q = torch.stack((packed & 15, packed >> 4), -1).reshape(n, k) if bits == 4 else packed
    w = q.double().reshape(n, k // group, group)
    w = w - named["zero"].double()[:, :, None] if "zero" in named else w
    w = (w * named["scale"].double()[:, :, None] if "scale" in named else w).reshape(n, k)
    exact = nn.functional.relu(x.double() @ w.t() + b.double())
    out = torch.full((m, n), float("nan"), dtype=dtype)
    kernel([x, packed, b, *named.values()], [out], threads=threads)
    eager = nn.functional.relu(nn.functional.linear(x, w.to(dtype), b))
    assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-6 * exact.norm()
    return kernel.mlir


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize("vector_bytes", WIDTHS)
def test_numbers_and_widths(bits, numbers, vector_bytes):
    """Symmetric and not, in AVX-512, AVX2 and SSE; columns that no tile divides; what is a group and what is all of k."""
    for group in (32, 192):
        text = check(BF16, 3, 21, 192, bits, group, numbers, vector_bytes)
        assert "vector.reduction" in text or "shuffle" in text
        assert ("permvar" in text) == (bits == 4 and vector_bytes == 64)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("m", range(1, 9))
def test_rows_and_threads(bits, m):
    check(F32, m, 37, 256, bits, 64, "zero scale", threads=2)


@pytest.mark.parametrize("bits, bytes_", [(8, torch.int8), (8, U8), (4, U8)])
def test_work_stealing(bits, bytes_):
    check(BF16, 1, 1100, 2048, bits, 128, "zero scale", bytes_=bytes_, threads=3)


@pytest.mark.parametrize("bits", [8, 4])
@pytest.mark.parametrize("k, group", [(90, 90), (84, 12), (96, 6), (2, 2)])
def test_groups_that_no_vector_divides(bits, k, group):
    """Other code writes these kernels, and is right too."""
    check(F32, 2, 19, k, bits, group, "zero scale")


@pytest.mark.parametrize("bits, zero", [(4, 0.0), (4, 7.9), (8, 0.0), (8, 3.9), (8, 128.0), (8, 240.3)])
@pytest.mark.parametrize("vector_bytes", WIDTHS)
def test_numbers_near_their_zeros(bits, vector_bytes, zero):
    """q - zero is small, zero * scale is not: the error is that of (q - zero) * scale."""
    kernel = kernel_of(F32, 2, 19, 256, bits, 64, "zero scale", vector_bytes)
    x, packed = torch.randn(2, 256), torch.randint(0, 256, (19, 256 * bits // 8), dtype=U8)
    packed = packed if bits == 4 else packed % 8 + int(zero)
    zeros, scales, b = torch.full((19, 4), zero), torch.rand(19, 4), torch.zeros(19)
    q = torch.stack((packed & 15, packed >> 4), -1).reshape(19, 256) if bits == 4 else packed

    def linear(dtype):
        w = (q.to(dtype).reshape(19, 4, 64) - zeros.to(dtype)[:, :, None]) * scales.to(dtype)[:, :, None]
        return nn.functional.relu(nn.functional.linear(x.to(dtype), w.reshape(19, 256)))

    out, exact = torch.full((2, 19), float("nan")), linear(torch.float64)
    kernel([x, packed, b, zeros, scales], [out])
    assert (out - exact).norm() <= 2 * (linear(F32) - exact).norm() + 1e-7 * exact.norm()


@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("bits", [8, 4])
def test_scales_that_are_not_finite(bits, vector_bytes):
    """(q - zero) * inf is an infinity of that sign, and NaN where q is zero."""
    kernel = kernel_of(F32, 1, 19, 64, bits, 64, "zero scale", vector_bytes)
    packed = torch.full((19, 64 * bits // 8), 0x33 if bits == 4 else 3, dtype=U8)
    for zero, expected in ((1.0, torch.inf), (3.0, torch.nan), (5.0, 0.0)):  # of -inf the relu makes 0
        out = torch.full((1, 19), -1.0)
        numbers = [torch.full((19, 1), number) for number in (zero, torch.inf)]
        kernel([torch.ones(1, 64), packed, torch.zeros(19), *numbers], [out])
        torch.testing.assert_close(out, torch.full((1, 19), expected), equal_nan=True)


@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("bits, bytes_", [(4, U8), (4, torch.int8), (8, torch.int8)])
@pytest.mark.parametrize("integer", [None, torch.int8, torch.int32])
def test_orders_of_nibbles_and_zeros_of_integers(bits, bytes_, integer, vector_bytes):
    """The high nibble first; zeros that are subtracted as int8, which wraps, and as int32; a weight that is rounded."""
    torch.manual_seed(0)
    m, n, k, group = 3, 19, 128, 64
    zero_dtype = integer or torch.int8
    inputs = [info(F32, f"{m}, {k}"), info(bytes_, f"{n}, {k * bits // 8}")]
    inputs += [info(zero_dtype, f"{n}, {k // group}"), info(F32, f"{n}, {k // group}")]

    def build(kernel, x, w, zeros, scales):
        row, column, step = kernel.dims
        q = kernel.read(w, (column, step if bits == 8 else floordiv(step, 2)))
        if bits == 4:
            amount = kernel.cast(kernel.size(mod(step + 1, 2) * 4), U8)
            q = kernel.bitwise_and(kernel.shift_right(kernel.cast(q, U8), amount), 15)
        zero = kernel.read(zeros, (column, floordiv(step, group)))
        if integer is None:
            factor = kernel.sub(kernel.cast(q, F32), kernel.cast(zero, F32))
        else:
            factor = kernel.cast(kernel.sub(kernel.cast(q, integer), zero), F32)
        factor = kernel.mul(factor, kernel.read(scales, (column, floordiv(step, group))))
        factor = kernel.cast(kernel.cast(factor, BF16), F32)
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, step)), factor))
        return [(total, (row, column), info(F32, f"{m}, {n}"))]

    kernel = NativeKernel(inputs, f"{m}, {n}", f"{k}", build, vector_bytes)
    limits = torch.iinfo(bytes_)
    packed = torch.randint(limits.min, limits.max + 1, (n, k * bits // 8), dtype=bytes_)
    zeros = torch.randint(-128, 128, (n, k // group)).to(zero_dtype)
    scales, x, out = torch.rand(n, k // group), torch.randn(m, k), torch.empty(m, n)
    kernel([x, packed, zeros, scales], [out])
    byte = packed.view(U8)
    q = torch.stack((byte >> 4, byte & 15), -1).reshape(n, k) if bits == 4 else packed
    q = q.to(integer or F32).reshape(n, -1, group) - zeros.to(integer or F32)[:, :, None]
    w = (q.float() * scales[:, :, None]).to(BF16).double().reshape(n, k)
    assert (out - x.double() @ w.t()).norm() <= 1e-6 * (x.double() @ w.t()).norm()
    assert "vector.reduction" in kernel.mlir or "shuffle" in kernel.mlir


@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("bits", [8, 4])
def test_zeros_of_int64(bits, vector_bytes):
    """Subtracted in 64 bits where they are large, wrapping."""
    torch.manual_seed(0)
    m, n, k = 2, 23, 128
    inputs = [
        info(F32, f"{m}, {k}"),
        info(torch.int8, f"{n}, {k * bits // 8}"),
        info(torch.int64, f"{n}"),
        info(F32, f"{n}"),
    ]

    def build(kernel, x, w, zeros, scales):
        row, column, step = kernel.dims
        q = kernel.read(w, (column, step if bits == 8 else floordiv(step, 2)))
        if bits == 4:
            amount = kernel.cast(kernel.size(mod(step, 2) * 4), U8)
            q = kernel.bitwise_and(kernel.shift_right(kernel.cast(q, U8), amount), 15)
        difference = kernel.sub(kernel.cast(q, torch.int64), kernel.read(zeros, (column,)))
        factor = kernel.mul(kernel.cast(difference, F32), kernel.read(scales, (column,)))
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, step)), factor))
        return [(total, (row, column), info(F32, f"{m}, {n}"))]

    kernel = NativeKernel(inputs, f"{m}, {n}", f"{k}", build, vector_bytes)
    packed = torch.randint(-128, 128, (n, k * bits // 8), dtype=torch.int8)
    zeros = torch.randint(-128, 128, (n,))
    zeros[[3, 9, 22]] = torch.tensor([1 << 31, -(1 << 40), -(1 << 63) + 7])
    scales, x, out = torch.rand(n), torch.randn(m, k), torch.empty(m, n)
    kernel([x, packed, zeros, scales], [out])
    byte = packed.view(U8)
    q = torch.stack((byte & 15, byte >> 4), -1).reshape(n, k) if bits == 4 else packed
    exact = x.double() @ ((q.long() - zeros[:, None]).double() * scales.double()[:, None]).t()
    assert ((out - exact).norm(dim=0) <= 1e-5 * exact.norm(dim=0)).all()
    assert "vector.reduction" in kernel.mlir or "shuffle" in kernel.mlir
