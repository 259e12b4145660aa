"""Every scalar op and every conversion as Triton, in Triton's interpreter, against eager."""

import pytest
import torch

from mlirc.dialects.dialect import OPS
from mlirc.dialects.tensor_types import KERNEL_DTYPES
from tests.kernel_runner import like
from tests.test_scalar_ops import COMPUTED, HALVES, SCALAR_OPS, assert_same, dtypes_of, operands, reference, values
from tests.triton.runner import TritonKernel

DTYPES = sorted(KERNEL_DTYPES, key=str)


def apply(name: str, args: list[torch.Tensor], like_this: torch.Tensor) -> torch.Tensor:
    """The op on tensors of its computed dtypes, by Triton."""
    flat = [x.reshape(-1) for x in args]
    size = str(len(flat[0]))
    out = torch.empty(len(flat[0]), dtype=like_this.dtype)

    def build(k, *inputs):
        return [(k.apply(OPS[name], *(k.read(x, k.dims) for x in inputs)), k.dims, like(out))]

    TritonKernel([like(x) for x in flat], size, "", build)(flat, [out])
    return out.view(args[0].shape)


@pytest.mark.parametrize("name", SCALAR_OPS)
def test_scalar_op(name):
    cls = OPS[name]
    for dtype in dtypes_of(cls):
        args = operands(cls, name, dtype)
        eager = reference(cls, args)
        if eager is not None:
            tolerance = 20 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
            assert_same(name, apply(name, args, eager), args, tolerance)


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source):
    x = values(source, 50)
    others = [t for t in DTYPES if t != source]
    kept = {t: representable(x, t) for t in others}
    for dtype in others:
        y = x[kept[dtype]]
        wide = torch.float32 if source in HALVES else source

        def build(k, x, dtype=dtype, y=y, wide=wide):
            value = k.cast(k.cast(k.read(x, k.dims, widen=False), wide), dtype)
            return [(value, k.dims, like(y.to(dtype)))]

        out = torch.empty(len(y), dtype=dtype)
        TritonKernel([like(y)], str(len(y)), "", build)([y], [out])
        torch.testing.assert_close(out, y.to(dtype), rtol=0, atol=0, equal_nan=True)


def representable(x: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Where a conversion is defined: what a float becomes that no integer is near depends on the processor."""
    if not x.dtype.is_floating_point or dtype.is_floating_point or dtype == torch.bool:
        return torch.ones_like(x, dtype=torch.bool)
    return x.double().abs() < (100 if dtype in (torch.uint8, torch.int8) else 2.0**15)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_minus_zero(dtype):
    x = torch.tensor([0.0, -0.0], dtype=dtype)

    def build(k, x):
        a = k.read(x, k.dims)
        return [(v, k.dims, like(torch.empty(2, dtype=dtype))) for v in (k.neg(a), k.mul(a, 1.0), k.add(a, -0.0), a)]

    outs = [torch.empty(2, dtype=dtype) for _ in range(4)]
    TritonKernel([like(x)], "2", "", build)([x], outs)
    assert [o.signbit().tolist() for o in outs] == [[True, False], *[[False, True]] * 3]


@pytest.mark.parametrize("dtype", [t for t in COMPUTED if not t.is_floating_point and t != torch.bool])
def test_integers_wrap_around(dtype):
    limits = torch.iinfo(dtype)
    x = torch.tensor([limits.max, limits.min, limits.max - 1], dtype=dtype)

    def build(k, x):
        a = k.read(x, k.dims)
        out = like(torch.empty(3, dtype=dtype))
        return [(k.add(a, 3), k.dims, out), (k.mul(a, 5), k.dims, out), (k.sub(a, a), k.dims, out)]

    outs = [torch.empty(3, dtype=dtype) for _ in range(3)]
    TritonKernel([like(x)], "3", "", build)([x], outs)
    for out, want in zip(outs, (x + 3, x * 5, x - x), strict=True):
        assert torch.equal(out, want)
