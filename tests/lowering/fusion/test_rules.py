"""Each rule by which a fusion pass refuses a pair: a graph that it refuses, with numbers, and the pass's help, which explains it."""

import re

import pytest
import torch
import torch.nn.functional as F

from mlirc.dialects.core.context import context
from mlirc.lowering.pipeline.fusion_log import FusionLog
from mlirc.lowering.pipeline.pass_manager import PipelineRun, passes, run_pipeline
from mlirc.lowering.pipeline.pipelines import SIMPLIFY
from tests.compare_stages import prepare

ELEMENTWISE, REDUCTIONS, HORIZONTALLY = "fuse-elementwise", "fuse-reductions", "fuse-horizontally"
PASSES = f"{SIMPLIFY},generate-matmuls{{always=true}},to-kernels,{ELEMENTWISE},{REDUCTIONS},{HORIZONTALLY}"
BELOW = {REDUCTIONS: (ELEMENTWISE,), HORIZONTALLY: (ELEMENTWISE, REDUCTIONS)}  # whose help says the other rules
X, MANY = torch.randn(64, 32), torch.randn(30, 33, 7).unbind()


def gathered(x, i):
    return x.exp().index_select(0, i).sin()


def checked_once_for_each(x, i):
    y = x[i]
    return y.expand(4, 20, 32) * x[:4, None, :]


def in_order(x):
    y = x.view(4, 16, 32)
    return (y - y.sum((1, 2))[:, None, None]).transpose(1, 2).reshape(4, -1).argmax(-1)


def without_points(x):
    empty = x[:0]
    return empty.exp().sum(0) + 1, empty.mul(2).cos().amax(1)


def readers_without_points(x):
    empty = x[:0]
    return empty.sum(1), empty.exp().sum(1)


def factors(x):
    return F.gelu(x.sin() @ x.t())


def joined_factors(x):
    return (x.t() @ x).relu(), x.sum(0)


def written_once(x):
    y = x.exp()
    return y, y[::2].sin().cumsum(-1)


def view_without_map(x):
    return torch.as_strided(x.sin(), (5, 7), (3, 2), 1) + 1


def pool(x):
    return F.max_pool2d(x.view(2, 1, 32, 32).sin(), 3, 1).exp() + 1


def padded(x):
    return F.pad(x.exp().sin().tan(), (1, 200)).cos()


def columns(x):
    y = x.exp()
    return y.sum(0), y, x.sum(1)


def cycle(x):
    y = x.exp().cumsum(1)
    return y + y.flip(0).cumsum(0).sum(), y


def many(x, *others):
    for y in others:
        x = (x * y).sin()
    return x


CASES = [
    ("GATHERED", ELEMENTWISE, gathered, (X, torch.arange(64))),
    ("EVERY INDEX IS CHECKED", ELEMENTWISE, checked_once_for_each, (X, torch.arange(20))),
    ("IN ORDER", REDUCTIONS, in_order, (X,)),
    ("NO POINTS", ELEMENTWISE, without_points, (X,)),
    ("NO POINTS", HORIZONTALLY, readers_without_points, (X,)),
    ("MATMULS STAY", ELEMENTWISE, factors, (X,)),
    ("MATMULS STAY", HORIZONTALLY, joined_factors, (X,)),
    ("WRITTEN ONCE", ELEMENTWISE, written_once, (X,)),
    ("VIEW WITHOUT MAP", ELEMENTWISE, view_without_map, (X,)),
    ("NO RECOMPUTE", ELEMENTWISE, pool, (X,)),
    ("MASKED", ELEMENTWISE, padded, (X,)),
    ("ROWS FIRST", ELEMENTWISE, columns, (X,)),
    ("NO CYCLE", HORIZONTALLY, cycle, (X,)),
    ("LIMITS", ELEMENTWISE, many, MANY),
    ("SAME ROWS", REDUCTIONS, cycle, (X,)),
    ("SAME READS", HORIZONTALLY, columns, (X,)),
]


@pytest.mark.parametrize(("rule", "name", "function", "inputs"), CASES, ids=[f"{c[0]}-{c[1]}" for c in CASES])
def test_a_rule_refuses_with_numbers(rule, name, function, inputs):
    with context():
        _, imported = prepare(function, *inputs)
        record = PipelineRun()
        record.ledger.fusion = FusionLog(wanted=True)
        run_pipeline(imported.module, PASSES, record=record)
    found = [e for e in record.ledger.entries if (e.rule, e.pass_name, e.taken) == (rule, name, False)]
    assert found, sorted({(e.rule, e.pass_name) for e in record.ledger.entries if not e.taken})
    for entry in found:
        assert entry.numbers["spaces"].count("[") == 2
        assert all(isinstance(entry.numbers[n], int) for n in ("bytes_shared", "points_of_first", "points_of_second"))
    pairs = [c for c in record.ledger.fusion.candidates if (c.rule, c.pass_name, c.taken) == (rule, name, False)]
    assert len(pairs) == len(found) and all(c.limits and c.kind in ("legal", "cost") for c in pairs)
    for entry in record.ledger.entries:  # not of this rule alone
        if entry.pass_name in (ELEMENTWISE, REDUCTIONS, HORIZONTALLY):
            explained(entry.rule, entry.pass_name)


def explained(rule, name):
    for known in (name, *BELOW.get(name, ())):
        text = passes()[known].__doc__
        assert text
        if re.search(rf"^ +{rule}( |:)", text, re.M):
            return
    raise AssertionError(f"no help explains {rule} of {name}")


def test_numbers_of_typical_sizes_say_so():
    with context():
        _, imported = prepare(lambda x: (x.sin() + 1).sum(-1), X, dynamic=True)
        record = PipelineRun()
        record.ledger.fusion = FusionLog(wanted=True)
        run_pipeline(imported.module, PASSES, record=record)
    entry = next(e for e in record.ledger.entries if e.pass_name == ELEMENTWISE)
    assert entry.numbers["each_symbol"] == 96 and entry.numbers["bytes_saved"] == 2 * 96 * 96 * 4
