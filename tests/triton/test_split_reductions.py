"""The pass split-reductions: the same values, from more programs."""

import pytest
import torch

from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import parse_list
from mlirc.dialects.core.tensor_types import TensorInfo, type_of
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.pipeline.pass_manager import run_pipeline

f32 = torch.float32


def on_gpu(dtype, *shape):
    return TensorInfo(dtype, shape, device="cuda:0")


def split(x: TensorInfo, parallel, inner, build, values=None) -> tuple[list, list[torch.Tensor], list[torch.Tensor]]:
    """The kernels' spaces after the pass, and what the function gives before and after it (run on the CPU)."""
    values = torch.randint(-3, 4, x.shape).to(x.dtype) if values is None else values
    with context():
        module = graph_of(x, parallel, inner, build)
        block = module.body.operations[0].regions[0].blocks[0]
        before = ir.Module.parse(str(module).replace(', {device = "cuda:0"}', ""))
        run_pipeline(module, "split-reductions")
        after = ir.Module.parse(str(module).replace(', {device = "cuda:0"}', ""))
        kernels = [op for op in block.operations if op.operation.name == "mlircx.kernel"]
        spaces = [tuple(attribute_value(op.attributes[n]) for n in ("parallel", "inner")) for op in kernels]
        return spaces, *(run(m.body.operations[0], [values]) for m in (before, after))


def graph_of(x: TensorInfo, parallel, inner, build) -> ir.Module:
    """A module with one kernel of `x`."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("graph", ([type_of(x)], []))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        k = KernelBuilder(parse_list(parallel), parse_list(inner), "test")
        results = k.finish(build(k, block.arguments[0]))
        func.ReturnOp(results)
    types = ir.FunctionType.get([type_of(x)], [r.type for r in results])
    function.attributes["function_type"] = ir.TypeAttr.get(types)
    return module


def check(*arguments) -> list:
    spaces, want, got = split(*arguments)
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, equal_nan=True)
    return spaces


@pytest.mark.parametrize("out", [torch.bfloat16, f32])
def test_what_is_rounded_in_the_end_says_so(out):
    """Float32 parts of a bfloat16 sum need no exact functions."""

    def build(k, x):
        return [(k.cast(k.reduce("sum", k.exp(k.read(x, k.dims))), out), (), on_gpu(out))]

    with context():
        module = graph_of(on_gpu(torch.bfloat16, 1 << 20), "", str(1 << 20), build)
        run_pipeline(module, "split-reductions")
        assert str(module).count("mlirc.rounded") == (2 if out == torch.bfloat16 else 0)


@pytest.mark.parametrize("kind", ["sum", "max", "min"])
def test_one_row(kind):
    def build(k, x):
        return [(k.abs(k.reduce(kind, k.read(x, k.dims))), (), on_gpu(f32))]

    assert check(on_gpu(f32, 1 << 20), "", str(1 << 20), build) == [("256", "4096"), ("", "256")]


def test_columns():
    def build(k, x):
        (p,), (r,) = k.parallel_dims, k.inner_dims
        value = k.read(x, (r, p))
        totals = k.reduce("sum", value), k.reduce("sum", k.mul(value, value))
        return [(k.mul(t, 2.0), (p,), on_gpu(f32, 768)) for t in totals]

    assert check(on_gpu(f32, 2048, 768), "768", "2048", build) == [("16, 768", "128"), ("768", "16")]


def test_columns_of_what_is_written_too():
    """GELU's backward with its bias's gradient: each element is written where it is summed, and nothing is read twice."""

    def build(k, x):
        (p,), (a, b) = k.parallel_dims, k.inner_dims
        value = k.mul(k.read(x, (a, b, p)), 3.0)
        return [(value, (a, b, p), on_gpu(f32, 32, 64, 768)), (k.reduce("sum", value), (p,), on_gpu(f32, 768))]

    assert check(on_gpu(f32, 32, 64, 768), "768", "32, 64", build) == [("16, 768", "2, 64"), ("768", "16")]


def test_what_a_row_has_one_of_does_not_count():
    """A layer norm's weight gradient reads a number of each row: columns are still what lies side by side."""

    def build(k, x):
        (p,), (r,) = k.parallel_dims, k.inner_dims
        row = k.read(x, (r, 0))
        value = k.mul(k.mul(k.read(x, (r, p)), k.read(x, (0, r))), k.mul(k.read(x, (1, r)), row))
        return [(k.reduce("sum", value), (p,), on_gpu(f32, 2048))]

    assert check(on_gpu(f32, 2048, 2048), "2048", "2048", build)[0][0] == "16, 2048"


def test_norm_of_few_channels():
    """Mean, then variance, then every element: the squares of a part are summed around its own mean."""

    def build(k, x):
        (c,), (n, s) = k.parallel_dims, k.inner_dims
        value = k.read(x, (n, c, s))
        mean = k.mul(k.reduce("sum", value), 2.0**-14)
        centred = k.sub(value, mean)
        variance = k.mul(k.reduce("sum", k.mul(centred, centred)), 2.0**-14)
        out = k.mul(centred, k.rsqrt(k.add(variance, 1.0)))
        return [(out, (n, c, s), on_gpu(f32, 16, 3, 1024)), (variance, (c,), on_gpu(f32, 3))]

    spaces = check(on_gpu(f32, 16, 3, 1024), "3", "16, 1024", build)
    assert spaces == [("4, 3", "4, 1024"), ("3", "4"), ("3, 16, 1024", "")]


def test_channels_last_statistics():
    """Both dimensions are taken apart, so that few channels are programs enough; a large mean takes nothing off the variance."""

    def build(k, x):
        (c,), (n, s) = k.parallel_dims, k.inner_dims
        value = k.read(x, (n, s, c))
        mean = k.mul(k.reduce("sum", value), 1 / (16 * 3136))
        centred = k.sub(value, mean)
        return [(k.reduce("sum", k.mul(centred, centred)), (c,), on_gpu(f32, 8))]

    values = torch.randn(16, 3136, 8) + 1000
    spaces, _, (got,) = split(on_gpu(f32, 16, 3136, 8), "8", "16, 3136", build, values)
    assert spaces == [("16, 16, 8", "1, 196"), ("8", "16, 16")]
    exact = values.double().var((0, 1), correction=0) * 16 * 3136
    torch.testing.assert_close(got.double(), exact, rtol=1e-5, atol=0)


@pytest.mark.parametrize("safe", [False, True])
def test_exponentials_of_split_rows(safe):
    """A softmax's sum, and logsumexp's, of rows with infinities and NaN, in one part, in all of them, or in none."""

    def build(k, x):
        (p,), _ = k.parallel_dims, k.inner_dims
        value = k.read(x, k.dims)
        top = k.reduce("max", value)
        centre = k.select(k.isinf(top), 0.0, top) if safe else top
        total = k.reduce("sum", k.exp(k.sub(value, centre)))
        return [(total, (p,), on_gpu(f32, 8)), (top, (p,), on_gpu(f32, 8))]

    inf = float("inf")
    values = torch.randn(8, 1 << 15) * 20
    values[1, 5], values[2, :5000], values[3], values[4, 7] = inf, -inf, -inf, float("nan")
    values[5, 3], values[5, 1 << 14], values[6, 0], values[7] = inf, -inf, 3e38, 2.5
    assert check(on_gpu(f32, 8, 1 << 15), "8", str(1 << 15), build, values) == [("8, 8", "4096"), ("8", "8")]


@pytest.mark.parametrize(("rows", "columns"), [(1000, 8192), (4, 2048), (4, 9973)])
def test_what_stays(rows, columns):
    """Rows enough; too short; a length that nothing divides."""

    def build(k, x):
        return [(k.reduce("sum", k.read(x, k.dims)), k.parallel_dims, on_gpu(f32, rows))]

    assert len(check(on_gpu(f32, rows, columns), str(rows), str(columns), build)) == 1
