"""decompose: what equal composites become is built once and copied, and is what each would become by itself."""

import pytest
import torch
from torch.nn import functional as F

from mlirc.dialects.core import composites
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.composites import Expansions, expand
from mlirc.dialects.core.context import context
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from tests.compare_stages import prepare


def alike(x, y, z, w):
    """Three times each, on other operands, and such that differ in one thing: an attribute, a dtype, strides, which operands are one."""
    rows = [F.softmax(v, 1) for v in (x, y, z)] + [F.softmax(x, 0), F.softmax(x.t(), 1), F.softmax(x.double(), 1)]
    norms = [
        F.layer_norm(v, (6,), a, b) for v, a, b in ((x, w, w), (y, w, z[0]), (z, w, z[1]), (y, z[0], w), (z, w, w))
    ]
    norms += [F.layer_norm(v, (6,), w, w, eps) for v in (x, y, z) for eps in (1e-3, 1e-5)]
    means = [F.batch_norm(v[:, :, None], None, None, w, w, training=True) for v in (x, y, z)]
    return [*rows, *norms, *means, *(F.gelu(v) for v in (x, y, z)), F.logsigmoid(x), F.logsigmoid(y), F.logsigmoid(z)]


def layers(count):
    def program(x, *ws):
        for w in ws:
            x = F.layer_norm(F.softmax(x, 1), (6,), w, w)
        return [x]

    return program, (torch.rand(6, 6), *(torch.rand(6) for _ in range(count)))


def lines_apart(text: str) -> str:
    """Another source line for each op."""
    ops = enumerate(text.split("\n"))
    return "\n".join(f'{op[: op.rindex("loc(")]}loc("x.py":{k}:1)' if op.strip()[:1] == "%" else op for k, op in ops)


@pytest.mark.parametrize("dynamic", [False, True])
def test_copies_are_what_each_composite_becomes(dynamic, monkeypatch):
    texts = []
    with context():
        _, imported = prepare(alike, *(torch.rand(6, 6) for _ in range(3)), torch.rand(6), dynamic=dynamic)
        given = lines_apart(imported.module.operation.get_asm(enable_debug_info=True, use_local_scope=True))
        for expanded in (Expansions.expand, lambda self, op: expand(op)):
            monkeypatch.setattr(Expansions, "expand", expanded)
            module = ir.Module.parse(given)
            run_pipeline(module, "decompose", verify=False)
            texts.append(module.operation.get_asm(enable_debug_info=True))
    assert texts[0] == texts[1]


def test_equal_composites_are_built_twice(monkeypatch):
    """In place the first time, and apart to be copied the second."""
    built = []
    monkeypatch.setattr(composites, "expand", lambda op, *given: built.append(op.operation.name) or expand(op, *given))
    counts = []
    with context():
        for count in (4, 9):
            built.clear()
            program, inputs = layers(count)
            run_pipeline(prepare(program, *inputs)[1].module, "decompose", verify=False)
            counts.append(len(built))
    assert counts[0] == counts[1] > 0
