"""VectorBuilder's arithmetic, comparisons, bits and casts against eager, element by element."""

import itertools
import math

import pytest
import torch

from mlirc.dialects.core.scalar_builder import TorchBuilder
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES
from tests.vector_kernel import elementwise

LANES = (16, 1)
FLOATS = (torch.float32, torch.float64)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)
SPECIAL = [
    0.0,
    -0.0,
    float("inf"),
    -float("inf"),
    float("nan"),
    1.0,
    -1.0,
    0.5,
    1.5,
    2.5,
    -0.5,
    -2.5,
    3e-39,
    -1e-45,
    65504.0,
]


def floats(dtype: torch.dtype) -> torch.Tensor:
    """Special values, then random ones of many magnitudes; a multiple of 16 of them."""
    random = torch.randn(497, dtype=torch.float64) * 10.0 ** torch.randint(-6, 5, (497,))
    return torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), random]).to(dtype)[:496].clone()


def integers(dtype: torch.dtype) -> torch.Tensor:
    info = torch.iinfo(dtype)
    special = [info.min, info.min + 1, info.max, info.max - 1, 0, 1, 2, 3, 7, info.bits - 1, info.bits, info.bits + 1]
    special += [-1, -2] if info.min < 0 else []
    small = torch.randint(max(info.min, -20), 20, (200,))
    large = torch.randint(info.min, info.max, (256,))
    return torch.cat([torch.tensor(special), small, large])[:464].to(dtype)


def values(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.randint(0, 2, (496,)).bool()
    return floats(dtype) if dtype.is_floating_point else integers(dtype)


def pairs(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Each special value against each, and random ones against one another."""
    x = values(dtype)
    first, second = x[:16].repeat_interleave(16), x[:16].repeat(16)
    return torch.cat([first, x]), torch.cat([second, x[torch.randperm(x.numel())]])


def check(body, inputs, lanes, where=None):
    """The body compiled against the body in eager, on the elements `where`; eager's own division may trap on others."""
    where = slice(None) if where is None else where
    expected = body(TorchBuilder(inputs[0].dtype), *(x[where] for x in inputs))
    got = elementwise(body, [x.dtype for x in inputs], expected.dtype, lanes)(*inputs)[where]
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
    if expected.dtype.is_floating_point:  # 0.0 == -0.0 above
        numbers = ~expected.isnan()
        assert torch.equal(got.signbit()[numbers], expected.signbit()[numbers])


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_float_arithmetic(dtype, lanes):
    x, y = pairs(dtype)
    for name in ("add", "sub", "mul", "div", "copysign"):
        check(lambda b, x, y, name=name: getattr(b, name)(x, y), (x, y), lanes)
    for name in ("neg", "abs", "floor", "ceil", "trunc", "round"):
        check(lambda b, x, name=name: getattr(b, name)(x), (x,), lanes)
    for name in ("lt", "le", "gt", "ge", "eq", "ne"):
        check(lambda b, x, y, name=name: getattr(b, name)(x, y), (x, y), lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_minimum_and_maximum_keep_nan(dtype, lanes):
    x, y = pairs(dtype)
    signed_zeros = (x == 0) & (y == 0)  # of 0.0 and -0.0 either may be the least
    for name in ("minimum", "maximum"):
        check(lambda b, x, y, name=name: getattr(b, name)(x, y), (x, y), lanes, ~signed_zeros)
        check(lambda b, x, name=name: getattr(b, name)(x, b.constant(0.5)), (x,), lanes)
        check(lambda b, x, name=name: getattr(b, name)(b.constant(float("nan")), x), (x,), lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_sqrt_is_correctly_rounded(dtype, lanes):
    """Eager's is not always: compared with the root in more digits."""
    x = floats(dtype)
    got = elementwise(lambda b, x: b.sqrt(x), [dtype], dtype, lanes)(x)
    expected = torch.tensor([math.sqrt(v) if v >= 0 else math.nan for v in x.tolist()], dtype=torch.float64).to(dtype)
    torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("lanes", LANES)
def test_fmod(lanes):
    for dtype in (torch.float32, torch.float64):
        x, y = pairs(dtype)
        usual = ~(y.abs() < 1e-30)  # of a subnormal divisor eager's own result depends on where the element lies
        check(lambda b, x, y: b.rem(x, y), (x, y), lanes, usual)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_arithmetic_wraps(dtype, lanes):
    x, y = pairs(dtype)
    for name in ("add", "sub", "mul", "minimum", "maximum", "and_", "or_", "xor", "lt", "le", "gt", "ge", "eq", "ne"):
        check(lambda b, x, y, name=name: getattr(b, name)(x, y), (x, y), lanes)
    for name in ("neg", "abs", "not_", "floor", "trunc"):
        check(lambda b, x, name=name: getattr(b, name)(x), (x,), lanes)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_division_never_traps(dtype, lanes):
    x, y = pairs(dtype)
    defined = y != 0
    if dtype.is_signed:
        defined &= ~((x == torch.iinfo(dtype).min) & (y == -1))
    for name in ("div", "rem"):
        check(lambda b, x, y, name=name: getattr(b, name)(x, y), (x, y), lanes, defined)
        check(lambda b, x, name=name: getattr(b, name)(x, b.constant(7)), (x,), lanes)
        elementwise(lambda b, x, name=name: getattr(b, name)(x, b.constant(0)), [dtype], dtype, lanes)(x)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_shifts_by_any_amount(dtype, lanes):
    x, y = pairs(dtype)
    check(lambda b, x, y: b.shl(x, y), (x, y), lanes)
    check(lambda b, x, y: b.shr(x, y), (x, y), lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_booleans(lanes):
    x, y = pairs(torch.bool)
    for name in ("and_", "or_", "xor", "eq", "ne", "lt", "ge", "minimum", "maximum", "add", "mul"):
        check(lambda b, x, y, name=name: getattr(b, name)(x, y), (x, y), lanes)
    check(lambda b, x: b.not_(x), (x,), lanes)
    check(lambda b, x, y: b.select(x, y, b.constant(True)), (x, y), lanes)


@pytest.mark.parametrize("lanes", LANES)
def test_select_and_fma(lanes):
    x, y = pairs(torch.float32)
    check(lambda b, x, y: b.select(b.lt(x, y), x, b.constant(-0.0)), (x, y), lanes)
    got = elementwise(lambda b, x, y: b.fma(x, x, y), [torch.float32] * 2, torch.float32, lanes)(x, y)
    exact = (x.double() * x.double() + y.double()).float()  # the product is exact in float64; the sum nearly always
    assert ((got == exact) | (got.isnan() & exact.isnan())).double().mean() > 0.99


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("source", sorted(KERNEL_DTYPES, key=str), ids=str)
def test_casts(source, lanes):
    x = values(source)
    for target in sorted(KERNEL_DTYPES, key=str):
        where = None
        if source.is_floating_point and not (target.is_floating_point or target == torch.bool):
            info = torch.iinfo(target)
            where = (x.double() > float(info.min) - 1) & (x.double() < float(info.max))
        check(lambda b, x, target=target: b.cast(x, target), (x,), lanes, where)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("target", (torch.float16, torch.bfloat16), ids=str)
def test_every_half_boundary_rounds_to_even(target, lanes):
    """Each finite half, the midpoint above it, and that midpoint's neighbours in float32."""
    halves = torch.arange(0, 1 << 15, dtype=torch.int16).view(target)
    halves = halves[halves.isfinite()].float()
    next_half = torch.cat([halves[1:], halves[-1:]])
    middle = ((halves.double() + next_half.double()) / 2).float()
    up, down = torch.tensor(float("inf")), torch.tensor(0.0)
    x = torch.cat([halves, middle, middle.nextafter(up), middle.nextafter(down)])
    x = torch.cat([x, -x])
    x = x[: x.numel() // 16 * 16]
    got = elementwise(lambda b, x: b.cast(x, target), [torch.float32], target, lanes)(x)
    assert torch.equal(got.view(torch.int16), x.to(target).view(torch.int16))


def test_out_of_range_floats_become_some_integer():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1e30] * 4)
    for target in INTEGERS:
        elementwise(lambda b, x, target=target: b.cast(x, target), [torch.float32], target, 16)(x)


def test_constants_keep_their_bits():
    for dtype, value in itertools.product((*FLOATS, torch.float16, torch.bfloat16), SPECIAL):
        got = elementwise(lambda b, x, value=value: b.constant(value), [dtype], dtype, 1)(torch.zeros(1, dtype=dtype))
        torch.testing.assert_close(got, torch.tensor([value], dtype=dtype), rtol=0, atol=0, equal_nan=True)
    for dtype in INTEGERS:
        info = torch.iinfo(dtype)
        for value in (info.min, info.max):
            got = elementwise(lambda b, x, value=value: b.constant(value), [dtype], dtype, 16)(
                torch.zeros(16, dtype=dtype)
            )
            assert got.tolist() == [value] * 16


def test_half_types_are_only_cast():
    with pytest.raises(TypeError, match=r"arith.addf of torch.bfloat16: half types compute in float32, cast first"):
        elementwise(lambda b, x: b.add(x, x), [torch.bfloat16], torch.bfloat16, 16)


def test_dtypes_must_agree():
    with pytest.raises(TypeError, match=r"arith.addf of torch.float32 and torch.float64"):
        elementwise(lambda b, x, y: b.add(x, y), [torch.float32, torch.float64], torch.float32, 16)
