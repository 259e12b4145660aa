"""Folds whose kind an op defines, by how it combines two values: in machine code, in Triton, and as interpreted."""

import math

import pytest
import torch

from mlirc.codegen.cuda.triton_compile import compile_kernels
from mlirc.dialects.core.dialect import COMBINED, OPS, Reduction
from mlirc.dialects.core.kernel_ops import reductions, scans
from mlirc.dialects.interpreter.kernels import fold, running_fold
from mlirc.dialects.ops.elementwise.exponential import Logaddexp
from mlirc.dialects.ops.rows.scan import Running
from mlirc.lowering.host import host_cpu
from tests.compare_stages import check
from tests.kernel_runner import NativeKernel, info
from tests.triton.runner import TritonKernel, small
from tests.triton.test_compile import source_of

SHAPES = [(3, 70), (70,), (5, 1), (40, 33), (2, 300), (0, 4), (4, 0)]
WIDTHS = [width for width in (64, 32, 16) if width <= host_cpu().vector_bytes]


class LastNonzero(Running):
    """The order counts: y before x gives another number."""

    combine = staticmethod(lambda b, x, y: b.select(b.ne(y, b.constant(0)), y, x))
    identity = 0


class LogSumExp(Reduction):
    combine = staticmethod(Logaddexp.scalar)
    identity = -math.inf


@pytest.fixture(autouse=True)
def kinds(monkeypatch):
    monkeypatch.setitem(COMBINED, "last_nonzero", LastNonzero)
    monkeypatch.setitem(COMBINED, "logsumexp", LogSumExp)


def last_nonzero(x):
    found = x.clone()
    for k in range(1, x.shape[-1]):
        found[..., k] = torch.where(x[..., k] != 0, x[..., k], found[..., k - 1])
    return found


def kernel_of(cls, shape, dtype, build, **how):
    *parallel, inner = map(str, shape)
    return cls([info(dtype, ", ".join(map(str, shape)))], ", ".join(parallel), inner, build, **how)


def scan(shape, dtype):
    rows = info(dtype, ", ".join(map(str, shape)))
    return lambda k, x: [(k.scan("last_nonzero", k.read(x, k.dims)), k.dims, rows)]


def reduction(shape, dtype):
    ends = info(dtype, ", ".join(map(str, shape[:-1])))
    return lambda k, x: [(k.reduce("logsumexp", k.read(x, k.dims)), k.dims[:-1], ends)]


def compare(kernel, x, expected):
    found = torch.full_like(expected, 7)
    kernel([x], [found])
    torch.testing.assert_close(found, expected)


def numbers(shape, dtype):
    return torch.randint(-9, 10, shape, dtype=dtype) * torch.randint(0, 2, shape, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int32])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.thinned
def test_a_scan_keeps_the_order(shape, dtype):
    x = numbers(shape, dtype)
    torch.testing.assert_close(running_fold("last_nonzero", x, x.dim() - 1), last_nonzero(x))
    for width in WIDTHS:
        compare(kernel_of(NativeKernel, shape, dtype, scan(shape, dtype), vector_bytes=width), x, last_nonzero(x))


@pytest.mark.parametrize("limit", [None, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.int8])
@pytest.mark.parametrize("shape", SHAPES[:4])
@pytest.mark.thinned
def test_a_scan_on_a_gpu_keeps_the_order(shape, dtype, limit):
    x, shrink = numbers(shape, dtype), limit and small(limit)
    compare(kernel_of(TritonKernel, shape, dtype, scan(shape, dtype), shrink=shrink), x, last_nonzero(x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.thinned
def test_a_reduction(shape, dtype):
    x = torch.randn(shape, dtype=dtype) * 9
    expected = x.logsumexp(-1)
    torch.testing.assert_close(fold("logsumexp", x, (x.dim() - 1,)).squeeze(-1), expected)
    for width in WIDTHS:
        compare(kernel_of(NativeKernel, shape, dtype, reduction(shape, dtype), vector_bytes=width), x, expected)
    if x.numel():
        for limit in (None, 16):
            kernel = kernel_of(TritonKernel, shape, dtype, reduction(shape, dtype), shrink=limit and small(limit))
            compare(kernel, x, expected)


def test_a_reduction_that_threads_share():
    x = torch.randn(2, 400_000)
    kernel = kernel_of(NativeKernel, x.shape, x.dtype, reduction(x.shape, x.dtype))
    found = torch.zeros(2)
    for threads in (1, 3):
        kernel([x], [found], threads=threads)
        torch.testing.assert_close(found, x.logsumexp(-1))


def test_a_reduction_of_columns():
    shape = (300, 40)
    rows, ends = info(torch.float32, "300, 40"), info(torch.float32, "40")

    def build(k, x):
        return [(k.reduce("logsumexp", k.read(x, k.dims[::-1])), k.dims[:1], ends)]

    x = torch.randn(shape)
    compare(NativeKernel([rows], "40", "300", build), x, x.logsumexp(0))


@pytest.mark.parametrize("made", [scan, reduction])
@pytest.mark.parametrize("shape", [(30, 100000), (5, 70)])
def test_machine_code_for_a_gpu(made, shape):
    (code,) = compile_kernels([source_of(kernel_of(TritonKernel, shape, torch.float32, made(shape, torch.float32)))])
    assert code.cubin.startswith(b"\x7fELF")


def test_a_kind_is_of_scans_or_of_reductions():
    """A scan's need not give the same for exchanged operands, as a reduction needs it."""
    assert "last_nonzero" in scans() and "last_nonzero" not in reductions()
    assert "logsumexp" in reductions() and "logsumexp" not in scans()


def test_a_kind_without_a_neutral_number_is_refused():
    with pytest.raises(TypeError, match="Wrong has `combine`, and so needs `identity`"):

        class Wrong(Reduction, name="wrong_fold"):
            combine = staticmethod(lambda b, x, y: b.add(x, y))

    with pytest.raises(AttributeError, match=r"no b\.plus"):

        class Misspelt(Reduction, name="wrong_fold"):
            combine = staticmethod(lambda b, x, y: b.plus(x, y))
            identity = 0

    assert "wrong_fold" not in OPS and "wrong_fold" not in COMBINED


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.thinned
def test_logcumsumexp(dim, dtype, dynamic):
    x = (torch.randn(9, 8, 9) * 4).to(dtype)
    x[0, 1], x[1, :, 2], x[2, 3, 4] = -math.inf, math.inf, math.nan
    x[3, :3], x[:3, 4] = -math.inf, -math.inf
    check(lambda x: torch.logcumsumexp(x, dim), x, dynamic=dynamic)


def test_logcumsumexp_of_little():
    for x in (torch.tensor(3.0), torch.empty(0, 9), torch.empty(2, 0)):
        check(lambda x: torch.logcumsumexp(x, 0), x)
    check(lambda x: torch.logcumsumexp(x, 1), torch.randn(7, 5), aten=True)
