"""Elementary functions and activations at numbers where rounding errors grow, and the measure of their errors: units in the last place."""

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

UNARY: dict[str, Callable] = {
    name: getattr(torch, name)
    for name in (
        *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
        *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "erfinv", "sigmoid", "sqrt", "rsqrt"),
        *("reciprocal", "square", "lgamma", "digamma", "sinc", "logit", "i0", "deg2rad"),
    )
} | {
    "gelu": F.gelu,
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
    "softplus": F.softplus,
    "softplus_beta": lambda x: F.softplus(x, beta=2.5, threshold=8),
    "mish": F.mish,
    "elu": F.elu,
    "selu": F.selu,
    "celu": lambda x: F.celu(x, 0.7),
    "logsigmoid": F.logsigmoid,
    "softsign": F.softsign,
    "tanhshrink": F.tanhshrink,
    "hardswish": F.hardswish,
    "pow_2.2": lambda x: x.abs() ** 2.2,
    "pow_3": lambda x: x**3,
    "pow_-1.5": lambda x: x.abs() ** -1.5,
    "pow_of_2": lambda x: 2**x,
    "pow_of_1.1": lambda x: 1.1**x,
    "erfcx": torch.special.erfcx,
    "entr": torch.special.entr,
    "ndtr": torch.special.ndtr,
    "log_ndtr": torch.special.log_ndtr,
    "ndtri": torch.special.ndtri,
}
BINARY: dict[str, Callable] = {
    "pow": lambda x, y: x.abs() ** y,
    "atan2": torch.atan2,
    "hypot": torch.hypot,
    "logaddexp": torch.logaddexp,
    "logaddexp2": torch.logaddexp2,
    "xlogy": torch.special.xlogy,
    "xlog1py": torch.special.xlog1py,
    "div": torch.div,
    "remainder": torch.remainder,
    "fmod": torch.fmod,
    "lerp": lambda x, y: torch.lerp(x, y, 0.3),
    "bce": lambda x, y: F.binary_cross_entropy_with_logits(x, y, reduction="none"),
    "addcmul": lambda x, y: torch.addcmul(x, x, y, value=0.3),
}
# how far over the limit a function may be, and why
ALLOWED = {
    "expm1": 1.1,  # the gradient is expm1 + 1, which cancels near -1
    "selu": 1.5,  # subnormal numbers: expm1 is off by one of them, times 1.76
    "sinc": 1.5,  # the gradient is a difference over x * x
    "tanhshrink": 1.25,  # x - tanh(x)
    "erfcx": 1.2,  # the numbers; the gradient is 2 * x * erfcx(x) - 1.13, which cancels at large x
    "logaddexp": 4.0,  # it crosses 0, where two numbers of size 1 cancel: few of those are tried
    "logaddexp2": 4.0,
}
WITHOUT_GRADIENT = ("erfcx",)
POINTS = [0.0, 0.5, 1.0, 2.0, 3.0, math.e, math.pi / 2, math.pi, 2 * math.pi, 8.0, 9.0, 20.0, 88.72, 87.3, 103.97, 1e4]
BIN = 256  # neighbours among which eager's largest error is looked for


def numbers(dtype: torch.dtype, seed: int = 0) -> torch.Tensor:
    """All numbers of a half type; of float32 some of each magnitude, some near special points, and some in common ranges. Sorted."""
    g = torch.Generator().manual_seed(seed)
    if dtype != torch.float32:
        x = torch.arange(-(1 << 15), 1 << 15).to(torch.int16).view(dtype)
    else:
        every = torch.arange(-(1 << 31), 1 << 31, 1 << 17) + torch.randint(0, 1 << 17, (1 << 15,), generator=g)
        middles = torch.tensor([s * p for p in POINTS for s in (1, -1)])
        near = middles.view(torch.int32)[:, None] + torch.randint(-512, 512, (len(middles), 256), generator=g).int()
        fine = [torch.rand(1 << 14, generator=g) * 2 * top - top for top in (0.1, 1.5, 6.0, 90.0)]
        x = torch.cat([every.to(torch.int32).view(torch.float32), near.flatten().view(torch.float32), *fine])
    return x[x.isfinite()].sort()[0]


def pairs(dtype: torch.dtype, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    """Numbers, some with one of any magnitude, some with one near by, some with one of common size."""
    g = torch.Generator().manual_seed(seed)
    x = numbers(dtype, seed)
    y = x[torch.randperm(len(x), generator=g)]
    near, common = (
        (x.double() * (1 + torch.randn(len(x), generator=g) / 64)).to(dtype),
        torch.randn(len(x), generator=g).to(dtype),
    )
    return x, torch.where(torch.arange(len(x)) % 3 == 0, y, torch.where(torch.arange(len(x)) % 3 == 1, near, common))


def ulps(got: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    """The distance from float64 results in units of the last place of got's dtype; 0 where both overflow or are NaN."""
    info = torch.finfo(got.dtype)
    bits = round(-math.log2(info.eps))
    rounded = exact.to(got.dtype)
    least = round(math.log2(info.smallest_normal)) - bits
    unit = torch.ldexp(torch.ones_like(exact), (torch.frexp(exact).exponent - 1 - bits).clamp(min=least))
    error = (got.double() - exact).abs() / unit
    equal = (got == rounded) | (got.isnan() & exact.isnan())
    edge = (
        (rounded.isinf() | got.isinf())
        & (exact.abs() > info.max * (1 - info.eps))
        & (exact.abs() < info.max * (1 + info.eps))
    )
    return torch.where(equal | edge, 0.0, error.nan_to_num(nan=math.inf))


def in_bins(error: torch.Tensor) -> torch.Tensor:
    """The largest finite error among the neighbours of each bin, for each element."""
    count = -(-len(error) // BIN)
    padded = F.pad(torch.where(error.isfinite(), error, 0.0), (0, count * BIN - len(error))).view(count, BIN).amax(1)
    around = F.max_pool1d(padded[None], 3, 1, 1)[0]
    return around.repeat_interleave(BIN)[: len(error)]


def excess(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor, floor: float) -> torch.Tensor:
    """Our error over the limit, for each element: twice eager's among its neighbours, and `floor` units. An element at which
    eager's own result is far off has no limit."""
    ours, eagers = ulps(got, exact), ulps(eager, exact)
    limit = torch.maximum(2 * in_bins(eagers), 2 * eagers).clamp(min=floor)
    return torch.where(eagers.isinf(), 0.0, ours / limit)
