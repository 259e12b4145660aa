"""Random expressions of two tensors whose dtypes are any pair of PyTorch's, with limits, NaN and infinities among the elements, against eager."""

import linecache
import random

import pytest
import torch

from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode

DTYPES = [torch.uint8, torch.uint16, torch.uint32, torch.uint64, torch.int8, torch.int16, torch.int32, torch.int64]
DTYPES += [torch.bool, torch.float16, torch.bfloat16, torch.float32, torch.float64]
DTYPES += [torch.complex32, torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2]
DTYPES += [torch.float8_e4m3fnuz, torch.float8_e5m2fnuz, torch.float8_e8m0fnu]
EXPRESSIONS = ["x + y", "x - y", "x * y", "x / y", "x // y", "x % y"]
EXPRESSIONS += ["x == y", "x != y", "x < y", "x >= y", "x & y", "x | y"]
EXPRESSIONS += ["x ^ y", "-x", "~x", "abs(x)", "x * 2", "x + 300"]
EXPRESSIONS += [
    "x - y[1]",
    "y[0] * x",
    "torch.maximum(x, y)",
    "torch.minimum(x, y)",
    "torch.where(x == x, x, y)",
    "torch.where(y == y, 1, x)",
]
EXPRESSIONS += [
    "torch.where(x < y, y, x)",
    "torch.logical_and(x, y)",
    "torch.logical_xor(x, y)",
    "x.to(y.dtype)",
    "y.to(x.dtype)",
    "x.clone().copy_(y)",
]
EXPRESSIONS += [
    "x.clone().add_(y)",
    "torch.cat([x, y])",
    "torch.stack([x, y])",
    "x.type_as(y)",
    "(x < y).to(y.dtype) + y",
    "torch.clamp(x, 1, 3)",
]
EXPRESSIONS += [
    "x.masked_fill(y == y, 1)",
    "torch.full_like(x, 3)",
    "torch.tensor(3, dtype=x.dtype) + y",
    "torch.tensor([1, 2, 3]).to(x.dtype)",
    "x.sum()",
    "x.amax(0)",
]
EXPRESSIONS += ["x.any()", "x.sort()[0]", "x.view(torch.uint8)", "x.flip(0)", "x.repeat(2)", "x.isnan()"]
EXPRESSIONS += [
    "x.isfinite()",
    "x.sign()",
    "torch.eq(x, y).sum()",
    "x[torch.tensor([1, 0])]",
    "torch.full((2,), torch.iinfo(torch.int8).max, dtype=x.dtype)",
    "x == 300",
]
EXPRESSIONS += ["x < 1.5", "x.index_put((torch.arange(2),), y[:2])"]
EXACT = {torch.float64: 1e-13, torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1.6e-2}
EXACT |= {torch.complex128: 1e-13, torch.complex64: 1e-5, torch.complex32: 3e-3}


def elements(dtype: torch.dtype) -> torch.Tensor:
    if dtype == torch.bool:
        return torch.tensor([True, False, True, True, False, False, True, False, True])
    if dtype.is_complex:
        given = [0, 1, -1j, 2.5 + 1j, -0.0, 1e3 - 2j, complex("inf"), complex("nan"), -3.25 + 0.5j]
        return torch.tensor(given, dtype=torch.complex128).to(dtype)
    if dtype.is_floating_point:
        given = [0.0, -0.0, 1.0, -1.5, 2.5, 100.25, float("inf"), float("nan"), torch.finfo(dtype).max]
        return torch.tensor(given, dtype=torch.float64).to(dtype)
    limits = torch.iinfo(dtype)
    return torch.tensor([0, 1, 2, 3, 7, limits.max, limits.min, limits.max - 1, limits.max // 2 + 1], dtype=dtype)


def program(expressions: list[str]):
    """A function of x and y that returns these expressions."""
    text = f"def f(x, y):\n    return [{', '.join(expressions)}]\n"
    name = f"<{hash(text)}>"
    linecache.cache[name] = (len(text), None, text.splitlines(True), name)
    scope: dict = {"torch": torch}
    exec(compile(text, name, "exec"), scope)
    return scope["f"]


def outcome(function, *args):
    """What a call gives, or that it raises."""
    try:
        return function(*(x.clone() for x in args))
    except (RuntimeError, NotImplementedError, TypeError, ValueError):
        return None


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.full) for k in range(2, 150))])
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
@pytest.mark.filterwarnings("ignore:ComplexHalf support is experimental")
def test_as_eager(seed):
    """All expressions that eager and PyTorch's tracing take are one graph; one that both refuse is refused."""
    rng = random.Random(seed)
    x, y = (elements(dtype) for dtype in rng.sample(DTYPES, 2))
    chosen = rng.sample(EXPRESSIONS, 24)
    single: dict = {text: outcome(program([text]), x, y) for text in chosen}
    taken = [text for text in chosen if single[text] is not None and is_traced(text, x, y)]
    if casts_out_of_range(x, y):
        taken = [
            text
            for text in taken
            if ".to(" not in text and not any(word in text for word in ("copy_", "type_as", "put"))
        ]
    torch._dynamo.reset()
    dynamic = rng.random() < 0.5
    compiled = torch.compile(program(taken), backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for text, found in zip(taken, compiled(x.clone(), y.clone()), strict=True):
        (expected,) = single[text]
        told = f"{text} of {x.dtype} and {y.dtype}"
        assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride()), told
        wide = torch.complex128 if found.is_complex() else torch.float64 if found.is_floating_point() else None
        a, b = (v.tolist() if wide is None else v.to(wide) for v in (found, expected))
        if wide is None:
            assert a == b, told
        else:
            same = lambda text, told=told: f"{told}: {text}"
            torch.testing.assert_close(a, b, rtol=EXACT.get(found.dtype, 0), atol=0, equal_nan=True, msg=same)
    for text in [text for text in chosen if single[text] is None][:1]:
        torch._dynamo.reset()
        refused = outcome(torch.compile(program([text]), backend="mlirc"), x, y) is None
        assert refused, f"{text} of {x.dtype} and {y.dtype}"


def is_traced(text: str, x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether PyTorch's fake tensors take the expression."""
    with FakeTensorMode() as mode:
        try:
            program([text])(mode.from_tensor(x), mode.from_tensor(y))
        except Exception:
            return False
    return True


def casts_out_of_range(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Whether floats become unsigned integers that do not hold them: eager's vectors and its single elements differ."""
    unsigned = (torch.uint8, torch.uint16, torch.uint32, torch.uint64)
    return x.dtype.is_floating_point != y.dtype.is_floating_point and (x.dtype in unsigned or y.dtype in unsigned)
