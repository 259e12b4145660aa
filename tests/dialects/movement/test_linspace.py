"""`torch.linspace` of known numbers is a kernel whose elements are eager's, bit for bit, on a CPU."""

import pytest
import torch

import mlirc

INF, NAN = float("inf"), float("nan")
ENDS = ((0, 1), (-10, 10), (7.3, 1e-8), (3e38, -3e38), (INF, 0), (0, NAN), (-0.0, 0), (2**53, 3), (2**60, 1))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_elements(dtype):
    call = lambda: [torch.linspace(a, b, 2 + 7 * k % 23, dtype=dtype) for k, (a, b) in enumerate(ENDS)]
    made = torch.compile(call, backend="mlirc", options={"fallback": "error"})()
    for pair, x, y in zip(ENDS, made, call(), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=0, equal_nan=True, msg=str(pair))


def test_no_call():
    """Also of no element and of one; it fuses with what reads it."""
    call = lambda x: (x * torch.linspace(-1, 1, 5), torch.linspace(2, 3, 1), torch.linspace(2, 3, 0))
    x = torch.randn(4, 5)
    torch.testing.assert_close(torch.compile(call, backend="mlirc")(x), call(x), rtol=0, atol=0)
    (graph,) = mlirc.explain(call, options={"cache": False})(x).data["graphs"]
    assert not graph["aten"]


@pytest.mark.parametrize("dtype", [torch.int64, torch.bfloat16, torch.complex64])
def test_other_dtypes_are_calls(dtype):
    call = lambda: torch.linspace(-3, 8, 6, dtype=dtype)
    torch.testing.assert_close(torch.compile(call, backend="mlirc")(), call(), rtol=0, atol=0)
