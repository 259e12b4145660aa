"""Half types: where eager's rounding between two ops shows, a kernel that holds both rounds, too.

Elsewhere a chain keeps float32's precision (docs/decisions.md). A product of two numbers of 8 or 11 bits is hardly ever one
of these: here it is always made in the kernel that looks at it.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from mlirc.dialects.core.dialect import OPS, Elementwise, load_ops
from tests.dialects.test_scalar_ops import arity

pytestmark = pytest.mark.thinned

load_ops()
HALVES = (torch.bfloat16, torch.float16)
JUMPING = sorted(
    n for n, c in OPS.items() if issubclass(c, Elementwise) and c.jumps and n != "cancel"
)  # test_half_chains.py
EXACT = [
    "eq",
    "ne",
    "lt",
    "le",
    "gt",
    "ge",
    "isnan",
    "isinf",
    "isfinite",
    "isposinf",
    "isneginf",
    "signbit",
    "floor",
    "ceil",
    "trunc",
    "round",
    "frac",
    "sign",
    "heaviside",
]


def compiled(f):
    torch.compiler.reset()
    return torch.compile(f, backend="mlirc", fullgraph=True, options={"fallback": "error"})


def factors(dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Whose products lie beside whole numbers, 0, 1, infinity, and anywhere."""
    generator = torch.Generator().manual_seed(3)
    wide = torch.randn(800, generator=generator).exp() * torch.randn(800, generator=generator).sign()
    x = torch.cat([wide, 1 / wide, torch.tensor([3e-5, 6e-8, 250.0, math.inf, math.nan, 0.0, -0.0, 300.0])]).to(dtype)
    whole = torch.cat([wide.round() / wide, wide, torch.tensor([1e-4, -6e-8, 262.0, 0.0, 1.0, -1.0, -2.0, -300.0])])
    return x, whole.to(dtype)


def check(f, *args, tolerance=0.0):
    expected, got = f(*args), compiled(f)(*args)
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        torch.testing.assert_close(a, b, rtol=tolerance, atol=0, equal_nan=True, msg=lambda text, k=k: f"{k}: {text}")


def test_the_ops_that_jump():
    """Whoever adds an op says whether it jumps; these do for certain."""
    assert set(JUMPING) >= set(EXACT) | {
        "remainder",
        "fmod",
        "floor_divide",
        "trunc_divide",
        "log",
        "asin",
        "pow",
        "sqrt",
    }


@pytest.mark.thinned(11)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", JUMPING)
def test_what_jumps_gets_rounded_operands(name, dtype):
    cls = OPS[name]
    x, y = factors(dtype)
    if name == "signbit":  # a NaN's sign is eager's own business: vectors and tails of bfloat16 differ
        y = y.where(~(x * y).isnan(), 1).where(~x.isnan(), 1)
        x = x.nan_to_num(1)
    others = [torch.ones_like(x) + x.nan_to_num(0.5, 0.5, 0.5) % 3 for _ in range(arity(cls) - 1)]
    try:
        cls.reference(x, *others)
    except NotImplementedError:
        pytest.skip(f"eager has no {name} of {dtype}")

    def f(x, y, *others):
        return [cls.reference(x * y, *others)]

    check(f, x, y, *others, tolerance=0.0 if name in EXACT else 2 * torch.finfo(dtype).eps)


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_what_is_cast_is_rounded(dtype):
    x, y = factors(dtype)
    targets = (torch.float64, torch.float32, torch.int64, torch.int32, torch.uint8, torch.bool)
    other = HALVES[dtype == torch.bfloat16]
    check(lambda x, y: [(x * y).to(t) for t in (*targets, other)], x, y)
    check(lambda x, y: [(x * y) == (x * y).float(), x * y == 1, (x * y).nan_to_num(1).view(torch.int16)], x, y)
    check(
        lambda x, y: [torch.where(x > 0, x * y, y).float(), torch.where((x * y).bool(), x, y), F.relu(x * y).float()],
        x,
        y,
    )


@pytest.mark.parametrize("dtype", HALVES, ids=str)
def test_where_the_largest_is(dtype):
    """Numbers that are equal once they are rounded."""
    generator = torch.Generator().manual_seed(5)
    x = (1 + torch.rand(40, 64, generator=generator) / 50).to(dtype)
    y = (1 + torch.rand(40, 64, generator=generator) / 50).to(dtype)
    check(
        lambda x, y: [(x * y).argmax(1), (x * y).argmin(1), (x * y).argmax(0), *(x * y).max(1), *(x * y).min(0)], x, y
    )
    check(lambda x, y: [*(x * y).cummax(1), *(x * y).cummin(0), (x * y).any(1), (x * y - x * y).all(1)], x, y)
    check(lambda x, y: [*F.max_pool1d((x * y)[None], 3, 2, return_indices=True)], x, y)


def gradient(f, x, y, dtype):
    x, y = x.clone().requires_grad_(), y.clone().requires_grad_()
    f(x, y).sum().backward()
    return [x.grad, y.grad]


KINKS = [
    F.relu,
    F.relu6,
    F.hardtanh,
    F.leaky_relu,
    F.elu,
    F.hardshrink,
    F.softshrink,
    F.hardswish,
    F.hardsigmoid,
    lambda x: F.threshold(x, 1.0, 0.0),
    lambda x: x.clamp(-1, 1),
    lambda x: x.abs(),
    lambda x: torch.maximum(x, x.detach() * 0 + 1),
]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("kink", range(len(KINKS)))
def test_gradients_at_kinks(kink, dtype):
    """The product in front of it is rounded to the kink itself, or beside it."""
    x, y = factors(dtype)
    finite = (x * y).isfinite() & (x * y != 0)  # of 0 times a number that vanishes either sign
    f = lambda x, y: KINKS[kink](x * y)
    torch.compiler.reset()
    expected = gradient(f, x[finite], y[finite], dtype)
    got = gradient(torch.compile(f, backend="mlirc", fullgraph=True), x[finite], y[finite], dtype)
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=3 * torch.finfo(dtype).eps, atol=torch.finfo(dtype).tiny, equal_nan=True)


COMPOSED = {
    "mm": lambda x, w: x @ w,
    "linear": lambda x, w: F.linear(x, w, x[0]),
    "softmax": lambda x, w: x.softmax(-1),
    "log_softmax": lambda x, w: x.log_softmax(-1),
    "layer_norm": lambda x, w: F.layer_norm(x, (64,), w[0], w[1]),
    "rms_norm": lambda x, w: F.rms_norm(x, (64,), w[0]),
    "group_norm": lambda x, w: F.group_norm(x[:, :, None], 8, w[0], w[1]),
    "batch_norm": lambda x, w: F.batch_norm(x, w[0], w[1].abs(), w[2], w[3]),
    "gelu": lambda x, w: F.gelu(x),
    "sum": lambda x, w: x.sum(1),
    "mean": lambda x, w: x.mean(0),
    "std": lambda x, w: x.std(1),
    "logsumexp": lambda x, w: x.logsumexp(1),
    "norm": lambda x, w: x.norm(dim=1),
    "cumsum": lambda x, w: x.cumsum(1),
    "attention": lambda x, w: F.scaled_dot_product_attention(x[None], w[None], x[None]),
    "conv": lambda x, w: F.conv1d(x[None], w[:, :, None]),
    "avg_pool": lambda x, w: F.avg_pool1d(x[None], 3),
    "interpolate": lambda x, w: F.interpolate(x[None], scale_factor=1.7, mode="linear"),
    "lerp": lambda x, w: torch.lerp(x, w, 0.3),
    "addcmul": lambda x, w: torch.addcmul(x, w, w, value=0.3),
    "silu": lambda x, w: F.silu(x) * w,
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("dtype", HALVES, ids=str)
@pytest.mark.parametrize("name", COMPOSED)
def test_a_result_that_is_cast_up_is_one_of_its_dtype(name, dtype):
    generator = torch.Generator().manual_seed(1)
    x, w = (torch.randn(64, 64, generator=generator).to(dtype) for _ in range(2))
    f = compiled(lambda x, w: [COMPOSED[name](x, w).float(), COMPOSED[name](x, w).double(), COMPOSED[name](x, w)])
    single, double, half = f(x, w)
    assert torch.equal(single, half.float()) and torch.equal(double, half.double())


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_exponents(dtype):
    """Eager rounds a constant exponent to the dtype, and what is 0.5 only then is no square root."""
    near = [sign * (e + d) for e in (0.5, 1, 2, 3, 5) for d in (-1e-5, 0, 1e-5, 1e-3) for sign in (1, -1)]
    exponents = [*near, 33.3, 257, 2049, 1e-50]

    def powers(x):
        return [x**e for e in exponents]

    x = torch.tensor([2, -2, 1, -1, 0.0, -0.0, float("inf"), float("-inf"), 0.3, -0.7, 1.01]).to(dtype).repeat(4)
    run = torch.compile(powers, backend="mlirc", options={"fallback": "error"})
    for e, found, expected in zip(exponents, run(x), powers(x), strict=True):
        limit = 2 * torch.finfo(dtype).eps
        torch.testing.assert_close(found, expected, rtol=limit, atol=1e-6, equal_nan=True, msg=f"x ** {e}")
