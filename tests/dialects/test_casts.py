"""Conversions of floating-point numbers that no integer is near, against eager: NaN, infinities, and what does not fit.

On x86 eager gives the same in its vectors, in the rest of a row, of 0-d tensors and under any strides: no list is needed
of where it contradicts itself. (It does so for uint16, uint32 and uint64, with which no kernel of ours computes.)
"""

import math

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from tests.vector_kernel import elementwise

pytestmark = pytest.mark.thinned

FLOATS = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
TARGETS = sorted((t for t in KERNEL_DTYPES if not t.is_floating_point), key=str)
LIMITS = [2.0**bits for bits in (7, 8, 15, 16, 31, 32, 53, 63, 64, 127, 1000)]
NEAR = [sign * (limit + by) for limit in LIMITS for sign in (1, -1) for by in (0, 1, -1, 0.5, -0.5, 5)]
SPECIAL = [0.0, -0.0, math.nan, math.inf, -math.inf, 0.99, -0.99, 1.5, -1.5, 3e9, -3e9, 300.7, 65504.0, 5e-324, *NEAR]


def specials(dtype: torch.dtype) -> torch.Tensor:
    """An odd number of them, so that there is a rest behind the vectors."""
    return torch.tensor([*SPECIAL, *SPECIAL, 7.0], dtype=torch.float64).to(dtype)


def compiled(f):
    torch.compiler.reset()
    return torch.compile(f, backend="mlirc", fullgraph=True, options={"fallback": "error"})


def check(f, *args):
    expected, got = f(*args), compiled(f)(*args)
    for k, (a, b) in enumerate(zip(got, expected, strict=True)):
        torch.testing.assert_close(a, b, rtol=0, atol=0, equal_nan=True, msg=lambda text, k=k: f"result {k}: {text}")


@pytest.mark.parametrize("lanes", (16, 1))
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_builder(source, lanes):
    x = specials(source)[:144]
    for target in TARGETS:
        got = elementwise(lambda b, x, t=target: b.cast(x, t), [source], target, lanes)(x)
        assert torch.equal(got, x.to(target)), target


@pytest.mark.parametrize("source", (torch.float64, torch.float32), ids=str)
def test_builder_on_constants(source):
    """LLVM folds these: to what the processor would have given."""
    for value in (math.nan, math.inf, -math.inf, 3e9, 2.0**32 + 5, 1.5):
        for target in (torch.int64, torch.int32, torch.uint8):
            body = lambda b, x, v=value, t=target: b.cast(b.select(b.ne(x, x), x, b.constant(v)), t)
            got = elementwise(body, [source], target, 16)(torch.zeros(16, dtype=source))
            assert torch.equal(got, torch.full((16,), value, dtype=source).to(target)), (value, target)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_graphs(source):
    """Contiguous, strided, transposed and 0-d."""
    x = specials(source)
    n = x.numel()
    every_other = torch.stack([x, x], 1).flatten()[::2]
    transposed = x.repeat(3).view(3, n).t()
    single = x.new_tensor(math.nan)

    def f(*args):
        return [x.to(target) for x in args for target in TARGETS]

    check(f, x, every_other, transposed, single)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("source", FLOATS, ids=str)
def test_what_is_computed_before(source):
    """What LLVM knows of a value must not let it take another."""

    def f(x):
        big = [x * math.inf, x.masked_fill(x > 0, 57344.0), x.clamp(min=57344.0), x / 0.0]
        return [y.to(target) for y in big for target in TARGETS]

    check(f, specials(source))


@pytest.mark.thinned(2)
@pytest.mark.parametrize("source", FLOATS, ids=str)
@pytest.mark.parametrize("value", [math.nan, -math.inf, 2.0**32 + 5])
def test_constants(source, value):
    """Numbers that the graph knows."""

    def f(x):
        full = torch.full((3,), value, dtype=torch.float64).to(source)
        single = torch.tensor(value, dtype=torch.float64).to(source)
        return [x + y.to(t).to(torch.int64) for y in (full, single) for t in TARGETS]

    check(f, torch.zeros(3, dtype=torch.int64))


@pytest.mark.parametrize("value", [1.5, -7.0, 2.0**31, -(2.0**40), math.nan, math.inf, -math.inf])
def test_constant_folding_leaves_what_processors_differ_in(value):
    """Of this processor's own answer the results above say nothing: the pass must not know it."""
    for name in ("i8", "ui8", "i32", "i64", "i1", "f32"):
        with context(), ir.Location.unknown():
            module = ir.Module.parse(f"""func.func @graph() -> tensor<{name}> {{
                %0 = "mlirc.constant"() {{value = "{value.hex()}"}} : () -> tensor<f64>
                %1 = "mlirc.cast"(%0) : (tensor<f64>) -> tensor<{name}>
                return %1 : tensor<{name}>
            }}""")
            run_pipeline(module, "fold-constants", verify=False)
        defined = name in ("i1", "f32") or abs(value) < 2.0**31
        assert ("mlirc.cast" in str(module)) != defined, (value, name)


def test_a_mask_is_kept():
    """Of issue 15: a constant became poison, and the mask before it went."""
    x = torch.randn(5, 37)
    check(lambda x: [x.masked_fill(x > 0, 57344.0).cumsum(1, dtype=torch.int32)], x)
    check(lambda x: [(x * float("inf")).to(torch.int64)], x)
    check(lambda x: [torch.where(x > 0, math.nan, x).sum(1, dtype=torch.int32)], x)
    check(lambda x: [torch.where(x > 0, math.inf, x).to(torch.int8).long() + 1], x)


def test_to_bool():
    """NaN and the least subnormal are true, both zeros false."""
    for dtype in FLOATS:
        least = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
        x = torch.tensor([math.nan, 0.0, -0.0, least, -least, math.inf], dtype=torch.float64).to(dtype)
        check(lambda x: [x.bool(), x.logical_not(), x.logical_and(x), torch.where(x.bool(), 1, 2)], x)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int64, torch.float16, torch.float32], ids=str)
def test_numbers_that_overflow_raise(dtype):
    """Where eager raises for a number that its dtype does not hold, so does a compiled graph; else both give the same."""

    def outcome(f):
        try:
            return f()
        except RuntimeError:
            return "raises"

    x = torch.arange(6).to(dtype)
    numbers = (300, -1, -300, 3e9, 3e19, 1e39, math.inf, 65519.9, 2.7)
    for k, value in enumerate(numbers):
        ways = [lambda v=value: torch.full((3,), v, dtype=dtype) * 1, lambda v=value: x.clone().fill_(v)]
        if not (isinstance(value, float) and (math.isinf(value) or math.isnan(value)) and not dtype.is_floating_point):
            ways += [lambda v=value: x.masked_fill(x > 2, v)]  # of infinities PyTorch's own meta function raises
        f = ways[k % len(ways)]
        torch.compiler.reset()
        expected, got = outcome(f), outcome(torch.compile(f, backend="mlirc"))
        assert isinstance(expected, str) == isinstance(got, str), (value, expected, got)
        if not isinstance(expected, str):
            torch.testing.assert_close(got, expected, rtol=0, atol=0, equal_nan=True)
