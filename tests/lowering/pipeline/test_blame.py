"""Where a pass trips over what an earlier one has left, the earlier one is named, in whichever calls the passes run."""

from dataclasses import dataclass

import pytest

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.passes.fuse.eliminate_dead import EliminateDead
from mlirc.lowering.passes.simplify.eliminate_views import EliminateViews
from mlirc.lowering.pipeline.pass_manager import PassError, PipelineRun, register, run_pipeline
from mlirc.lowering.pipeline.pipelines import pipeline

Q, M = "tensor<1x4x32x16xf32>", "tensor<1x1x32x32xf32>"
GRAPH = f"""
func.func @graph(%q: {Q}, %m: {M}, %flat: tensor<32x32xf32>) -> {Q} attributes {{mlirc.results = ["g0"]}} {{
  %0:2 = "mlirc.attention"(%q, %q, %q, %m) {{causal = "none", scale = 0.25 : f64}} : ({Q}, {Q}, {Q}, {M}) -> ({Q}, tensor<1x4x32xf32>)
  return %0#0 : {Q}
}}"""

SOFTMAX = """
func.func @graph(%x: tensor<8x16xf32>) -> tensor<8x16xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlirc.exp"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  %1 = "mlirc.softmax"(%0) {dim = 1 : i64} : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %1 : tensor<8x16xf32>
}"""


@dataclass(frozen=True)
class FlattensMasks:
    """Wrong: a mask has four dimensions. MLIR's verifier, which runs after each pass, does not know."""

    name = "flattens-masks"

    def run(self, function, ledger):
        block = function.regions[0].blocks[0]
        for op in block.operations:
            if op.operation.name == "mlirc.attention":
                op.operation.operands[3] = block.arguments[2]


@dataclass(frozen=True)
class Trips:
    """A pass that relies on what a verifier holds."""

    name = "trips"

    def run(self, function, ledger):
        for op in function.regions[0].blocks[0].operations:
            if op.operation.name == "mlirc.attention" and len(ir.RankedTensorType(op.operands[3].type).shape) != 4:
                raise IndexError("tuple index out of range")


@pytest.fixture(autouse=True)
def registered():
    for cls in (FlattensMasks, Trips):
        register(cls)


@pytest.mark.parametrize(
    "calls", [["flattens-masks,cse,REST"], ["flattens-masks,cse", "REST"], ["cse", "flattens-masks,REST"]]
)
@pytest.mark.parametrize("rest", ["trips", pipeline("cpu")])
def test_the_pass_that_broke_the_form_is_named(calls, rest):
    with context():
        module, record = ir.Module.parse(GRAPH), PipelineRun()
        with pytest.raises(
            PassError, match=r"^pass 'flattens-masks' failed: mlirc.attention .*ranks \[2, 4\]"
        ) as raised:
            for call in calls:
                run_pipeline(module, call.replace("REST", rest), record=record, verify=False)
    assert raised.value.step == "flattens-masks"
    with context(), pytest.raises(PassError, match="flattens-masks"):  # what it names shows it alone
        run_pipeline(ir.Module.parse(raised.value.module_text), raised.value.step)


def test_a_pass_that_trips_over_what_it_was_given_is_named_itself():
    text = GRAPH.replace("%q, %m)", "%q, %flat)").replace(f"{Q}, {M})", f"{Q}, tensor<32x32xf32>)")
    with context(), pytest.raises(PassError, match=r"^pass 'trips' failed"):
        run_pipeline(ir.Module.parse(text), "cse,trips")


@pytest.mark.parametrize("each", [True, False])
@pytest.mark.parametrize("rest", ["hoist-gathers", "hoist-gathers,trips", "cse,hoist-gathers"])
def test_a_pass_of_ours_that_leaves_what_mlir_refuses_is_named(each, rest, monkeypatch):
    """Where MLIR is asked after the last pass alone, too."""

    def returns_another(self, function, ledger):
        block = function.regions[0].blocks[0]
        list(block.operations)[-1].operation.operands[0] = block.arguments[2]

    monkeypatch.setattr(EliminateViews, "run", returns_another)
    with (
        context(),
        pytest.raises(PassError, match=r"^pass 'eliminate-views' failed.*type of return operand 0") as raised,
    ):
        run_pipeline(ir.Module.parse(GRAPH), f"cse,eliminate-views,{rest}", verify=False, each=each)
    assert raised.value.step == "eliminate-views"
    with context(), pytest.raises(PassError, match="eliminate-views"):
        run_pipeline(ir.Module.parse(raised.value.module_text), raised.value.step)


def test_the_module_that_a_pass_was_given_is_made_again(monkeypatch):
    """Where none is kept for each pass: to the letter what is kept where MLIR verifies after each."""

    def fails(self, function, ledger):
        list(function.regions[0].blocks[0].operations)[-1].operation.erase()
        raise IndexError("tuple index out of range")

    monkeypatch.setattr(EliminateDead, "run", fails)
    given = []
    for each in (True, False):
        with context(), pytest.raises(PassError, match=r"^pass 'eliminate-dead' failed") as raised:
            rest = "decompose,cse,to-kernels,fuse-elementwise,fuse-reductions,eliminate-dead,cse"
            run_pipeline(ir.Module.parse(SOFTMAX), rest, verify=False, each=each)
        given.append(raised.value.module_text)
    assert given[0] == given[1]
    assert given[0].count("mlircx.kernel") == 1
