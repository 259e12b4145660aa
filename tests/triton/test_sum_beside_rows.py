"""The pass sum-beside-rows: a norm's gradients in one kernel, as the interpreter and Triton's run it."""

import pytest
import torch

from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.symbols import parse_list, symbol
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.gpu.kernel import triton_kernel
from mlirc.lowering.gpu.triton.schedule import alternatives
from mlirc.lowering.kernel.nodes import read_kernel
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.target import GpuTarget
from tests.triton.runner import TritonKernel

bf16, f32 = torch.bfloat16, torch.float32
DEVICE = ', {device = "cuda:0"}'
ROWS, LENGTH = 4 * 24, 300
INPUTS = [((ROWS, LENGTH), bf16), ((4, 24, LENGTH), bf16), ((LENGTH,), bf16), ((4, 24, 1), f32), ((4, 24, LENGTH), f32)]


def on_gpu(dtype, *shape):
    return TensorInfo(dtype, shape, device="cuda:0")


def norm_rows(g, x, w, s):
    """A norm's input gradient, roughly: its rows are folded, and written."""
    k = KernelBuilder(parse_list("4, 24"), parse_list(str(LENGTH)), "rows")
    a, b, c = k.dims
    scaled = k.mul(k.cast(k.read(g, (a * 24 + b, c)), f32), k.cast(k.read(w, (c,)), f32))
    value = k.cast(k.read(x, (a, b, c)), f32)
    total = k.mul(k.reduce("sum", k.mul(scaled, value)), k.read(s, (a, b, 0)))
    out = k.sub(scaled, k.mul(total, value))
    return k.finish([(k.cast(out, bf16), (a, b, c), on_gpu(bf16, 4, 24, LENGTH))])[0]


def norm_columns(g, x, s, more=None):
    """Its weight's gradient: columns are summed up of what is read elsewhere through a view."""
    view = GraphBuilder(info_of(g)).view(
        g, (4, 24, LENGTH), (24 * LENGTH, LENGTH, 1), (symbol("d0") * 24 + symbol("d1"), symbol("d2"))
    )
    k = KernelBuilder(parse_list(str(LENGTH)), parse_list("4, 24"), "columns")
    c, a, b = k.dims
    value = k.mul(k.cast(k.read(x, (a, b, c)), f32), k.read(s, (a, b, 0)))
    value = k.mul(value, k.read(more, (a, b, c))) if more else value
    total = k.reduce("sum", k.mul(k.cast(k.read(view, (a, b, c)), f32), value))
    return k.finish([(k.cast(k.mul(total, 0.5), bf16), (c,), on_gpu(bf16, LENGTH))])[0]


def module_of(build) -> ir.Module:
    infos = [on_gpu(dtype, *shape) for shape, dtype in INPUTS]
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("graph", ([type_of(i) for i in infos], []))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        results = build(*block.arguments)
        func.ReturnOp(results)
    types = ir.FunctionType.get([type_of(i) for i in infos], [r.type for r in results])
    function.attributes["function_type"] = ir.TypeAttr.get(types)
    return module


def columns_first(g, x, w, s, more):
    columns = norm_columns(g, x, s)
    return [norm_rows(g, x, w, s), columns]


def rows_first(g, x, w, s, more):
    return [norm_rows(g, x, w, s), norm_columns(g, x, s)]


def rows_first_and_read(g, x, w, s, more):
    """What reads the rows stands before the columns are summed up."""
    rows = norm_rows(g, x, w, s)
    k = KernelBuilder(parse_list(f"4, 24, {LENGTH}"), (), "neg")
    value = k.cast(k.neg(k.cast(k.read(rows, k.dims), f32)), bf16)
    read = k.finish([(value, k.dims, on_gpu(bf16, 4, 24, LENGTH))])[0]
    return [read, norm_columns(g, x, s)]


def columns_of_more(g, x, w, s, more):
    return [norm_rows(g, x, w, s), norm_columns(g, x, s, more)]


def columns_of_rows(g, x, w, s, more):
    rows = norm_rows(g, x, w, s)
    flat = GraphBuilder(info_of(rows)).view(
        rows, (ROWS, LENGTH), (LENGTH, 1), (symbol("d0") // 24, symbol("d0") % 24, symbol("d1"))
    )
    return [norm_columns(flat, x, s), rows]


def values() -> list[torch.Tensor]:
    return [torch.randn(shape).to(dtype) for shape, dtype in INPUTS]


def joined(build, programs: int = 6) -> tuple[ir.Module, ir.Module]:
    """The module before the pass and after it, both for a CPU."""
    module = module_of(build)
    before = ir.Module.parse(str(module).replace(DEVICE, ""))
    run_pipeline(module, f"sum-beside-rows{{programs={programs}}},split-reductions,batch-kernels")
    return before, ir.Module.parse(str(module).replace(DEVICE, ""))


def spaces(module: ir.Module) -> list[tuple[str, ...]]:
    ops = [op.operation for op in module.body.operations[0].regions[0].blocks[0].operations]
    kernels = [op for op in ops if op.name == "mlircx.kernel"]
    return [tuple(attribute_value(op.attributes[n]) for n in ("parallel", "inner")) for op in kernels]


@pytest.mark.parametrize("build", [columns_first, rows_first, rows_first_and_read])
def test_one_kernel_goes_through_the_rows(build):
    with context():
        before, after = joined(build)
        assert spaces(after)[:2] == [("4, 24", "300"), ("300", "6")]
        assert "sums = [0, 16]" in str(after)
        inputs = values()
        want, got = (run(m.body.operations[0], inputs) for m in (before, after))
    for x, y in zip(got, want, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-2, atol=1e-2)


@pytest.mark.parametrize("build, programs", [(columns_of_more, 3), (columns_of_rows, 3), (columns_first, 13)])
def test_what_stays_apart(build, programs):
    """What would read much more, needs what the rows become, or leaves too few programs."""
    with context():
        before, after = joined(build, programs)
        assert "sums" not in str(after)
        assert len(spaces(after)) == len(spaces(before)) == 2


class Joined(TritonKernel):
    """The kernel with the sums; `k`: with the k-th other schedule that measuring would try."""

    def __init__(self, programs: int, k: int | None = None):
        with context():
            _, self.module = joined(columns_first, programs)
            run_pipeline(self.module, "plan-memory")
            ops = self.module.body.operations[0].regions[0].blocks[0].operations
            self.launch = next(op for op in ops if op.operation.name == "mlircx.launch")
            infos = [info_of(x) for x in self.launch.operands]
            count = attribute_value(self.launch.attributes["inputs"])
            arguments = list(self.module.body.operations[0].regions[0].blocks[0].arguments)
            self.order = [arguments.index(x) for x in list(self.launch.operands)[:count]]
            self.outputs = infos[count:]
            change = None if k is None else lambda schedule: list(alternatives(schedule))[k]
            self.made = triton_kernel(read_kernel(self.launch), "kernel_0", infos, GpuTarget(), change=change)
        self.source, self.symbols, self.fails = self.made.source, self.made.symbols, False


@pytest.mark.parametrize("programs, k, rows", [(3, None, 16), (12, None, 8), (6, 0, 16)])
def test_text(programs, k, rows):
    kernel = Joined(programs, k)
    assert kernel.made.grid[0] == ROWS // rows
    assert f"first + {rows}" in kernel.source
    kernel.check(*values(), rtol=8e-3, atol=1e-3)  # what is rounded to bfloat16 may be rounded the other way
