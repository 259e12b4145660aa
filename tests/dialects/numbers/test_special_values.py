"""NaN, infinities, signed zeros, subnormals and the limits of every dtype, through every op, against eager.

Where eager contradicts itself, between its vectors and the rest of a row or between two strides, either answer will do: what
is compared is what eager gives for a long row, for one element at a time, or for every other element of a row.
"""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from mlirc.dialects.core.dialect import OPS, Elementwise, load_ops
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES
from tests.dialects.test_scalar_ops import APART, DIVISIONS, arity

pytestmark = pytest.mark.thinned

load_ops()
DTYPES = sorted(KERNEL_DTYPES, key=str)
FLOATS = [t for t in DTYPES if t.is_floating_point]
NAMES = sorted(name for name, cls in OPS.items() if issubclass(cls, Elementwise) and name not in APART)
QUICK_NAMES = ("atan2", "clamp", "exp", "floor_divide", "fmin", "maximum", "pow", "remainder", "shift_left")
QUICK_NAMES = tuple(name for name in QUICK_NAMES if name in NAMES)
# Differences of numbers that are nearly equal: in eager's last bits too.
CANCELS = ("logaddexp2", "log_softmax", "layer_norm", "var_mean mean", "fmax", "fmin", "digamma")


def specials(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.is_floating_point:
        limits = torch.finfo(dtype)
        least = limits.tiny * limits.eps
        numbers = [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -2.5, 3.0, -3.0, 1.5, 7.0]
        numbers += [
            limits.max,
            limits.min,
            limits.tiny,
            -limits.tiny,
            least,
            -least,
            limits.tiny / 100,
            limits.eps,
            1 + limits.eps,
        ]
    else:
        limits = torch.iinfo(dtype)
        numbers = [0, 1, 2, 3, 7, limits.max, limits.max - 1, limits.min, limits.min + 1, limits.bits, limits.bits - 1]
        numbers += [-1, -2, -7] if limits.min else [200]
    return torch.tensor(numbers, dtype=torch.float64 if dtype.is_floating_point else torch.int64).to(dtype)


def grid(cls: type, name: str, dtype: torch.dtype) -> list[torch.Tensor]:
    words = cls.computes if isinstance(cls.computes, tuple) else (cls.computes,) * arity(cls)
    values = [specials(torch.bool if word == "bool" and arity(cls) == 3 else dtype) for word in words]
    if arity(cls) == 3:
        values = [v[:9] for v in values]
    if name in DIVISIONS and not dtype.is_floating_point:  # by zero eager raises, and dies of the lowest number by -1
        values[1] = values[1][(values[1] != 0) & (values[1] != -1)]
    points = itertools.product(*(range(len(v)) for v in values))
    index = torch.tensor(list(points))
    return [v[index[:, k]].contiguous() for k, v in enumerate(values)]


def answers(f, args: list[torch.Tensor]) -> list[torch.Tensor] | None:
    """What eager gives, in each of the ways that it goes; None where it refuses the dtype."""
    n = args[0].numel()
    try:
        long = f(*(x.repeat_interleave(64) for x in args)).view(n, 64)
    except (RuntimeError, NotImplementedError):
        return None
    single = f(*(torch.stack([x, x], 1).flatten()[::2] for x in args))
    return [long[:, 0], long[:, 63], single, f(*args)]


def same(a: torch.Tensor, b: torch.Tensor, tolerance: float, absolute: float) -> torch.Tensor:
    if not a.dtype.is_floating_point:
        return a == b
    wide = torch.float64
    zeros = (a == 0) & (b == 0) & (absolute == 0)
    near = torch.isclose(a.to(wide), b.to(wide), rtol=tolerance, atol=0.0, equal_nan=True)
    apart, limits = (a.to(wide) - b.to(wide)).abs(), torch.finfo(a.dtype)
    near |= apart <= 4 * limits.tiny * limits.eps + absolute
    near |= ((a == 0) | (b == 0)) & (apart <= 2 * limits.tiny)  # eager may flush to zero
    return torch.where(zeros, a.signbit() == b.signbit(), near)


def report(
    name: str, dtype: torch.dtype, args: list[torch.Tensor], eager: list[torch.Tensor], got: torch.Tensor
) -> str:
    """What is wrong with `got`, or nothing."""
    tolerance = (
        (64 if name == "gelu_backward" else 16) * torch.finfo(got.dtype).eps if got.dtype.is_floating_point else 0.0
    )
    absolute = tolerance if name in CANCELS else 0.0
    right = torch.zeros(got.shape, dtype=torch.bool)
    for answer in eager:
        assert answer.dtype == got.dtype and answer.shape == got.shape
        right |= same(got, answer, tolerance, absolute)
    if right.all():
        return ""
    wrong = ~right
    shown = [x[wrong][:4].tolist() for x in args if x.shape == wrong.shape]
    return f"{dtype} of {shown} gives {got[wrong][:4].tolist()}, eager {eager[0][wrong][:4].tolist()}"


def compiled(f):
    torch.compiler.reset()
    return torch.compile(f, backend="mlirc", fullgraph=True, options={"fallback": "error"})


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", QUICK_NAMES)
def test_elementwise(name):
    check_elementwise(name)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(set(NAMES) - set(QUICK_NAMES)))
def test_more_elementwise(name):
    check_elementwise(name)


def check_elementwise(name):
    cls = OPS[name]
    cases = [(dtype, grid(cls, name, dtype)) for dtype in DTYPES]
    known = [(dtype, args, answers(cls.reference, args)) for dtype, args in cases]
    known = [(dtype, args, eager) for dtype, args, eager in known if eager is not None]
    got = compiled(lambda cases: [cls.reference(*args) for args in cases])([args for _, args, _ in known])
    wrong = [report(name, *case, result) for case, result in zip(known, got, strict=True)]
    assert not any(wrong), [name, *filter(None, wrong)]


CONSTANTS = (0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 2.0, -2.0, 3.0, -3.0, math.inf, -math.inf, math.nan)


TWO_OPERANDS = [
    pytest.param(n, marks=() if n in ("pow", "mul") else pytest.mark.full) for n in NAMES if arity(OPS[n]) == 2
]


@pytest.mark.parametrize("name", TWO_OPERANDS)
def test_an_operand_that_is_one_constant(name):
    """A filled tensor is a constant in the code, which may have formulas of its own there: powers, quotients, products."""
    reference, known = OPS[name].reference, []
    for dtype, constant, side in itertools.product((torch.float32, torch.float64, torch.int32), CONSTANTS, (0, 1)):
        x = specials(dtype)
        if not dtype.is_floating_point and (name in DIVISIONS or not float(constant).is_integer()):
            continue
        filled = torch.full_like(x, constant)
        args = [filled, x] if side else [x, filled]
        if (eager := answers(reference, args)) is not None:
            known.append((constant, side, x, args, eager))

    def program(xs):
        filled = [torch.full_like(x, constant) for x, (constant, *_) in zip(xs, known, strict=True)]
        return [reference(*((f, x) if k[1] else (x, f))) for f, x, k in zip(filled, xs, known, strict=True)]

    got = compiled(program)([x for _, _, x, _, _ in known])
    wrong = [report(name, x.dtype, args, eager, y) for (*_, x, args, eager), y in zip(known, got, strict=True)]
    assert not any(wrong), [name, *filter(None, wrong)]


EXPONENTS = (1 / 3, 2.2, -1.1, 0.1, 5.3, 2**24 + 1, 16777219.0, -16777217, 2**31 - 1, 2**53 - 1, 1e300, -1e300)


def test_powers_of_float32_take_the_exponent_that_was_written():
    """Eager's vectors round it to float32: a sign is lost then, and an error of log(x) units of x comes in."""
    x = torch.cat([specials(torch.float32), -1 - torch.arange(-2, 3) * 2.0**-23, torch.rand(40).mul(160).sub(80).exp()])
    parts = [x, x[:7], x[10:11], x[-3:]]
    run = compiled(lambda parts: [part**n for part in parts for n in EXPONENTS])
    expected = [(part, n, part.double() ** n) for part in parts for n in EXPONENTS]
    for got, (part, n, right) in zip(run(parts), expected, strict=True):
        torch.testing.assert_close(got, right.float(), rtol=2.0**-23, atol=2.0**-126, equal_nan=True)
        assert torch.equal(got.signbit() | got.isnan(), right.signbit() | right.isnan()), (part, n)


def test_powers_take_the_number_of_the_call():
    run = torch.compile(lambda x, n: (x ** (n / 2), x**n), backend="mlirc", dynamic=True, options={"fallback": "error"})
    for dtype in (torch.float32, torch.float64):
        x = torch.cat([specials(dtype), torch.tensor([1e30, 1e-30], dtype=dtype)])
        for n in (7, 1, -1, 2, 3, 2**24 + 1):
            for got, exponent in zip(run(x, n), (n / 2, n), strict=True):
                right = (x.double() ** exponent).to(dtype)
                torch.testing.assert_close(got, right, rtol=1e-6, atol=2.0**-126, equal_nan=True)
                assert torch.equal(got.signbit() | got.isnan(), right.signbit() | right.isnan()), (x, exponent)


# ---- ops of several elements. Those that PyTorch takes apart before a backend sees them (addcdiv, softshrink) are its own; a
# product that overflows in between does so in some orders only; fmod's quotient overflows in eager's vectors and ours.


def rows(dtype: torch.dtype, width: int) -> torch.Tensor:
    """Rows of each pair of special values among ordinary ones, at the start, in vectors and behind them."""
    values = specials(dtype)
    if dtype.is_floating_point:
        values = values[:14]
    pairs = torch.cartesian_prod(
        values.to(torch.float64 if dtype.is_floating_point else torch.int64),
        values.double() if dtype.is_floating_point else values.long(),
    )
    generator = torch.Generator().manual_seed(1)
    x = torch.randint(-3, 4, (len(pairs), width), generator=generator).to(pairs.dtype)
    places = torch.randint(0, width, (len(pairs), 2), generator=generator)
    x.scatter_(1, places, pairs)
    return x.to(dtype)


def moderate(x: torch.Tensor) -> torch.Tensor:
    """Finite numbers whose squares are, too."""
    return torch.where(x.isinf(), x, x.clamp(-1e15, 1e15))


REDUCTIONS = {
    "sum": lambda x: x.sum(1),
    "sum of all": lambda x: x.sum(),
    "sum of columns": lambda x: x.sum(0),
    "sum in float64": lambda x: (x if x.dtype.is_floating_point else x.short()).sum(1, dtype=torch.float64),
    "sum in int32": lambda x: x.sum(1, dtype=torch.int32),
    "nansum": lambda x: x.nansum(1),
    "mean": lambda x: x.mean(1),
    "prod": lambda x: x[:, :9].clamp(-7, 7).prod(1),
    "amax": lambda x: x.amax(1),
    "amin": lambda x: x.amin(0),
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(0),
    "max": lambda x: x.max(1).values,
    "max place": lambda x: x.max(1).indices,
    "min place": lambda x: x.min(0).indices,
    "any": lambda x: x.any(1),
    "all": lambda x: x.all(0),
    "count_nonzero": lambda x: x.count_nonzero(1),
    "var": lambda x: x.var(1),
    "std": lambda x: x.std(0),
    "var_mean var": lambda x: torch.var_mean(x, 1)[0],
    "var_mean mean": lambda x: torch.var_mean((x if x.dtype.is_floating_point else x.to(torch.int8)) / 64, 1)[1],
    "norm": lambda x: x.norm(dim=1),
    "norm 1": lambda x: x.norm(1, dim=1),
    "norm inf": lambda x: x.norm(math.inf, dim=1),
    "norm -inf": lambda x: x.norm(-math.inf, dim=1),
    "norm 0": lambda x: x.norm(0, dim=1),
    "logsumexp": lambda x: x.logsumexp(1),
    "softmax": lambda x: x.softmax(1),
    "softmax of columns": lambda x: x.softmax(0),
    "log_softmax": lambda x: x.log_softmax(1),
    "cumsum": lambda x: x.cumsum(1),
    "cumprod": lambda x: x[:, :9].clamp(-7, 7).cumprod(1),
    "cummax": lambda x: x.cummax(1).values,
    "cummax place": lambda x: x.cummax(1).indices,
    "cummin place": lambda x: x.cummin(1).indices,
    "logcumsumexp": lambda x: x.logcumsumexp(1),
    "max_pool": lambda x: F.max_pool1d(x[None], 3, 2),
    "max_pool place": lambda x: F.max_pool1d(x[None], 3, 2, return_indices=True)[1],
    "avg_pool": lambda x: F.avg_pool1d(x[None], 3),
    "layer_norm": lambda x: F.layer_norm(x, x.shape[1:]),
    "group_norm": lambda x: F.group_norm(x[None].transpose(0, 1), 1) + 0.0,
    "rms_norm": lambda x: F.rms_norm(moderate(x), x.shape[1:]),
    "clamp nan": lambda x: x.clamp(x[:, :1], x[:, 1:2]),
    "lerp": lambda x: torch.lerp(x, x.flip(0), 0.3),
    "nan_to_num": lambda x: x.nan_to_num(),
    "ldexp": lambda x: torch.ldexp(x, torch.arange(x.shape[1]) - 5),
    "power -0.5": lambda x: x**-0.5,
    "power 0.5": lambda x: x**0.5,
    "power -1": lambda x: x**-1,
    "power 3": lambda x: x**3,
    "power -2": lambda x: x**-2,
    "power 1.5": lambda x: x**1.5,
    "0 to the power": lambda x: 0**x,
    "floor_divide number": lambda x: x // 0.3,
    "remainder number": lambda x: x.clamp(-100, 100) % -0.3,
    "trunc_divide number": lambda x: torch.div(x, 0.3, rounding_mode="trunc"),
    "divide by -1": lambda x: [x // -1, x % -1, torch.fmod(x, -1)][1],
    "floor by 3": lambda x: x // 3,
    "remainder by -3": lambda x: x % -3,
    "shift": lambda x: (x << 3) + (x >> 2),
    "shift far": lambda x: (x << 100 if x.dtype == torch.int8 else x << 5) + (x >> 65),
    "shift back": lambda x: (x >> -1) + (x << -1),
    "invert": lambda x: ~x,
    "less than a float": lambda x: x < 0.5,
    "equal to a float": lambda x: x == 9.007199254740993e15,
    "less than an integer": lambda x: x < 2**53 + 1,
    "less than another dtype": lambda x: x <= x.to(torch.float32),
    "sign": lambda x: x.sgn(),
    "frexp": lambda x: torch.frexp(x)[0],
    "logit": lambda x: x.logit(1e-3),
    "polygamma": lambda x: torch.special.i0e(x),
    "threshold": lambda x: F.threshold(x, 0.5, 7),
    "hardtanh": lambda x: F.hardtanh(x),
    "relu6": lambda x: F.relu6(x),
    "elu": lambda x: F.elu(x),
    "celu": lambda x: F.celu(x),
    "selu": lambda x: F.selu(x),
    "softplus": lambda x: F.softplus(x),
    "softsign": lambda x: F.softsign(x),
    "hardshrink": lambda x: F.hardshrink(x),
    "glu": lambda x: F.glu(x[:, : x.shape[1] // 2 * 2]),
    "leaky_relu": lambda x: F.leaky_relu(x),
    "addcmul": lambda x: torch.addcmul(x, x, x.flip(0), value=2),
    "rsub": lambda x: 3 - x,
    "alpha": lambda x: torch.add(x, x.flip(0), alpha=3),
    "gradient of tanh": lambda x: torch.ops.aten.tanh_backward(x, x),
    "bce": lambda x: F.binary_cross_entropy_with_logits(x, torch.ones_like(x), reduction="none"),
    "smooth_l1": lambda x: F.smooth_l1_loss(x, x.flip(0), reduction="none"),
    "huber": lambda x: F.huber_loss(x, x.flip(0), reduction="none"),
    "mse": lambda x: F.mse_loss(x, x.flip(0), reduction="none"),
    "logaddexp": lambda x: torch.logaddexp(x, x.flip(0)),
    "isclose": lambda x: torch.isclose(x, x.flip(0), equal_nan=True),
    "where": lambda x: torch.where(x > 0, x, 0),
    "masked_fill": lambda x: x.masked_fill(x == x, 1),
    "tril": lambda x: x.tril(),
    "diff": lambda x: x.diff(),
    "round 1": lambda x: x.round(decimals=1),
}


QUICK = {"sum", "argmax", "var", "var_mean mean", "layer_norm", "divide by -1", "shift back", "power 0.5", "clamp nan"}


def way(f, x: torch.Tensor) -> list[torch.Tensor] | None:
    try:
        transposed = f(x.t().contiguous().t())
        return [f(x), transposed]
    except (RuntimeError, NotImplementedError, TypeError):
        return None


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", sorted(QUICK))
def test_rows(name):
    check_rows(name)


@pytest.mark.full
@pytest.mark.parametrize("name", sorted(REDUCTIONS.keys() - QUICK))
def test_more_rows(name):
    check_rows(name)


def check_rows(name):
    f = REDUCTIONS[name]
    cases = [(dtype, rows(dtype, 37)) for dtype in DTYPES]
    known = [(dtype, x, way(f, x)) for dtype, x in cases if "shift" not in name or dtype != torch.bool]
    known = [(dtype, x, eager) for dtype, x, eager in known if eager is not None]
    got = compiled(lambda *xs: [f(x) for x in xs])(*(x for _, x, _ in known))
    wrong = [report(name, dtype, [x], eager, result) for (dtype, x, eager), result in zip(known, got, strict=True)]
    assert not any(wrong), [name, *filter(None, wrong)]


@pytest.mark.parametrize("dynamic", [False, True])
def test_limits_that_are_numbers_keep_the_sign_of_zero(dynamic):
    limits = [(0, None), (None, 0), (0, 2), (-1, 0), (0, 0), (0, 2.0), (0.0, None)]
    for dtype in FLOATS:
        x = torch.tensor([0.0, -0.0, 1.0, -1.0, math.nan, -math.inf] * 9, dtype=dtype)
        torch.compiler.reset()
        f = torch.compile(lambda x, limits: [x.clamp(*pair) for pair in limits], backend="mlirc", dynamic=dynamic)
        for pair, got in zip(limits, f(x, limits), strict=True):
            assert same(x.clamp(*pair), got, 0.0, 0.0).all(), (dtype, pair)


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("dim", [0, 1])
def test_a_running_product_vanishes_and_overflows_where_eagers_does(dim, dtype):
    """Of what has vanished infinity makes NaN; argmin finds it."""
    least = torch.finfo(dtype).tiny
    generator = torch.Generator().manual_seed(1)
    choices = torch.tensor([least, 0.5, -least / 2, math.inf, 2.0, 0.3, torch.finfo(dtype).max / 4, -1.0], dtype=dtype)
    x = choices[torch.randint(0, 8, (40, 37), generator=generator)]
    f = lambda x: [x.cumprod(dim), x.cumprod(dim).argmin(1 - dim), x.cumsum(dim)]
    for got, eager in zip(compiled(f)(x), f(x), strict=True):
        assert same(eager, got, 0.01 if eager.is_floating_point() else 0.0, 0.0).all()


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_logarithms_of_sums_of_powers_of_two_leave_what_eagers_leave(dtype):
    """log2(2**-1 + 2**-1) is -1e-8 in float32, and so not zero."""
    x = torch.cat([torch.arange(-4.0, 4.0, 0.5), torch.tensor([math.inf, -math.inf, math.nan])]).to(dtype)
    f = lambda x: [torch.logaddexp2(x, x) != 0, torch.logaddexp2(x, x + 1).count_nonzero(), torch.logaddexp(x, -x) != 0]
    assert all(map(torch.equal, compiled(f)(x), f(x)))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.filterwarnings("ignore:.*degrees of freedom")
def test_moments_of_one_element(dtype):
    f = lambda xs: [
        v for x in xs for c in (0, 1) for v in (*torch.var_mean(x, correction=c), *torch.std_mean(x, correction=c))
    ]
    xs = [
        x
        for n in (math.inf, -math.inf, math.nan, -0.0, 3.0)
        for x in (torch.tensor(n, dtype=dtype), torch.tensor([[n]], dtype=dtype))
    ]
    for got, eager in zip(compiled(f)(xs), f(xs), strict=True):
        assert same(eager, got, 0.0, 0.0).all()
