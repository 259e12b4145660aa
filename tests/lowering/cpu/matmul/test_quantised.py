"""Matmuls of a few rows by quantised weights: the kernel in every width of vectors, and the forms that models have, against float64."""

from typing import Any

import pytest
import torch
from torch import nn

import mlirc
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


# ---- forms of models


def per_channel(x, w, s):
    return nn.functional.linear(x, w.to(x.dtype) * s[:, None])


def after(x, w, s):
    return torch.relu(nn.functional.linear(x, w.to(x.dtype)) * s + 1)


def packed_mm(x, w, s):
    return torch.ops.aten._weight_int8pack_mm(x, w, s)


def grouped(x, w, s, z):
    groups = s.shape[1]
    q = w.reshape(w.shape[0], groups, -1).to(x.dtype)
    return nn.functional.linear(x, ((q - z[:, :, None]) * s[:, :, None]).reshape(w.shape))


def nibbles(x, w, s, z):
    q = torch.stack((w & 15, w >> 4), -1).reshape(w.shape[0], s.shape[1], -1)
    return nn.functional.linear(x, ((q.to(x.dtype) - z[:, :, None]) * s[:, :, None]).reshape(w.shape[0], -1), z[:, 0])


def symmetric_nibbles(x, w, s):
    q = torch.stack((w & 15, (w >> 4) & 15), -1).reshape(w.shape[0], -1)
    q = (q.to(x.dtype) - 8).reshape(w.shape[0], s.shape[1], -1) * s[:, :, None]
    return nn.functional.linear(x, q.reshape(w.shape[0], -1))


def on_the_left(x, w, s):
    return (w.to(x.dtype) * s[:, None]) @ x.t()


def batched(x, w, s):
    return torch.einsum("bk,nk->bn", x, w.to(x.dtype) * s[:, None])


def rounded(x, w, s):
    return nn.functional.linear(x, (w.float() * s.float()[:, None]).to(x.dtype))


def repeated(x, w, s, z):
    scales, zeros = (numbers.repeat_interleave(w.shape[1] // numbers.shape[1], 1) for numbers in (s, z))
    return nn.functional.linear(x, (w.to(x.dtype) - zeros) * scales)


def high_nibbles_first(x, w, s, z):
    q = torch.stack((w >> 4, w & 15), -1).reshape(w.shape[0], s.shape[1], -1)
    return nn.functional.linear(x, ((q.to(x.dtype) - z[:, :, None]) * s[:, :, None]).reshape(w.shape[0], -1))


def nibbles_of_int8(x, w, s):
    """`& 15` of bytes converted to int8, the zero subtracted as an integer."""
    q = torch.stack((w.to(torch.int8), (w >> 4).to(torch.int8)), -1).reshape(w.shape[0], s.shape[1], -1) & 15
    return nn.functional.linear(x, ((q - 8).to(x.dtype) * s[:, :, None]).reshape(w.shape[0], -1))


def integer_zeros(x, w, s, z):
    """As int8, where the difference may wrap."""
    q = w.reshape(w.shape[0], s.shape[1], -1) - z.to(torch.int8)[:, :, None]
    return nn.functional.linear(x, (q.to(x.dtype) * s[:, :, None]).reshape(w.shape))


def zeros_of_channels(x, w, s):
    """As int64, PT2E's form."""
    q = w - torch.arange(len(w))[:, None] % 5
    return nn.functional.linear(x, q * s[:, None])


def given(form, dtype, m) -> Any:
    n, k, groups = 70, 256, 4
    x = torch.randn(m, k).to(dtype)
    if form in (nibbles, symmetric_nibbles, high_nibbles_first, nibbles_of_int8):
        numbers = [torch.rand(n, groups).to(dtype), torch.randint(0, 16, (n, groups)).to(dtype)]
        return (
            x,
            torch.randint(0, 256, (n, k // 2), dtype=U8),
            *numbers[: 2 - (form in (symmetric_nibbles, nibbles_of_int8))],
        )
    w = torch.randint(-128, 128, (n, k), dtype=torch.int8)
    if form in (grouped, repeated, integer_zeros):
        return x, w, torch.rand(n, groups).to(dtype), torch.randint(-8, 8, (n, groups)).to(dtype)
    return x, w, torch.rand(n).to(dtype)


def taken(form, inputs) -> list[str]:
    """The rules by which the pass took matmuls, or did not."""
    torch._dynamo.reset()
    report = mlirc.explain(form, options={"fallback": "error"})(*inputs)
    ledger = report.data["graphs"][0]["ledger"]
    return [e["rule"] for e in ledger if e["pass_name"] == "generate-quantised-matmuls"]


FORMS = (per_channel, after, packed_mm, grouped, nibbles, symmetric_nibbles, on_the_left, batched, rounded, repeated)
FORMS += (high_nibbles_first, nibbles_of_int8, integer_zeros, zeros_of_channels)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [F32, BF16])
def test_forms(form, dtype):
    torch.manual_seed(0)
    compiled = torch.compile(form, backend="mlirc", options={"fallback": "error"}, dynamic=False)
    for m in (1, 5):
        inputs = given(form, dtype, m)
        with torch.no_grad():
            out, eager = compiled(*inputs), form(*inputs)
            exact = form(*(x.double() if x.is_floating_point() else x for x in inputs)) \
                if form is not packed_mm else per_channel(inputs[0].double(), inputs[1], inputs[2].double())  # fmt: skip
        assert out.dtype == eager.dtype and out.stride() == eager.stride()
        assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-6 * exact.norm()


@pytest.mark.thinned(3)
@pytest.mark.parametrize("form", FORMS)
def test_what_is_taken(form):
    with torch.no_grad():
        assert taken(form, given(form, BF16, 2)) == ["IN REGISTERS"]
        assert taken(form, given(form, BF16, 9)) == ["MANY ROWS"]


HALVES = {
    "numbers of their own": (("s0", "z0"), ("s1", "z1")),
    "scales of their own": (("s0", "z0"), ("s1", "z0")),
    "zeros of their own": (("s0", "z0"), ("s0", "z1")),
    "the low ones have a zero": (("s0", "z0"), ("s0", None)),
    "the high ones have a zero": (("s0", None), ("s0", "z0")),
    "the low ones have a scale": (("s0", None), (None, None)),
    "the high ones have a scale": ((None, None), ("s0", None)),
    "the same numbers": (("s0", "z0"), ("s0", "z0")),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("kind", HALVES)
def test_numbers_of_low_and_high_nibbles(kind):
    """Dequantised before they are stacked: each half has its own scale and zero, or both the same."""
    torch.manual_seed(0)
    n, k = 21, 64
    numbers = {name: torch.rand(n, 1) + 0.5 for name in ("s0", "s1", "z0", "z1")}

    def stacked(x, w, numbers):
        halves = []
        for q, (scale, zero) in zip((w & 15, w >> 4), HALVES[kind], strict=True):
            half = q.to(x.dtype)
            half = half if zero is None else half - numbers[zero]
            halves.append(half if scale is None else half * numbers[scale])
        return nn.functional.linear(x, torch.stack(halves, -1).reshape(n, k))

    x, w = torch.randn(2, k), torch.randint(0, 256, (n, k // 2), dtype=U8)
    exact = stacked(x.double(), w, {name: number.double() for name, number in numbers.items()})
    with torch.no_grad():
        assert taken(stacked, (x, w, numbers)) == (["IN REGISTERS"] if kind == "the same numbers" else [])
        out = torch.compile(stacked, backend="mlirc", options={"fallback": "error"})(x, w, numbers)
    assert (out - exact).norm() <= 1e-6 * exact.norm()


def test_two_matmuls_of_a_row_stay_two_kernels():
    """A gated layer: merged, they would be written by the general loops."""

    def gated(x, w, s, z, v):
        return nn.functional.silu(nibbles(x, w, s, z)) * nibbles(x, v, s, z)

    x, w, s, z = given(nibbles, BF16, 1)
    with torch.no_grad():
        report = mlirc.explain(gated, options={"fallback": "error"})(x, w, s, z, w.flip(0))
    kernels = [kernel for kernel in report.data["graphs"][0]["kernels"] if "quantised_matmul" in str(kernel)]
    assert len(kernels) == 2, kernels


def test_rows_that_are_a_symbol():
    compiled = torch.compile(nibbles, backend="mlirc", options={"fallback": "error"}, dynamic=True)
    for m in (3, 8, 20):
        inputs = given(nibbles, F32, m)
        exact = nibbles(*(x.double() if x.is_floating_point() else x for x in inputs))
        assert (compiled(*inputs) - exact).norm() <= 1e-6 * exact.norm()


def test_a_weight_that_the_graph_writes():
    """The matmul reads the weight as it was."""

    def written(x, w, s):
        out = per_channel(x, w, s)
        w.add_(1)
        return out

    x, w, s = given(per_channel, F32, 2)
    mine, eager = w.clone(), w.clone()
    out = torch.compile(written, backend="mlirc", options={"fallback": "error"})(x, mine, s)
    torch.testing.assert_close(out, written(x, eager, s))
    assert torch.equal(mine, eager)


def test_a_rounding_that_the_user_wrote_stays():
    """The weight that is multiplied is the rounded one."""
    x, w, s = given(rounded, BF16, 2)
    exact = nn.functional.linear(x.double(), (w.float() * s.float()[:, None]).to(BF16).double())
    unrounded = nn.functional.linear(x.double(), w.double() * s.double()[:, None])
    with torch.no_grad():
        out = torch.compile(rounded, backend="mlirc", options={"fallback": "error"})(x, w, s)
    assert torch.equal(out, exact.to(BF16)) and not torch.equal(out, unrounded.to(BF16))


def bytes_of_rows(x, w, s):
    """A weight [K, N] of int8, its scales of groups along k."""
    groups = w.reshape(len(s), -1, w.shape[1]).to(x.dtype)
    return x @ (groups * s[:, None]).reshape(w.shape)


def nibbles_of_rows(x, w, s):
    q = torch.stack((w.view(U8) & 15, w.view(U8) >> 4), 1).reshape(len(s), -1, w.shape[1])
    return x @ ((q.to(x.dtype) - 8) * s[:, None]).reshape(-1, w.shape[1])


def gptq(x, packed, zeros, scale, groups, bias):
    """GPTQ's form: eight numbers along k in a word of the weight, along n in one of the zeros; `groups` says where each step's are."""
    shifts = torch.arange(0, 32, 4, dtype=torch.int32)
    zeros = torch.bitwise_and(torch.bitwise_right_shift(zeros[:, :, None], shifts), 15).reshape(scale.shape)
    w = torch.bitwise_and(torch.bitwise_right_shift(packed[:, None], shifts[:, None]), 15).reshape(-1, scale.shape[1])
    return x @ (scale[groups] * (w - zeros[groups])).to(x.dtype) + bias


def awq(x, packed, zeros, scale, order):
    """AWQ's form: eight numbers along n in a word, whose columns stand in another order."""
    shifts = torch.arange(0, 32, 4)
    w, zeros = ((words[:, :, None] >> shifts).to(torch.int8).flatten(1)[:, order] & 15 for words in (packed, zeros))
    w = w.reshape(len(scale), -1, w.shape[1]) - zeros[:, None]
    return x @ (w.to(x.dtype) * scale[:, None]).reshape(-1, w.shape[2])


def looked_up(x, w, s):
    """Each nibble stands for a number in a table, as NF4's do; the scales divide."""
    table = torch.linspace(-1, 1, 16, dtype=x.dtype).tanh()
    q = torch.stack((w.view(U8) >> 4, w.view(U8) & 15), 1).reshape(len(s), -1, w.shape[1])
    return x @ (table[q.int()] / (s + 1)[:, None]).reshape(-1, w.shape[1])


def unpacked(form, dtype, m, n, k=256):
    """Inputs of a form whose weight lies [K, N]; it has four groups."""
    x, scale = torch.randn(m, k).to(dtype), torch.rand(4, n).to(dtype)
    if form in (bytes_of_rows, nibbles_of_rows, looked_up):
        return x, torch.randint(-128, 128, (k if form is bytes_of_rows else k // 2, n), dtype=torch.int8), scale
    shapes = ((k // 8, n), (4, n // 8)) if form is gptq else ((k, n // 8), (4, n // 8))
    words = [torch.randint(-(2**31), 2**31 - 1, shape, dtype=torch.int32) for shape in shapes]
    if form is gptq:
        return x, *words, scale, torch.randperm(k) % 4, torch.randn(n).to(dtype)
    return x, *words, scale, torch.arange(n).reshape(-1, 8)[:, [0, 4, 1, 5, 2, 6, 3, 7]].flatten()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("form", [bytes_of_rows, nibbles_of_rows, looked_up, gptq, awq])
def test_weights_k_n_are_unpacked_in_registers(form, dtype):
    """Whole vectors of columns, and a rest; one row to eight."""
    torch.manual_seed(0)
    for m, n in ((1, 8), (8, 136)):
        inputs = unpacked(form, dtype, m, n)
        torch._dynamo.reset()
        out, eager = torch.compile(form, backend="mlirc", options={"fallback": "error"})(*inputs), form(*inputs)
        exact = form(*(y.double() if y.is_floating_point() else y for y in inputs))
        assert (out.dtype, out.stride()) == (eager.dtype, eager.stride())
        assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-6 * exact.norm()
    (graph,) = mlirc.explain(form)(*inputs).data["graphs"]
    assert "AS IT IS UNPACKED" in [entry["rule"] for entry in graph["ledger"]]
    assert max(int(kernel["written"]) for kernel in graph["kernels"]) < 256 * n


def check_k_n(dtype, m, n, k, vector_bytes=0, threads=1):
    """relu(x @ ((q - 8) * scale) + b), q [K, N] in nibbles along n: lanes read bytes side by side, two each."""
    inputs = [info(dtype, f"{m}, {k}"), info(U8, f"{k}, {-(-n // 2)}"), info(F32, f"{n}"), info(dtype, f"{n}")]

    def build(kernel, x, w, scale, b):
        row, column, step = kernel.dims
        amount = kernel.cast(kernel.size(mod(column, 2) * 4), U8)
        q = kernel.bitwise_and(kernel.shift_right(kernel.read(w, (step, floordiv(column, 2))), amount), 15)
        factor = kernel.mul(kernel.sub(kernel.cast(q, F32), 8), kernel.read(scale, (column,)))
        total = kernel.reduce("sum", kernel.mul(kernel.read(x, (row, step)), factor))
        out = kernel.relu(kernel.add(total, kernel.read(b, (column,))))
        return [(out, (row, column), info(dtype, f"{m}, {n}"))]

    kernel = NativeKernel(inputs, f"{m}, {n}", f"{k}", build, vector_bytes)
    x, b, scale = torch.randn(m, k).to(dtype), torch.randn(n).to(dtype), torch.rand(n)
    packed = torch.randint(0, 256, (k, -(-n // 2)), dtype=U8)
    q = torch.stack((packed & 15, packed >> 4), -1).reshape(k, -1)[:, :n]
    w = (q.double() - 8) * scale
    exact = nn.functional.relu(x.double() @ w + b)
    eager = nn.functional.relu(x @ w.to(dtype) + b)
    out = torch.full((m, n), float("nan"), dtype=dtype)
    kernel([x, packed, scale, b], [out], threads=threads)
    assert (out - exact).norm() <= 2 * (eager - exact).norm() + 1e-6 * exact.norm()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("vector_bytes", WIDTHS)
@pytest.mark.parametrize("m", range(1, 9))
def test_weights_k_n_of_any_size(m, vector_bytes):
    for n, k in ((1, 1), (67, 33), (150, 264)):
        check_k_n(BF16 if m % 2 else F32, m, n, k, vector_bytes)


def test_threads_share_a_large_weight_k_n():
    check_k_n(F32, 2, 2100, 512, threads=3)


@pytest.mark.parametrize("form, place", [(gptq, 4), (awq, 4)])
def test_an_index_of_an_unpacked_weight_is_checked(form, place):
    inputs = [*unpacked(form, F32, 4, 40)]
    inputs[place][7] = -inputs[3].shape[0 if form is gptq else 1]  # counts from the end
    compiled = torch.compile(form, backend="mlirc", options={"fallback": "error"})
    torch.testing.assert_close(compiled(*inputs), form(*inputs), rtol=1e-4, atol=1e-3)
    inputs[place][7] = 40
    with pytest.raises(IndexError, match="index 40 is out of bounds"):
        compiled(*inputs)


def test_a_weight_whose_columns_are_picked_keeps_every_check():
    """A slice follows the gather: what it leaves out is checked, too."""

    def picked(x, w, order):
        return x @ ((w[:, order] & 15)[:, :40].to(x.dtype) - 8)

    x, w, order = torch.randn(2, 64), torch.randint(-128, 128, (64, 48), dtype=torch.int8), torch.randperm(48)
    compiled = torch.compile(picked, backend="mlirc", options={"fallback": "error"})
    torch.testing.assert_close(compiled(x, w, order), picked(x, w, order), rtol=1e-4, atol=1e-3)
    order[47] = 48
    with pytest.raises(IndexError):
        compiled(x, w, order)


def test_a_weight_k_n_that_the_graph_writes():
    def written(x, w, s):
        w.add_(1)
        return bytes_of_rows(x, w, s)

    x, w, s = unpacked(bytes_of_rows, F32, 3, 24)
    mine, eager = w.clone(), w.clone()
    out = torch.compile(written, backend="mlirc", options={"fallback": "error"})(x, mine, s)
    torch.testing.assert_close(out, written(x, eager, s), rtol=1e-4, atol=1e-2)
    assert torch.equal(mine, eager)


def test_not_a_number_in_rows_and_scales():
    x, w, scale = unpacked(bytes_of_rows, F32, 4, 40)
    x[1, 3], scale[2, 5] = float("nan"), float("inf")
    out = torch.compile(bytes_of_rows, backend="mlirc", options={"fallback": "error"})(x, w, scale)
    torch.testing.assert_close(out, bytes_of_rows(x, w, scale), rtol=1e-4, atol=1e-2, equal_nan=True)
