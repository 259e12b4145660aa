"""Whether a merge would close a cycle, looked for from both ends, is what a walk over all dependents of the first kernel finds."""

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


def dense(x):
    """Each layer reads all layers before it, normalized: merging a layer with a later reader often closes a cycle."""
    found = [x]
    for _ in range(4):
        joined = torch.cat(found, 1)
        found.append(torch.tanh(joined - joined.amax(0, keepdim=True))[:, :4])
    return torch.cat(found, 1).softmax(1), found[1].sum()


def programs():
    yield "dense", dense, [torch.rand(4, 4)]
    for seed in range(100, 104):
        program, inputs = random_program(Random(seed), 20)
        yield f"random {seed}", program, inputs


def depends(graph, node, first):
    """Whether `node` depends on `first`, or is it."""
    seen, stack = {node}, [node]
    while stack:
        for source in graph.sources(stack.pop()) - seen:
            seen.add(source)
            stack.append(source)
    return first in seen


@pytest.mark.parametrize(("program", "inputs"), [pytest.param(*p, id=name) for name, *p in programs()])
def test_closes_cycle(program, inputs, monkeypatch):
    answers = []
    kept = FusionGraph.closes_cycle

    def walked(self, first, second):
        found = kept(self, first, second)
        answers.append((found, any(depends(self, u, first) for u in self.sources(second) - {first})))
        return found

    monkeypatch.setattr(FusionGraph, "closes_cycle", walked)
    with context():
        _, imported = prepare(program, *inputs)
        module = ir.Module.parse(str(imported.module))
        run_pipeline(module, f"{SIMPLIFY},{FUSE}", verify=False)
    assert all(found == walked for found, walked in answers)
    assert program is not dense or {found for found, _ in answers} == {False, True}
