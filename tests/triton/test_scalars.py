"""Every scalar op and every conversion as Triton, in Triton's interpreter, against eager."""

import math
import re

import pytest
import torch

from mlirc.dialects.core.dialect import OPS
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES
from tests.dialects.test_scalar_ops import (
    COMPUTED,
    HALVES,
    SCALAR_OPS,
    arity,
    assert_same,
    dtypes_of,
    is_small,
    operands,
    reference,
    values,
)
from tests.kernel_runner import like
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


@pytest.mark.thinned(70)
@pytest.mark.parametrize("name", SCALAR_OPS)
def test_scalar_op(name):
    cls = OPS[name]
    for dtype in dtypes_of(cls):
        args = operands(cls, name, dtype)
        eager = reference(cls, args)
        if eager is not None:
            tolerance = 20 * torch.finfo(dtype).eps if dtype.is_floating_point else 0.0
            assert_same(name, apply(name, args, eager), args, tolerance)


BINARY = [name for name in SCALAR_OPS if OPS[name].computes not in ("bool",) and arity(OPS[name]) == 2]


@pytest.mark.thinned(24)
@pytest.mark.parametrize("name", BINARY)
def test_scalar_op_beside_numbers(name):
    """Its parts are computed of numbers alone, then."""
    cls = OPS[name]
    x = torch.tensor([-7.5, -2.0, -0.5, 0.0, 0.25, 2.0, 7.5, torch.inf])
    for number in (2.5, -1.5, 2.0):
        for first in (False, True):
            both = (torch.full_like(x, number), x) if first else (x, torch.full_like(x, number))
            eager = reference(cls, list(both))
            if eager is None:
                continue
            out = torch.empty_like(eager)

            def build(k, a, number=number, first=first, out=out):
                read, constant = k.read(a, k.dims), k.constant(number, torch.float32)
                return [(k.apply(cls, *((constant, read) if first else (read, constant))), k.dims, like(out))]

            TritonKernel([like(x)], str(len(x)), "", build)([x], [out])
            assert_same(name, out, list(both), 2e-6)


@pytest.mark.parametrize("source", DTYPES)
def test_casts(source):
    x = values(source, 50)
    if source is torch.bfloat16:  # Triton's interpreter reads its subnormal numbers as 0
        x = x[~is_small(x)]
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


# What eager gives on CUDA (torch 2.11, H200): NaN, infinity, -infinity, 3e9, -3e9, 2**32 + 5 (2**32 in float32).
ON_CUDA = {
    (torch.float32, torch.uint8): [0, 255, 0, 0, 0, 0],
    (torch.float32, torch.int8): [0, -1, 0, -1, 0, -1],
    (torch.float32, torch.int16): [0, -1, 0, -1, 0, -1],
    (torch.float32, torch.int32): [0, 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2**31 - 1],
    (torch.float32, torch.int64): [-(2**63), 2**63 - 1, -(2**63), 3 * 10**9, -3 * 10**9, 2**32],
    (torch.float64, torch.uint8): [0, 255, 0, 0, 0, 5],
    (torch.float64, torch.int8): [0, -1, 0, -1, 0, -1],
    (torch.float64, torch.int16): [0, -1, 0, -1, 0, -1],
    (torch.float64, torch.int32): [-(2**31), 2**31 - 1, -(2**31), 2**31 - 1, -(2**31), 2**31 - 1],
    (torch.float64, torch.int64): [-(2**63), 2**63 - 1, -(2**63), 3 * 10**9, -3 * 10**9, 2**32 + 5],
}


@pytest.mark.parametrize("source, dtype", ON_CUDA)
def test_conversions_of_what_does_not_fit(source, dtype):
    """Read, and as constants: none is an LLVM conversion, of which the result would be undefined."""
    numbers = [math.nan, math.inf, -math.inf, 3e9, -3e9, 2.0**32 + 5]
    x = torch.tensor(numbers, dtype=source)
    want = torch.tensor([torch.tensor(v).to(dtype).item() for v in ON_CUDA[source, dtype]], dtype=dtype)
    one = like(torch.empty(6, dtype=dtype))

    def build(k, x):
        constants = [k.cast(k.constant(v, source), dtype) for v in x_numbers]
        return [(v, k.dims, one) for v in (k.cast(k.read(x, k.dims), dtype), *constants)]

    x_numbers = x.tolist()
    outs = [torch.empty(6, dtype=dtype) for _ in range(7)]
    kernel = TritonKernel([like(x)], "6", "", build)
    kernel([x], outs)
    assert torch.equal(outs[0], want)
    for k, out in enumerate(outs[1:]):
        assert (out == want[k]).all(), (numbers[k], out, want[k])
    converted = re.findall(r"(\w+)\.to\(tl\.int(?:32|64)\)", kernel.source)
    assert not any(re.search(rf"{name} = (tl.load|tl.full)", kernel.source) for name in converted)


def divided(x: int, y: int, dtype: torch.dtype) -> tuple[int, int]:
    """C's quotient, wrapped around, and remainder."""
    quotient = abs(x) // abs(y) * (1 if (x < 0) == (y < 0) else -1)
    return quotient if quotient <= torch.iinfo(dtype).max else torch.iinfo(dtype).min, x - quotient * y


@pytest.mark.parametrize("dtype", [t for t in COMPUTED if not t.is_floating_point and t != torch.bool])
def test_no_division_is_undefined(dtype):
    """The lowest number by -1 wraps around; by 0 any value will do, and LLVM is not told that there is none."""
    limits = torch.iinfo(dtype)
    ends = [limits.min, limits.min + 1, limits.max, 0, 1, 7, *([-1, -7] if dtype.is_signed else [])]
    pairs = torch.tensor([(x, y) for x in ends for y in ends], dtype=dtype)
    x, y = pairs.t().contiguous()
    divisors = [v for v in ends if v]
    one = like(x)

    def build(k, x, y):
        x, y = k.read(x, k.dims), k.read(y, k.dims)
        found = [k.trunc_divide(x, y), k.fmod(x, y)]
        for v in divisors:
            found += [k.trunc_divide(x, k.constant(v, dtype)), k.fmod(x, k.constant(v, dtype))]
        return [(v, k.dims, one) for v in found]

    outs = [torch.empty_like(x) for _ in range(2 + 2 * len(divisors))]
    kernel = TritonKernel([one, like(y)], str(len(x)), "", build)
    kernel([x, y], outs)
    results = [outs[k : k + 2] for k in range(0, len(outs), 2)]
    for (quotient, rest), by in zip(results, [y, *(torch.full_like(x, v) for v in divisors)], strict=True):
        for k in by.nonzero().flatten().tolist():
            assert (quotient[k].item(), rest[k].item()) == divided(x[k].item(), by[k].item(), dtype)
    guarded = set(re.findall(r"(v\d+) = tl\.where", kernel.source))
    for divisor in re.findall(r"v\d+ = \S+ (?://|%) (\S+)$", kernel.source, re.MULTILINE):
        assert divisor in guarded or (re.fullmatch(r"\(?-?\d+\)?", divisor) and divisor.strip("()") not in ("0", "-1"))
