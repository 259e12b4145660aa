"""Every stage's form, read back from its text, gives what eager gives when it is interpreted; the lowered one as well."""

from collections.abc import Sequence

import pytest
import torch
from torch.nn import functional

from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.lowering.pipeline.pass_manager import run_pipeline, verify_forms
from mlirc.lowering.pipeline.pipelines import PIPELINES
from tests.compare_stages import compare, flat, prepare

pytestmark = pytest.mark.thinned

STAGES = ("import", "simplify", "fuse", "plan", "lower")


def stages(fn, *inputs, dynamic: bool | Sequence[int] = False, pipeline="cpu"):
    """(stage, text, objects) of each stage's form."""
    with context():
        _, imported = prepare(fn, *inputs, dynamic=dynamic)
        yield "import", str(imported.module), imported.objects
        for stage, passes in PIPELINES[pipeline].items():
            run_pipeline(imported.module, passes)
            yield stage, str(imported.module), imported.objects


def interpret(text, inputs, objects):
    """What @graph of the module gives when it is parsed and interpreted."""
    with context():
        module = ir.Module.parse(text)
        verify_forms(module)
        return run(module.body.operations[0], [clone(x) for x in inputs], objects)


def clone(x):
    return x.clone() if isinstance(x, torch.Tensor) else x


def normalized(x, w):
    return functional.layer_norm(x, x.shape[1:], w) * torch.sigmoid(x), x.var(0), x.amax(1, keepdim=True)


def rows(x):
    return functional.softmax(x.float(), -1).to(x.dtype), x.argmax(-1), x.cumsum(0), (x > 0).any(1)


def looked_up(table, index):
    return functional.embedding(index, table).sum(1), table.t().flip(0)[1:]


def moved(x):
    padded = functional.pad(x.t(), (1, 2), value=3.0)
    return torch.cat([padded, padded[:, :1]], 1), x.t()[1:], torch.linalg.vector_norm(x @ x.t())


CASES = {
    "normalized": (normalized, (torch.randn(5, 12), torch.randn(12))),
    "rows": (rows, (torch.randn(6, 19).bfloat16(),)),
    "looked_up": (looked_up, (torch.randn(11, 8), torch.randint(0, 11, (3, 4)))),
    "moved": (moved, (torch.randn(7, 5),)),
}


@pytest.mark.parametrize("pipeline", ["cpu", "strict"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_every_stage_can_be_interpreted(case, dynamic, pipeline):
    fn, inputs = CASES[case]
    if case == "normalized" and dynamic:
        dynamic = (0,)  # the layer's width is a module's, and static
    seen = []
    for stage, text, objects in stages(fn, *inputs, dynamic=dynamic, pipeline=pipeline):
        compare(interpret(text, inputs, objects), flat(fn(*inputs)))
        seen.append(stage)
    assert tuple(seen) == STAGES
    assert '"mlircx.run"' in text and '"mlircx.launch"' not in text


def test_a_lowered_dump_of_symbolic_sizes_is_interpreted_and_emitted_at_other_sizes():
    text, objects = list(stages(rows, torch.randn(6, 19), dynamic=True))[-1][1:]
    with context():
        program = compile_module(ir.Module.parse(text))
    for shape in ((6, 19), (1, 3), (33, 2)):
        x = torch.randn(shape)
        compare(interpret(text, [x], objects), flat(rows(x)))
        with torch.no_grad():
            compare(program([x]), flat(rows(x)))


def test_a_bad_index_is_found_out_in_every_stage():
    table, index = torch.randn(11, 8), torch.tensor([[3, 11]])
    for _, text, objects in stages(looked_up, table, index % 11):
        with pytest.raises(IndexError):
            interpret(text, [table, index], objects)


def test_the_interpreter_runs_the_body_and_the_program_the_function():
    """They are two descriptions of one kernel: a body that is changed by hand changes the interpreter's result only."""
    x = torch.randn(40)
    text = list(stages(lambda x: x.exp() + 1, x))[-1][1]
    assert text.count('"mlirc.exp"') == 1
    changed = text.replace('"mlirc.exp"', '"mlirc.neg"')
    compare(interpret(changed, [x], ()), [1 - x])
    with context():
        program = compile_module(ir.Module.parse(changed))
    compare(program([x]), [x.exp() + 1])
