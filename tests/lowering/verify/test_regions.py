"""Modules with loops and branches that verifiers refuse, and what they say."""

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.verify.plan import PlanError, check_plan
from mlirc.lowering.verify.stage import verify_stage

LOOP = """
func.func @graph(%n: tensor<i64>, %x: tensor<8xf32>, %c: tensor<8xf32>) -> tensor<8xf32> {
  %r:2 = "mlircx.while_loop"(%n, %x, %c) ({
    func.func @condition(%n1: tensor<i64>, %x1: tensor<8xf32>, %c1: tensor<8xf32>, %goes_on: tensor<i1>) {
      %0 = "mlirc.constant"() {value = "4"} : () -> tensor<i64>
      %1 = "mlirc.lt"(%n1, %0) : (tensor<i64>, tensor<i64>) -> tensor<i1>
      "mlirc.assign"(%goes_on, %1) : (tensor<i1>, tensor<i1>) -> ()
      return
    }
  }, {
    func.func @body(%n1: tensor<i64>, %x1: tensor<8xf32>, %c1: tensor<8xf32>) {
      %0 = "mlirc.constant"() {value = "1"} : () -> tensor<i64>
      %1 = "mlirc.add"(%n1, %0) : (tensor<i64>, tensor<i64>) -> tensor<i64>
      %2 = "mlirc.softmax"(%x1) {dim = 0 : i64} : (tensor<8xf32>) -> tensor<8xf32>
      %3 = "mlirc.add"(%2, %c1) : (tensor<8xf32>, tensor<8xf32>) -> tensor<8xf32>
      "mlirc.assign"(%n1, %1) : (tensor<i64>, tensor<i64>) -> ()
      "mlirc.assign"(%x1, %3) : (tensor<8xf32>, tensor<8xf32>) -> ()
      return
    }
  }) {carried = 2 : i64} : (tensor<i64>, tensor<8xf32>, tensor<8xf32>) -> (tensor<i64>, tensor<8xf32>)
  return %r#1 : tensor<8xf32>
}
"""

WRONG = [
    ("carried = 2", "carried = 1", "2 results"),
    ("carried = 2", "carried = 9", "fewer operands than carried"),
    ("func.func @body", "func.func @other", "not one function @body"),
    ("%goes_on: tensor<i1>) {", "%goes_on: tensor<i1>, %more: tensor<i1>) {", "@condition takes"),
    ("func.func @body(%n1: tensor<i64>", "func.func @body(%n1: tensor<i32>", None),
]


def test_a_loop_is_verified_with_its_functions():
    with context():
        module = ir.Module.parse(LOOP)
        verify_stage(module.body.operations[0], "graph")


@pytest.mark.parametrize(("old", "new", "said"), WRONG)
def test_what_does_not_fit_is_refused(old, new, said):
    assert old in LOOP
    with context():
        try:
            module = ir.Module.parse(LOOP.replace(old, new))
        except ir.MLIRError:
            assert said is None
            return
        with pytest.raises(StageError, match=said):
            verify_stage(module.body.operations[0], "graph")


def test_an_error_within_a_region_is_one():
    with context():
        module = ir.Module.parse(LOOP.replace("{dim = 0 : i64}", "{dim = 1 : i64}"))
        with pytest.raises(StageError, match="dimension 1 of 1"):
            verify_stage(module.body.operations[0], "graph")


def planned(text: str = LOOP, first: str = "") -> str:
    module = ir.Module.parse(text)
    run_pipeline(module, f"{first}decompose,to-kernels,fuse-elementwise,canonicalize,cse,eliminate-dead,plan-memory")
    return str(module)


def test_regions_lie_in_the_arena_of_their_graph():
    with context():
        text = planned()
        module = ir.Module.parse(text)
        function = module.body.operations[0]
        check_plan(function, {})
        bodies = [line for line in text.splitlines() if "@body" in line]
        assert len(bodies) == 1 and 'mlirc.arena = "128"' in bodies[0], "a part of the softmax lies in it"
        assert "tensor<128xui8>" in text
        small = ir.Module.parse(text.replace("tensor<128xui8>", "tensor<64xui8>"))
        with pytest.raises(StageError, match="@body has an arena of 128 bytes on cpu, where there are 64"):
            verify_stage(small.body.operations[0], "memory")
        op = next(op for op in function.regions[0].blocks[0].operations if op.operation.name == "mlircx.while_loop")
        op.operation.operands[4] = op.operands[1]  # the result where the operand is, which it spoils
        with pytest.raises(PlanError, match="spoils another"):
            check_plan(function, {})


ON_GPU = [
    (
        'tensor<128xui8, {device = "cuda:0"}>',
        'tensor<64xui8, {device = "cuda:0"}>',
        "128 bytes on cuda:0, where there are 64",
    ),
    ("arenas = 2", "arenas = 3", "a carried value begins as what it is not later"),
    ("arenas = 2", "arenas = 9", "3 inputs and 9 arenas among 7 operands"),
    ("arenas = 2", "arenas = 0", "3 inputs and 0 arenas among 7 operands"),
    ("tensor<0xui8>", 'tensor<0xui8, {device = "cuda:0"}>', "two arenas on cuda:0"),
]


def test_regions_on_a_gpu_lie_in_its_arena():
    """What the loop asks for is copied to the CPU, and lies there."""
    with context():
        text = planned(first="move-to-gpu,")
        module = ir.Module.parse(text)
        check_plan(module.body.operations[0], {})
        copy = next(line for line in text.splitlines() if 'callee = "copy"' in line)
        assert '(tensor<i1, {device = "cuda:0"}>, tensor<i1>)' in copy
        for old, new, said in ON_GPU:
            assert old in text
            module = ir.Module.parse(text.replace(old, new))
            with pytest.raises(StageError, match=said):
                verify_stage(module.body.operations[0], "memory")
