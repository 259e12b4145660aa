"""The strides of Fourier transforms, of operands however they lie, are those that eager gives."""

import itertools

import pytest
import torch

from mlirc.frontend.strides.rules import rule_of
from tests.frontend.strides.layouts import LAYOUTS, walked

aten = torch.ops.aten
SIZES = (2, 3, 4, 5)
DIMS = [dims for k in (1, 2, 3) for dims in itertools.permutations(range(4), k)]
KINDS = {
    "complex": (aten._fft_c2c.default, torch.complex64, lambda dims: (dims, 0, True)),
    "real": (aten._fft_r2c.default, torch.float32, lambda dims: (dims, 0, True)),
    "real, both sides": (aten._fft_r2c.default, torch.float32, lambda dims: (dims, 0, False)),
    "to real": (aten._fft_c2r.default, torch.complex64, lambda dims: (dims, 0, 2 * SIZES[dims[-1]] - 2)),
}


@pytest.mark.skipif(not torch.backends.mkl.is_available(), reason="other strides without MKL")
@pytest.mark.parametrize("kind", KINDS)
def test_as_eager(kind):
    op, dtype, rest = KINDS[kind]
    rule = rule_of(op, "cpu")
    assert rule is not None
    for layout, dims in itertools.product(LAYOUTS, DIMS):
        x = LAYOUTS[layout](torch.randn(SIZES, dtype=dtype))
        args = (x, *rest(list(dims)))
        result = op(*args)
        made = rule(torch.empty(result.shape), args)
        assert made == walked(result), (layout, dims, made, result.stride())


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(dynamic):
    def program(x):
        return (
            torch.fft.fft(x, dim=0),
            torch.fft.fft2(x, s=(5, 4), dim=(1, 0)),
            torch.fft.irfft2(torch.fft.rfft2(x) + 1),
        )

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic)
    for sizes in ((2, 3, 4), (6, 5, 7)):
        x = torch.randn(sizes)
        for got, expected in zip(compiled(x), program(x), strict=True):
            torch.testing.assert_close(got, expected)
            assert got.stride() == expected.stride()
