"""What the ledger of fusion says in numbers: bytes saved add up to what is moved less, and a refusal has what its rule compared."""

from random import Random

import pytest

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.analysis.work import work_of
from mlirc.lowering.kernel.typical_sizes import typical
from mlirc.lowering.pipeline.pass_manager import PipelineRun, run_pipeline
from mlirc.lowering.pipeline.pipelines import SIMPLIFY
from tests.compare_stages import prepare
from tests.lowering.pipeline.test_filecheck import FOLDER
from tests.property.random_programs import random_program

FUSE = "fuse-elementwise,fuse-reductions,fuse-horizontally"


def moved(function):
    """Bytes that the kernels of a function read and write."""
    work = work_of(op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlircx.kernel")
    return typical(symbols.product((work.read + work.written,)))


def saved(module, passes):
    """By function: bytes that its kernels move less after the passes, and those that the ledger says."""
    said, less = {}, {}
    for function in module.body.operations:
        record = PipelineRun()
        alone = ir.Module.parse(f"module {{\n{function}\n}}")
        before = moved(alone.body.operations[0])
        run_pipeline(alone, passes, record=record, verify=False)
        name = function.name.value
        said[name] = sum(e.numbers["bytes_saved"] for e in record.ledger.entries if e.taken)
        less[name] = before - moved(alone.body.operations[0])
    return less, said


@pytest.mark.parametrize("name", ["fuse-elementwise", "fuse-reductions", "fuse-horizontally"])
def test_bytes_saved_add_up(name):
    with context():
        module = ir.Module.parse((FOLDER / "fuse" / f"{name}.mlir").read_text())
        run_pipeline(module, "decompose,to-kernels", verify=False)
        less, said = saved(module, FUSE)
        assert less == said and any(less.values())


@pytest.mark.thinned(3)
@pytest.mark.parametrize("seed", range(12))
def test_bytes_saved_of_random_programs_add_up(seed):
    program, inputs, dynamic = *random_program(Random(seed), 14), seed % 2 == 0
    with context():
        _, imported = prepare(program, *inputs, dynamic=dynamic)
        run_pipeline(imported.module, f"{SIMPLIFY},to-kernels", verify=False)
        less, said = saved(imported.module, FUSE)
        assert less == said


X, ROW = "tensor<64x8xf32>", "tensor<8xf32>"


@pytest.mark.parametrize(
    ("rule", "passes", "body", "numbers"),
    [
        (  # a row of 8 is all that the two share, of 64 x 8 elements each
            "WORTH IT",
            "fuse-horizontally",
            f"""(%x: {X}, %y: {X}, %row: {ROW}) -> ({X}, {X}) {{
  %0 = "mlirc.add"(%x, %row) : ({X}, {ROW}) -> {X}
  %1 = "mlirc.mul"(%y, %row) : ({X}, {ROW}) -> {X}
  return %0, %1 : {X}, {X}""",
            {"bytes_shared": 32, "read_twice": 32, "least": (2 * 64 * 8 + 8) * 4 // 8, "points_of_first": 512},
        ),
        (
            "SAME READS",
            "fuse-horizontally",
            f"""(%x: {X}) -> ({ROW}, tensor<64xf32>) {{
  %0 = "mlirc.sum"(%x) {{dims = "0", keepdim = false}} : ({X}) -> {ROW}
  %1 = "mlirc.sum"(%x) {{dims = "1", keepdim = false}} : ({X}) -> tensor<64xf32>
  return %0, %1 : {ROW}, tensor<64xf32>""",
            {"bytes_shared": 64 * 8 * 4, "points_of_first": 512, "points_of_second": 512},
        ),
        (
            "LIMITS",
            "fuse-elementwise{max-ops=1}",
            f"""(%x: {X}) -> {X} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.neg"(%0) : ({X}) -> {X}
  return %1 : {X}""",
            {"bytes_shared": 2 * 64 * 8 * 4, "ops": 2, "most_ops": 1, "reads": 1, "most_reads": 24},
        ),
        (  # 8 elements would be computed 64 times each
            "NO RECOMPUTE",
            "fuse-elementwise",
            f"""(%x: {X}, %row: {ROW}) -> {X} {{
  %0 = "mlirc.erf"(%row) : ({ROW}) -> {ROW}
  %1 = "mlirc.add"(%x, %0) : ({X}, {ROW}) -> {X}
  return %1 : {X}""",
            {"bytes_shared": 2 * 32, "evaluations": 512, "most": 8, "points_of_first": 8, "points_of_second": 512},
        ),
    ],
)
def test_a_refusal_says_what_was_compared(rule, passes, body, numbers):
    with context():
        module = ir.Module.parse(f"func.func @graph{body}\n}}")
        record = run_pipeline(module, f"to-kernels,{passes}")
    (entry,) = (e for e in record.ledger.entries if e.rule == rule)
    assert not entry.taken and entry.numbers.items() >= numbers.items()
