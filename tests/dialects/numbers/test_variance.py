"""Variances of hard rows of float32 and half types: at most twice eager's error, and a rounding."""

import math
from collections.abc import Sequence

import numpy
import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext

import mlirc
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.execution.triton_code import TritonCode
from mlirc.frontend.importer.importer import import_graph
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline

pytestmark = pytest.mark.thinned

LENGTHS = (1, 2, 3, 64, 3072, 70001)


def hard_rows(n: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(n)
    x = torch.randn(n, generator=generator, dtype=torch.float64)
    first = torch.arange(n) == 0
    rows = [
        x,
        x + 1e4,
        x * 1e-3 + 1e4,
        x + 1e6,
        x.masked_fill(first, 1e6),  # the first element is far from all others
        x.masked_fill(first, 1e15),
        x * 1e-3 + first * 1e7 + 100,
        (torch.arange(n) == n - 1) * 1e8 + x,
        torch.full((n,), 0.1, dtype=torch.float64),
        torch.full((n,), 3e38, dtype=torch.float64),
        x * 1e18,
        x.clamp(-3, 3) * 1e37,
        x * 1e-6,
        torch.arange(n).double() % 2 * 2 - 1,
        x.exp() ** 3,
        x.masked_fill(first, math.inf),
        x.masked_fill(torch.arange(n) == n - 1, -math.inf),
        x.masked_fill(first, math.nan),
    ]
    return torch.stack(rows)


def program(x):
    return [
        x.var(1),
        x.std(1),
        x.var(1, correction=0),
        x.std(1, keepdim=True),
        *torch.var_mean(x, 1),
        *torch.std_mean(x, 1, correction=2),
        x.var(0),
        x.t().contiguous().std(0),
        x.var(),
        x[:, None].var((1, 2)),
        (x * 0.5).var(1),
    ]


def near(got: torch.Tensor, eager: torch.Tensor, exact: torch.Tensor) -> torch.Tensor:
    eps = torch.finfo(got.dtype).eps
    off = (eager.double() - exact).abs()
    close = (got.double() - exact).abs() <= 2 * off + eps * exact.abs() + 1e-15
    return close | (got == eager) | (got.isnan() & eager.isnan())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("n", LENGTHS)
def test_hard_rows(n, dtype):
    x = hard_rows(n).to(dtype)
    torch.compiler.reset()
    compiled = torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    exact = program(x.double())
    for k, (got, eager, right) in enumerate(zip(compiled(x), program(x), exact, strict=True)):
        assert got.dtype == eager.dtype and got.shape == eager.shape
        fine = near(got, eager, right)
        if not fine.all():
            bad = ~fine
            shown = [v[bad][:4].tolist() for v in (got, eager, right)]
            raise AssertionError(f"{k}: {int(bad.sum())} at {bad.nonzero()[:4].tolist()}: {shown}")


def test_rows_of_a_size_that_is_not_known():
    torch.compiler.reset()
    compiled = torch.compile(lambda x: x.var(1), backend="mlirc", dynamic=True)
    for n in (4, 9, 1, 0):
        x = torch.randn(3, n)
        torch.testing.assert_close(compiled(x), x.var(1), equal_nan=True)
    torch.testing.assert_close(compiled(torch.randn(0, 5)), torch.zeros(0))


def test_one_kernel():
    """What stands in front of a variance is computed in its loop."""
    x, y = torch.randn(64, 768), torch.randn(64, 768)
    with torch.no_grad():
        data = mlirc.explain(lambda x, y: (x * y).var(1))(x, y).data
    assert len(data["graphs"][0]["kernels"]) == 1


@pytest.mark.thinned(1)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_norm_of_rows_whose_variance_overflows_is_its_bias(dtype):
    """Eager's is too, until Welford's algorithm subtracts an infinity from another one, at some width: its rows are NaN from there on."""
    generator = torch.Generator().manual_seed(0)
    rows = [torch.randn(3, width, generator=generator) for width in (5, 64, 1000)]
    xs = [(x * scale).to(dtype) for x in rows for scale in (1e10, 1e18, 1e20, 1e25, 1e30)]
    norms = {
        "layer": lambda x, w, b: F.layer_norm(x, x.shape[1:], w, b),
        "group": lambda x, w, b: F.group_norm(x[:, :, None], 1, w, b)[..., 0],
        "written": lambda x, w, b: (
            (x - x.mean(1, True)) * torch.rsqrt(x.var(1, correction=0, keepdim=True) + 1e-5) * w + b
        ),
        "rms": lambda x, w, b: F.rms_norm(x, x.shape[1:], w) + b,
    }
    weights = [
        (torch.randn(x.shape[1], generator=generator).to(dtype), torch.ones(x.shape[1], dtype=dtype)) for x in xs
    ]
    calls = lambda xs: [norm(x, *wb) for norm in norms.values() for x, wb in zip(xs, weights, strict=True)]
    for got, eager in zip(
        torch.compile(calls, backend="mlirc", options={"fallback": "error"})(xs), calls(xs), strict=True
    ):
        assert got.isfinite().all()
        tolerance = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
        torch.testing.assert_close(got, torch.where(eager.isnan(), 1.0, eager), **tolerance)


def special_rows(n: int) -> torch.Tensor:
    x = torch.randn(9, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    x[0, 0], x[1, -1], x[2, n // 2], x[3, 0], x[4] = -math.inf, math.inf, -math.inf, math.nan, -math.inf
    x[5, 1], x[5, 2], x[6, 0], x[6, 1:] = math.inf, -math.inf, math.inf, math.nan
    return x


ON_GPU = {
    "rows": lambda x, f: [*f(x, 1), *f(x, -1, correction=0)],
    "columns": lambda x, f: [*f(x.t().clone(), 0), *f(x.t(), -2, keepdim=True)],
    "some at once": lambda x, f: [v for k, n in ((0, 1), (1, 2), (0, 3), (7, 2)) for v in f(x.narrow(0, k, n))],
    "computed": lambda x, f: [*f(x * 0.5, 1), *f(x.sin(), 1)],
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", ON_GPU)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("n", [3, 70, pytest.param(5000, marks=pytest.mark.full)])
def test_means_on_a_gpu_are_those_of_sums(n, dtype, name):
    """One infinity stays, two of both signs and NaN are NaN. Eager's depends on which elements a thread has, on a CPU on which is the last."""
    x, program = special_rows(n).to(dtype), ON_GPU[name]
    with FakeTensorMode():
        there = torch.empty(x.shape, dtype=dtype, device="cuda")
        graph = make_fx(lambda x: program(x, torch.var_mean))(there)
    with TritonCode() as code, context():
        imported = import_graph(graph)
        run_pipeline(imported.module, pipeline("gpu"))
        top = next(op for op in imported.module.body.operations if op.operation.name == "func.func")
        found = run(top, [x], imported.objects, code=code)
        assert code.ran and not imported.aten
    of_sums = lambda x, dim=None, keepdim=False, **how: (x.var(dim, keepdim=keepdim, **how), x.mean(dim, keepdim))
    tolerance = {"rtol": 0.02, "atol": 0.02} if dtype.itemsize == 2 else {"rtol": 1e-5, "atol": 1e-5}
    for got, exact in zip(found, program(x.double(), of_sums), strict=True):
        torch.testing.assert_close(got.double(), exact, equal_nan=True, **tolerance)


def rows_whose_sum_overflows(n: int, dtype: torch.dtype) -> torch.Tensor:
    most, u = torch.finfo(dtype).max, torch.rand(n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    sign = torch.arange(n) % 2 * 2 - 1
    first = torch.arange(n) == 0
    rows = [u * 0 + 1, u * 0 - 1, u * 0 + 0.7, u, -u, u * sign, (u * 0 + 0.9) * sign, first * 0.5 + 0.5]
    rows += [u * 2 / n, torch.full_like(u, 1.5 / n), (u * 0 + 1).masked_fill(first, math.inf / most)]
    rows += [(u * 0 - 1).masked_fill(first, math.nan)]
    return torch.cat([(torch.stack(rows) * most).clamp(-most, most).to(dtype), special_rows(n).to(dtype)])


def in_long_doubles(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Variance and mean of each row, rounded to its dtype from 80 bits, which do not overflow."""
    with numpy.errstate(all="ignore"):
        wide = x.double().numpy().astype(numpy.longdouble)
        mean = wide.mean(1, keepdims=True)
        rest = (wide - mean).mean(1, keepdims=True)  # what the sum's rounding left: rows of one number have no variance
        mean = mean + numpy.where(numpy.isfinite(rest), rest, 0)
        variance = ((wide - mean) ** 2).sum(1) / (x.shape[1] - 1)
        return tuple(torch.from_numpy(v.astype(numpy.float64)).to(x.dtype) for v in (variance, mean[:, 0]))


def check_moments(name: str, got: Sequence[torch.Tensor], x: torch.Tensor) -> None:
    """Results of MOMENTS[name] are right up to rounding; a mean's is as large as that of the row's largest element."""
    eps, largest = torch.finfo(x.dtype).eps, x.abs().amax(1).double()
    variance, mean = in_long_doubles(x)
    limits = [(mean, 2 * eps * torch.where(largest.isfinite(), largest, 0.0))]
    if name != "mean alone":
        limits.insert(0, (variance, torch.zeros_like(largest)))
    for found, (right, limit) in zip(got, limits, strict=True):
        ours, exact = found.cpu().double(), right.double()
        fine = (ours - exact).abs() <= 64 * eps * (1 + exact.abs()) + limit
        wrong = ~(fine | (ours == exact) | (ours.isnan() & exact.isnan()))
        wrong |= ours.isinf() != exact.isinf()
        assert not wrong.any(), (wrong.nonzero()[:4].tolist(), ours[wrong][:4], exact[wrong][:4])


def on_gpu(program, x, symbolic=False):
    """What the kernels for a GPU compute, interpreted."""
    shapes = ShapeEnv() if symbolic else None
    with FakeTensorMode(shape_env=shapes) as mode:
        there = torch.empty(x.shape, dtype=x.dtype, device="cuda")
        if symbolic:
            there = mode.from_tensor(there, symbolic_context=StatelessSymbolicContext([DimDynamic.DYNAMIC] * x.dim()))
        graph = make_fx(program)(there)
    with TritonCode() as code, context():
        imported = import_graph(graph)
        run_pipeline(imported.module, pipeline("gpu"))
        top = next(op for op in imported.module.body.operations if op.operation.name == "func.func")
        found = run(top, [x], imported.objects, code=code)
        assert code.ran and not imported.aten
    return found


MOMENTS = {
    "rows": lambda x: torch.var_mean(x, 1),
    "columns": lambda x: torch.var_mean(x.t().clone(), 0),
    "mean alone": lambda x: (torch.std_mean(x, 1)[1],),
    "computed": lambda x: torch.var_mean(x * 1.0, 1),
    "inner and outer": lambda x: torch.var_mean(x.unflatten(1, (-1, 1)).transpose(0, 1), (0, 2)),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("n", [3, 70, *(pytest.param(n, marks=pytest.mark.full) for n in (16411, 20000))])
def test_variances_on_a_gpu_of_rows_whose_sum_overflows(n, symbolic, dtype, name):
    """As by Welford's method, which sums up no elements; of both signs, where that is infinite or NaN, too. Rows are in registers, in a loop, or
    in parts. In float32 a row of such numbers has a variance of 0, where they are one number, or an infinite one."""
    x = rows_whose_sum_overflows(n, dtype)
    check_moments(name, on_gpu(MOMENTS[name], x, symbolic), x)


@pytest.mark.thinned(1)
@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("n", [70, 999, pytest.param(20000, marks=pytest.mark.full)])
def test_rows_of_one_number_on_a_gpu(n, dtype, symbolic):
    """As by Welford's method: the mean is the number and the variance 0, and norms are their bias."""
    x = (
        torch.tensor([0.1, 1000.1, -33.3, 6e4, 1e-3, 0.0, torch.finfo(dtype).max], dtype=dtype)[:, None]
        .expand(-1, n)
        .clone()
    )
    program = lambda x: (*torch.var_mean(x, 1), torch.layer_norm(x, x.shape[1:]))
    variance, mean, norm = on_gpu(program, x, symbolic)
    assert torch.equal(mean, x[:, 0]) and not variance.any() and not norm.any()


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_norms_of_rows_of_one_number_on_a_cpu(dtype):
    """They are 0, and their means are the number, as eager's are: what a long sum rounds is multiplied by up to 316."""
    norms = lambda x: (
        *aten.native_layer_norm(x, x.shape[1:], None, None, 1e-5)[:2],
        *aten.native_group_norm(x.unsqueeze(2), None, None, *x.shape, 1, 1, 1e-5)[:2],
    )
    for n, dynamic in ((3, False), (768, False), (4096, False), (4097, True)):
        x = torch.tensor([0.1, 1000.1, -33.3, 6e4, 1e6 + 0.3, 3e38])[:, None].clamp(max=torch.finfo(dtype).max)
        x = x.to(dtype).expand(-1, n).clone()
        torch.compiler.reset()
        run = torch.compile(norms, backend="mlirc", fullgraph=True, dynamic=dynamic, options={"fallback": "error"})
        for norm, mean in zip(*[iter(run(x))] * 2, strict=True):
            assert not norm.any() and torch.equal(mean.flatten().to(dtype), x[:, 0])


aten = torch.ops.aten
NORMS = {
    "layer": lambda x: aten.native_layer_norm(x, x.shape[1:], None, None, 1e-5),
    "group": lambda x: aten.native_group_norm(x.unsqueeze(2), None, None, *x.shape, 1, 1, 1e-5),
    "batch": lambda x: aten._native_batch_norm_legit.no_stats(x.t().clone(), None, None, True, 0.1, 1e-5),
}


@pytest.mark.thinned(1)
@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("n", [70, *(pytest.param(n, marks=pytest.mark.full) for n in (16411, 20000))])
def test_norms_on_a_gpu_of_rows_whose_sum_overflows(n, name):
    """The mean is right; a row is 0, also where the variance overflows, as eager's are where Welford's method subtracts no infinities.
    Of a batch norm a number's distance from the mean is infinite where it overflows."""
    x = rows_whose_sum_overflows(n, torch.float32)[:10]
    out, mean, rstd = on_gpu(NORMS[name], x)
    variance, exact = in_long_doubles(x)
    torch.testing.assert_close(mean.flatten(), exact, rtol=1e-5, atol=0)
    torch.testing.assert_close(rstd.flatten(), (variance + 1e-5).rsqrt())
    if name == "batch":
        out = out.t()[((x - exact[:, None]).isfinite()).all(1)]
    assert not out.any()


LARGEST = {
    "layer": lambda x: F.layer_norm(x, x.shape[1:]),
    "group": lambda x: F.group_norm(x[None], 1),
    "instance": lambda x: F.instance_norm(x[None]),
    "batch": lambda x: F.batch_norm(x, None, None, training=True),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", LARGEST)
@pytest.mark.parametrize("gradient", [False, True])
def test_norms_of_the_largest_numbers(name, gradient):
    """Partial sums of finite numbers are infinite, of both signs, and so is the distance from a mean: no NaN comes of
    it, in gradients where none is in eager's. Infinite numbers are eager's."""
    generator = torch.Generator().manual_seed(0)
    largest = torch.tensor([3.4e38, -3.4e38, 1e38, -0.0, 1.0])
    rows = [largest[torch.randint(5, (4, n), generator=generator)] for n in (3, 33, 200)]
    special = torch.randn(4, 33, generator=generator)
    special[0, 0], special[1, 1], special[2, :2], special[3, 2] = (
        math.inf,
        math.nan,
        torch.tensor([math.inf, -math.inf]),
        -math.inf,
    )

    def calls(xs):
        return [LARGEST[name](x) for x in xs]

    def found(f):
        xs = [x.clone().requires_grad_(gradient) for x in (*rows, special)]
        results = f(xs)
        return list(torch.autograd.grad(sum(y.sum() for y in results), xs)) if gradient else results

    torch.compiler.reset()
    got, eager = found(torch.compile(calls, backend="mlirc", options={"fallback": "error"})), found(calls)
    torch.testing.assert_close(got[-1], eager[-1], equal_nan=True, atol=1e-4, rtol=1e-4)
    for x, y in zip(got[:-1], eager[:-1], strict=True):
        assert (x.isfinite() | (y.isnan() if gradient else False)).all()


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_gradient_of_a_mean_squared_error_of_large_numbers(reduction):
    """Twice the difference would overflow; of a mean eager multiplies it by 2/n."""
    x, y = torch.tensor([3e38, -1e38, 0.0, 1.0, 2e-45]), torch.tensor([0.0, 2e38, 3e38, -0.0, 1e-45])

    def gradient(f):
        z = x.clone().requires_grad_()
        loss = f(z, y)
        return torch.autograd.grad(loss, z, torch.full_like(loss, 0.3))[0]

    loss = lambda x, y: F.mse_loss(x, y, reduction=reduction)
    torch.compiler.reset()
    torch.testing.assert_close(gradient(torch.compile(loss, backend="mlirc")), gradient(loss))
