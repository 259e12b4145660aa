"""Source lines of nodes, and what a rule that gives up leaves behind."""

from random import Random

import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.frontend.importer.locations import FRAME, innermost
from tests.compare_stages import prepare

LINES = (
    '  File "/home/a b/model.py", line 12, in forward\n',
    '  File "<eval_with_key>.3", line 7, in forward\n',
    "    raise ValueError('File \"x\", line')\n",
    "    return self.f(x)\n",
    '  File "File ", line 3\n',
    'File "',
    '", line 4',
)


@pytest.mark.parametrize("seed", range(40))
def test_the_innermost_frame_is_the_last_that_the_pattern_finds(seed):
    random = Random(seed)
    trace = "".join(random.choices(LINES, k=random.randrange(7)))
    frames = FRAME.findall(trace)
    assert innermost(trace) == (frames[-1] if frames else None)


@pytest.mark.parametrize("builds", [0, 1, 3])
def test_what_a_rule_built_before_it_gave_up_is_gone(builds, monkeypatch):
    def gives_up(g, x):
        for _ in range(builds):
            x = g.exp(x)
        raise NotOurs("no")

    with context():  # which loads the rules
        monkeypatch.setitem(IMPORTS, torch.ops.aten.tanh.default, gives_up)
        _, imported = prepare(lambda x: (torch.sin(torch.tanh(torch.cos(x))), torch.tanh(x)), torch.rand(3))
        names = [op.operation.name for op in imported.module.body.operations[0].regions[0].blocks[0].operations]
    assert names == ["mlirc.cos", "mlircx.aten", "mlirc.sin", "mlircx.aten", "func.return"]
    assert imported.aten == {"aten.tanh.default": (2, "no")}
