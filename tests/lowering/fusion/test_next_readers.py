"""The next readers of a tensor, which are kept between merges, are those that a walk over all of its readers finds."""

from random import Random

import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.fusion.graph import FusionGraph
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.pipeline.pipelines import FUSE, SIMPLIFY
from tests.compare_stages import prepare
from tests.property.random_programs import random_program


def steps(x, w):
    """Each step reads the weights, and steps merge with one another."""
    found = []
    for k in range(9):
        x = torch.tanh(x * w + k) @ w
        found += [x.sum(0), (x * w).amax(1), torch.exp(w) * k]
    return found


def programs():
    yield "steps", steps, [torch.rand(4, 4), torch.rand(4, 4)]
    for seed in range(12):
        program, inputs = random_program(Random(seed), 20)
        yield f"random {seed}", program, inputs


@pytest.mark.thinned(8)
@pytest.mark.parametrize(("program", "inputs"), [pytest.param(*p, id=name) for name, *p in programs()])
def test_next_readers(program, inputs, monkeypatch):
    asked = []
    kept = FusionGraph.next_readers

    def walked(self, node, tensor, count):
        later = [r for r in tensor.root.readers if r.body is not None and r.position > node.position]
        found = kept(self, node, tensor, count)
        assert found == sorted(later, key=lambda reader: reader.position)[:count]
        asked.append(found)
        return found

    monkeypatch.setattr(FusionGraph, "next_readers", walked)
    with context():
        _, imported = prepare(program, *inputs)
        module = ir.Module.parse(str(imported.module))
        run_pipeline(module, f"{SIMPLIFY},{FUSE}", verify=False)
    assert program is not steps or any(len(found) > 1 for found in asked)
