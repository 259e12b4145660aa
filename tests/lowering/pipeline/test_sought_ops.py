"""Passes that look for ops of certain names do nothing in a graph without any, and are not loaded for it."""

import os

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.frontend.importer.importer import import_graph
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import make_pass, parse
from mlirc.lowering.pipeline.pass_manager import find_pass, functions, run_pipeline
from mlirc.lowering.pipeline.pipelines import PIPELINES
from mlirc.lowering.pipeline.sought_ops import SOUGHT, holds
from tests.forked_programs import python

X, W = torch.randn(4, 8, 6, 6), torch.randn(8, 8, 3, 3)
GRAPHS = {
    "mlp": (lambda x: functional.gelu(x @ x.mT).softmax(-1).sum((0, 1)), X),
    "moves": (
        lambda x: torch.cat([x, x.flip(0)]).roll(1, 2)[:, :2].gather(1, (x[:, :2] > 0).long().repeat(2, 1, 1, 1)),
        X,
    ),
    "convolution": (lambda x: functional.conv2d(x, W).relu(), X),
    "attention": (lambda x: functional.scaled_dot_product_attention(x, x, x), X),
    "embedding": (lambda x: functional.embedding((x[0, 0] > 0).long(), W[0, 0]), X),
}


def imported(run, x):
    return import_graph(make_fx(lambda x: [run(x)])(x)).module


@pytest.mark.parametrize("graph", GRAPHS)
def test_it_does_nothing_without_them(graph):
    run, x = GRAPHS[graph]
    with context():
        for name, beginnings in SOUGHT.items():
            module = imported(run, x)
            before, (function,) = str(module), functions(module)
            if holds([function], beginnings):
                continue
            with ir.InsertionPoint(function):
                make_pass(find_pass(name), parse(name)[0]).run(function, Ledger())
            assert str(module) == before, name


def test_each_is_a_pass_of_a_pipeline_that_takes_graphs():
    used = {step.name for stages in PIPELINES.values() for text in stages.values() for step in parse(text)}
    for name in SOUGHT:
        assert name in used and find_pass(name).takes == "graph", name


def test_ops_are_found():
    kinds = {"convolution": "fold-convolutions", "attention": "select-attention"}
    with context():
        for graph, name in kinds.items():
            run, x = GRAPHS[graph]
            assert holds(functions(imported(run, x)), SOUGHT[name])


SCRIPT = """
import sys
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.pipeline.parser import PipelineError
from mlirc.lowering.pipeline.pass_manager import run_pipeline
text = '''
func.func @graph(%x: tensor<8x16xf32>) -> tensor<8x16xf32> attributes {mlirc.results = ["g0"]} {
  %0 = "mlirc.exp"(%x) : (tensor<8x16xf32>) -> tensor<8x16xf32>
  return %0 : tensor<8x16xf32>
}'''
with context():
    module = ir.Module.parse(text)
    run_pipeline(module, "fold-convolutions,to-kernels")
    run_pipeline(module, "plan-memory")
    try:
        run_pipeline(module, "fold-convolutions")
    except PipelineError as error:
        print(error)
print(any("fold_convolutions" in name for name in sys.modules))
"""


def test_it_is_not_loaded_and_refuses_other_forms_as_before():
    done = python("-c", SCRIPT, env=dict(os.environ))
    assert done.returncode == 0, done.stderr
    refused, loaded = done.stdout.splitlines()
    assert refused.startswith("pass 'fold-convolutions' takes the graph form, and "), refused
    assert loaded == "False"


def test_its_options_are_still_read():
    with context(), pytest.raises(ValueError, match="pass 'fold-convolutions' has no option 'width'"):
        run_pipeline(ir.Module.parse("module {}"), "fold-convolutions{width=3}")
