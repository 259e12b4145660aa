"""ATen's scalar overloads as import rules take them: parameters, numbers, type promotion, against eager."""

import inspect
import math
from contextlib import nullcontext

import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS
from tests.compare_stages import check, prepare

aten = torch.ops.aten
FLOAT = torch.tensor([[-4.0, -3.0, -1.0, -0.5, -0.0], [0.0, 0.3, 1.0, 3.0, 25.0]])
WIDE = torch.tensor([-math.inf, -100.0, 0.7, 1e30, math.inf, math.nan])
INTEGER = torch.tensor([-100, -7, -1, 0, 1, 2, 3, 100], dtype=torch.int32)
SMALL = torch.tensor([0, 1, 2, 44, 127, 128, 255], dtype=torch.uint8)
TRUTH = torch.tensor([True, False])


def traced(function):
    """The function with what it makes of no tensor (arange, numbers in where) made fake while it is traced."""

    def call(*inputs):
        with getattr(inputs[0], "fake_mode", nullcontext()):
            return function(*inputs)

    return call


def reasons(function, *inputs) -> list[str]:
    """Why the function's ATen calls stay ATen calls."""
    with context():
        return [why for _, why in prepare(function, *inputs)[1].aten.values()]


BITS = (aten.bitwise_and, aten.bitwise_or, aten.bitwise_xor)


@pytest.mark.parametrize("op", BITS)
def test_bits_with_numbers(op):
    for x in (INTEGER, SMALL):
        check(lambda x: [op.Scalar(x, 5), op.Scalar_Tensor(6, x)], x)
    check(lambda x: op.Scalar(x, True), TRUTH)


@pytest.mark.parametrize("op", (aten.__and__, aten.__or__, aten.__xor__))
def test_bits_by_operators(op):
    check(lambda x: [op.Scalar(x, 5), op.Tensor(x, x + 1)], INTEGER)


@pytest.mark.parametrize("op", (aten.bitwise_left_shift, aten.bitwise_right_shift))
def test_shifts(op):
    check(lambda x: [op.Tensor_Scalar(x, 3), op.Scalar_Tensor(9, x), op.Tensor(x, x)], INTEGER)
    check(lambda x: [op.Tensor_Scalar(x, 3), op.Tensor(x, x)], SMALL)


@pytest.mark.parametrize("op", (aten.__lshift__, aten.__rshift__))
def test_shifts_by_operators(op):
    check(lambda x: [op.Scalar(x, 2), op.Tensor(x, x)], INTEGER)


def test_clamp():
    check(
        lambda x: [aten.clamp.default(x, -1, 2), aten.clamp.default(x, None, 0.25), aten.clamp_max.default(x, 1)], FLOAT
    )
    check(lambda x: [aten.clamp.default(x, 3.0, -3.0), aten.clamp.default(x, math.nan, 1.0)], WIDE)
    check(lambda x: [aten.clamp.default(x, 0.5, 2.5), aten.clamp_min.default(x, 2)], INTEGER)
    check(lambda x, y: aten.clamp.Tensor(x, y, y + 1), FLOAT, FLOAT[:, :1])


@pytest.mark.parametrize("rounding_mode", (None, "floor", "trunc"))
def test_division_by_numbers(rounding_mode):
    for x in (FLOAT, WIDE, INTEGER, SMALL):
        for y in (3, 0.3):
            check(lambda x, y=y: aten.div.Scalar_mode(x, y, rounding_mode=rounding_mode), x)


def test_remainders_by_numbers():
    for x in (FLOAT, INTEGER, SMALL):
        check(lambda x: [x % 3, aten.fmod.Scalar(x, 3), x // 3, aten.floor_divide.Scalar(x, 3)], x)
        check(lambda x: [x % 0.3, aten.fmod.Scalar(x, 0.3), x // 0.3], x)
    for x in (FLOAT, INTEGER):
        check(lambda x: [x % -3, aten.fmod.Scalar(x, -3), x // -3], x)
    check(lambda x: aten.remainder.Scalar_Tensor(7.5, x), FLOAT)


def test_integer_division_that_may_fail_is_eagers():
    divide = lambda x, y: x // y
    assert reasons(divide, INTEGER, INTEGER) == ["an integer division whose divisor is no constant may raise an error"]
    assert reasons(lambda x: x % 0, INTEGER) == ["an integer division by zero"]
    assert reasons(lambda x: x // 256, SMALL) == ["an integer division by zero"]
    with pytest.raises(Exception, match="ZeroDivisionError"):
        check(divide, INTEGER, torch.zeros_like(INTEGER), aten=True)


@pytest.mark.parametrize("exponent", (0, 1, 2, 3, 5, -1, -2, 0.5, -0.5, 0.7))
def test_powers(exponent):
    check(lambda x: x**exponent, FLOAT)
    check(lambda x: x**exponent, WIDE)
    if isinstance(exponent, int) and exponent >= 0:
        check(lambda x: x**exponent, INTEGER)
    if isinstance(exponent, float):
        check(lambda x: x**exponent, INTEGER)
    check(lambda x: exponent**x, FLOAT)


def test_integer_powers_by_tensors_are_eagers():
    assert len(reasons(lambda x: x**x, SMALL)) == 1
    assert reasons(lambda x: aten.pow.Tensor_Scalar(x, 65), INTEGER) == ["an integer to the power 65"]


def test_numbers_wrap_around_in_integers():
    check(lambda x: [x == 300, x < 300, x > -1, x + 300, x - 1, x * 7], SMALL)
    check(lambda x: [x + 200, x * 100, x == 200, -x], INTEGER.to(torch.int8))


def test_promotion():
    scalar, whole = torch.tensor(2.5, dtype=torch.float64), torch.tensor(3)
    for x in (FLOAT, INTEGER, SMALL, FLOAT.half(), FLOAT.bfloat16()):
        check(lambda x, s, w: [x + s, x * w, x / w, x < s, torch.maximum(x, w), x + True], x, scalar, whole)
        check(lambda x: [x + 1, x * 2.5, 2 - x, 1.5 - x, x / 3, x > 0.3, x == 2], x)
    check(lambda x, w: [x * 2, x + 2.5, x + w, x & True, x | x, x * x, x + x], TRUTH, whole)
    check(lambda x, y: [x + y, x * y, torch.where(x > 0, y, x)], INTEGER.half(), INTEGER.bfloat16())


def test_halves_compare_with_rounded_numbers():
    """0.1 is no half number: eager rounds it first, and finds the rounded one equal."""
    for dtype in (torch.float16, torch.bfloat16):
        check(lambda x: [x == 0.1, x < 0.1, x % 0.1, x * 0.1], torch.tensor([0.1, 0.3, 2.0], dtype=dtype))


def test_sums_with_a_factor():
    check(lambda x, y: [aten.add.Tensor(x, y, alpha=0.3), aten.sub.Tensor(x, y, alpha=2)], FLOAT, FLOAT.flip(1))
    check(lambda x: [aten.rsub.Scalar(x, 5, 2), aten.rsub.Tensor(x, x + 1), aten.add.Scalar(x, 2, 3)], INTEGER)
    check(lambda x, y: aten.add.Tensor(x, y, alpha=0.3), FLOAT.bfloat16(), FLOAT.flip(1).bfloat16())


def test_factors_that_eager_refuses_are_eagers():
    for alpha, x in ((300, SMALL), (2**40, INTEGER)):
        assert len(reasons(lambda x, a=alpha: aten.rsub.Tensor(x, x, alpha=a), x)) == 1
        with pytest.raises(RuntimeError, match="without overflow"):
            torch.rsub(x, x, alpha=alpha)
    for value in (-1.0, -0.5, 256):
        assert len(reasons(lambda x, v=value: aten.constant_pad_nd.default(x, [1, 1], v), SMALL)) == 1
    check(lambda x: [aten.constant_pad_nd.default(x, [1, 1], -1), aten.rsub.Tensor(x, x, alpha=-255)], SMALL)


def test_truth_is_of_the_promoted_dtype():
    """A 0-d tensor counts less: 2**40 is 0 beside int32, and 1e-10 is 0 beside a half number."""
    for x, y in ((INTEGER, torch.tensor(2**40)), (FLOAT.half(), torch.tensor(1e-10)), (SMALL, torch.tensor(256))):
        check(lambda x, y: [f(x, y) for f in (torch.logical_and, torch.logical_or, torch.logical_xor)], x, y)
        check(lambda x, y: [f(y, x) for f in (torch.logical_and, torch.logical_or, torch.logical_xor)], x, y)


def test_logarithms_with_numbers():
    for op in (aten.xlogy.Scalar_Other, aten.special_xlog1py.other_scalar):
        check(lambda x, op=op: op(x, 2.5), FLOAT)
    for op in (aten.xlogy.Scalar_Self, aten.special_xlog1py.self_scalar):
        check(lambda x, op=op: [op(2.5, x), op(0, x)], WIDE)


def test_logit_limits_are_as_precise_as_the_tensor():
    x = torch.tensor([0.0, 0.1, 0.9, 1.0], dtype=torch.float64)
    check(lambda x: [torch.logit(x, 0.1), torch.logit(x)], x)
    check(lambda x: torch.logit(x, 0.1), x.float())


def test_logarithms_of_the_normal_distribution_function():
    for x in (FLOAT, WIDE, INTEGER, torch.tensor([-torch.inf, torch.inf, torch.nan, -1.0])):
        check(torch.special.log_ndtr, x)


def test_fills():
    check(lambda x: [aten.fill.Tensor(x, x[0, 0]), aten.fill.Scalar(x, 2.5), torch.full_like(x, 2)], FLOAT)
    check(lambda x: [x.new_full((2, 3), 7), x.new_zeros((0,)), x.new_ones(()), torch.zeros_like(x)], INTEGER)
    check(lambda x: torch.full_like(x, 0.1) + x, FLOAT.bfloat16())
    check(lambda x: torch.zeros_like(x, memory_format=torch.channels_last), torch.ones(2, 3, 4, 5))


def test_aranges():
    check(traced(lambda x: [x + torch.arange(6), torch.arange(3, 15, 2) + x, torch.arange(9.0, 3.0, -1) + x]), WIDE)
    check(traced(lambda x: [torch.arange(0.0, 1.0, 0.1)[:6] * x, torch.arange(6, dtype=torch.float16)]), WIDE)
    check(traced(lambda x: torch.arange(x.shape[0]) + x), INTEGER, dynamic=True)


def test_triangles():
    x = torch.arange(24).view(2, 3, 4)
    check(traced(lambda x: [torch.tril(x), torch.triu(x, 1), torch.tril(x, -1), torch.eye(3), torch.eye(2, 4)]), x)
    check(lambda x: [torch.tril(x), torch.triu(x, 1)], x.bool())
    check(lambda x: torch.triu(x, -1), FLOAT, dynamic=True)


def test_masked_fill_keeps_the_dtype():
    mask = torch.tensor([True, False, True, False, True])
    check(lambda x, m: [x.masked_fill(m, 2.5), x.masked_fill(m, -math.inf)], FLOAT, mask)
    check(lambda x, m, v: aten.masked_fill.Tensor(x, m, v), FLOAT, mask, torch.tensor(3))
    check(traced(lambda x, m: x.masked_fill(m, torch.full([], 1.5, dtype=torch.float64))), FLOAT, mask)
    check(lambda x, m: x.masked_fill(m, 7), INTEGER[:5], mask)


def test_where():
    check(traced(lambda x: [torch.where(x > 0, x, 0.0), torch.where(x > 0, 1, x), torch.where(x > 0, 1.5, 2)]), FLOAT)
    check(lambda x, y: torch.where(x > 0, x, y), INTEGER, INTEGER.double())


def test_nan_to_num():
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        check(lambda x: [torch.nan_to_num(x), torch.nan_to_num(x, 1.5, 2.5, -3.5)], WIDE.to(dtype))
    check(lambda x: torch.nan_to_num(x), INTEGER)


def test_neighbours_of_half_types_are_eagers():
    check(torch.nextafter, FLOAT, WIDE[:5])
    check(torch.nextafter, FLOAT.double(), FLOAT.flip(1))
    check(torch.nextafter, INTEGER[:5], FLOAT)
    for dtype in (torch.float16, torch.bfloat16):
        assert len(reasons(torch.nextafter, FLOAT.to(dtype), FLOAT.to(dtype))) == 1


def test_conversions():
    every = (torch.float64, torch.float16, torch.bfloat16, torch.int64, torch.int8, torch.uint8, torch.bool)
    for x in (FLOAT.abs(), INTEGER.abs(), SMALL, TRUTH):
        check(lambda x: [x.to(dtype) for dtype in every], x)
    assert reasons(lambda x: x.to(torch.complex64), FLOAT) == [
        "torch.float32 to torch.complex64: kernels compute with neither complex nor unusual dtypes"
    ]


def test_losses():
    for name in ("mse_loss", "smooth_l1_loss", "huber_loss"):
        loss = getattr(torch.nn.functional, name)
        for reduction in ("none", "mean", "sum"):
            check(lambda x, y, r=reduction, loss=loss: loss(x, y, reduction=r), FLOAT, FLOAT.flip(1))
    check(lambda x, y: torch.nn.functional.smooth_l1_loss(x, y, beta=0.3), FLOAT.double(), FLOAT.double().flip(1))


def test_empty_and_scalar_tensors():
    for x in (torch.empty(0, 3), torch.tensor(1.5)):
        check(lambda x: [x * 2 + 1, torch.nn.functional.elu(x), x.clamp(0, 1), torch.where(x > 1, x, -x)], x)


def test_complex_numbers_are_eagers():
    assert len(reasons(lambda x: x * 2j, FLOAT)) == 1


@pytest.mark.parametrize("training", [False, True])
def test_gradient_of_rrelu(training):
    grad, x, noise = (torch.randn(4, 5) for _ in range(3))
    check(lambda *v: aten.rrelu_with_noise_backward(*v, 0.125, 0.5, training, False), grad, x, noise)
    check(lambda *v: aten.rrelu_with_noise_backward(*v, 0.25, 0.25, training, False), grad, x, noise, aten=training)


def test_limits_that_equal_a_default_are_left_out_of_the_graph():
    for limits in ((1, 1), (-1, 2), (0, 1), (-math.inf, 1), (-1,), ()):
        check(lambda x, limits=limits: torch.nn.functional.hardtanh(x, *limits), FLOAT)


def test_rules_have_the_defaults_of_their_overloads():
    """PyTorch leaves an argument that equals its default out of a graph."""
    with context():
        rules = {op: rule for op, rule in IMPORTS.items() if isinstance(op, torch._ops.OpOverload)}
    wrong, seen = [], 0
    for overload, rule in rules.items():
        parameters = list(inspect.signature(rule).parameters.values())[1:]
        by_name = {p.name: p for p in parameters}
        by_place = [p for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
        for place, argument in enumerate(overload._schema.arguments):
            taken = by_place[place : place + 1] if not argument.kwarg_only else [by_name.get(argument.name)]
            if argument.has_default_value() and taken and taken[0] is not None:
                default = argument.default_value
                default = tuple(default) if isinstance(default, list) else default
                seen += 1
                if taken[0].default != default:
                    wrong.append(f"{overload}: {argument.name} is {default}, in the rule {taken[0].default}")
    assert not wrong
    assert seen > 100
