"""Matmuls of a few rows by a weight [K, N] that the kernel computes from what is packed, against float64."""

import pytest
import torch
from torch import nn

import mlirc
from mlirc.dialects.core.symbols import floordiv, mod
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info

pytestmark = pytest.mark.thinned

U8, F32, BF16 = torch.uint8, torch.float32, torch.bfloat16
WIDTHS = [width for width in (64, 32, 16) if width <= host_cpu().vector_bytes]


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
