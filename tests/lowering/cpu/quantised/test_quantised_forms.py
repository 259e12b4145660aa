"""The forms in which models write matmuls of a few rows by quantised weights [N, K], each one kernel, against float64."""

from typing import Any

import pytest
import torch
from torch import nn

import mlirc

pytestmark = pytest.mark.thinned

U8, F32, BF16 = torch.uint8, torch.float32, torch.bfloat16


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
