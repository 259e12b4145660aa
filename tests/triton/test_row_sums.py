"""The gradient of an embedding as a kernel that sums up the rows of sorted ids, as the interpreter and Triton's run it."""

import pytest
import torch

from mlirc.dialects.bindings import context, func, ir
from mlirc.dialects.dialect import attribute_value
from mlirc.dialects.interpreter import run
from mlirc.dialects.tensor_types import TensorInfo, info_of, type_of
from mlirc.lowering import triton_row_sums
from mlirc.lowering.aten_calls import call_aten
from mlirc.lowering.kernel_nodes import read_kernel
from mlirc.lowering.pass_manager import run_pipeline
from mlirc.lowering.triton_kernel import triton_kernel
from tests.triton.runner import TritonKernel

bf16, f32, i32, i64 = torch.bfloat16, torch.float32, torch.int32, torch.int64
DEVICE = ', {device = "cuda:0"}'


def module_of(shape, table, columns, dtype=bf16, index=i64, padding=-1, by_frequency=False) -> ir.Module:
    """A graph of the gradients of tokens' rows and the tokens, after the pass."""
    rows, ids, out = (
        TensorInfo(d, s, device="cuda:0")
        for d, s in ((dtype, (*shape, columns)), (index, shape), (dtype, (table, columns)))
    )
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("graph", ([type_of(rows), type_of(ids)], [type_of(out)]))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        given = [*block.arguments, table, padding, by_frequency]
        func.ReturnOp([call_aten("aten.embedding_dense_backward.default", given, out)])
    run_pipeline(module, "sum-embedding-rows")
    return module


class RowSumsKernel(TritonKernel):
    def __init__(self, *arguments, **options):
        with context():
            self.module = module_of(*arguments, **options)
            run_pipeline(self.module, "plan-memory")
            block = self.module.body.operations[0].regions[0].blocks[0]
            self.launch = next(op for op in block.operations if op.operation.name == "mlircx.launch")
            infos = [info_of(x) for x in self.launch.operands]
            self.outputs, self.order = infos[3:], [0, 1, 2]
            self.made = triton_kernel(read_kernel(self.launch), "kernel_0", infos)
        self.source, self.symbols, self.fails = self.made.source, self.made.symbols, False

    def gives(self, rows: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        assert [info_of(x).rank for x in list(self.launch.operands)[:3]] == [1, 1, 2]
        out = torch.full([n for n in self.outputs[0].shape if isinstance(n, int)], 7.0, dtype=rows.dtype)
        self([*ids.reshape(-1).sort(), rows.reshape(-1, rows.shape[-1])], [out])
        return out


TOKENS = {
    "random": lambda shape, table: torch.randint(table, shape),
    "equal": lambda shape, table: torch.full(shape, table - 1),
    "few": lambda shape, table: torch.randint(3, shape) + 30,
    "outside": lambda shape, table: torch.randint(-table, 2 * table, shape),
}


@pytest.mark.parametrize("kind", TOKENS)
@pytest.mark.parametrize("dtype, index, padding", [(bf16, i64, -1), (f32, i32, 31)])
def test_values(kind, dtype, index, padding, monkeypatch):
    """Blocks that neither tokens nor the table fill, and rows that follow one another across what is looked at together."""
    monkeypatch.setattr(triton_row_sums, "COLUMNS", 32)
    shape, table, columns = (2, 45), 70, 40
    kernel = RowSumsKernel(shape, table, columns, dtype, index, padding)
    assert kernel.made.grid[0] == 9 * 2
    ids = TOKENS[kind](shape, table).to(index)
    rows = torch.randn(*shape, columns).to(dtype)
    counted = (ids >= 0) & (ids < table) & (ids != padding)
    want = torch.zeros(table, columns).index_add_(0, ids[counted].long(), rows[counted].float()).to(dtype)
    torch.testing.assert_close(kernel.gives(rows, ids), want, rtol=1e-2 if dtype == bf16 else 1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "tokens, table, columns, blocks", [(4096, 32000, 2048, (32, 1024)), (64, 6400, 48, (512, 64)), (16, 5, 2, (8, 2))]
)
def test_blocks(tokens, table, columns, blocks):
    """Few tokens a program, and as much to write as makes up for its search."""
    constants = RowSumsKernel((tokens,), table, columns).made.constants
    assert (constants["YBLOCK"], constants["XBLOCK"]) == blocks


def test_definition():
    """What the kernel's body says is what ATen does; the interpreter runs it."""
    with context():
        module = ir.Module.parse(str(module_of((3, 5), 11, 4, f32, padding=2)).replace(DEVICE, ""))
        rows, ids = torch.randn(3, 5, 4), torch.randint(11, (3, 5))
        (got,) = run(module.body.operations[0], [rows, ids])
    torch.testing.assert_close(got, torch.ops.aten.embedding_dense_backward(rows, ids, 11, 2, False))


@pytest.mark.parametrize(
    "shape, table, options",
    [
        ((2, 45), 20, {}),  # tokens that are often alike
        ((2, 45), 70, {"by_frequency": True}),
        ((2, 45), 70, {"dtype": torch.float64}),
    ],
)
def test_what_stays_with_aten(shape, table, options):
    with context():
        module = module_of(shape, table, 8, **options)
        ops = [op.operation for op in module.body.operations[0].regions[0].blocks[0].operations]
        assert ops[0].name == "mlircx.aten" and attribute_value(ops[0].attributes["op"])
