"""Scripts: they run as they are; each call of what they compile becomes a subject, with the state that the script left."""

import sys

import pytest
import torch

from mlirc.measurement.error import error_of
from mlirc.measurement.script_calls import ScriptError, run_script
from mlirc.measurement.script_subjects import script_subject
from mlirc.measurement.sides import read_side

SCRIPT = """
import sys
import torch

torch.manual_seed(0)
linear = torch.nn.Linear(8, 8)
scale = torch.full((8,), 0.5, requires_grad=True)


@torch.compile(fullgraph=True)
def closed(x):
    "Closes over a module and a tensor."
    return {"a": (linear(x) * scale).softmax(-1)}


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x):
        return torch.relu(self.norm(x))


norm = torch.compile(torch.nn.Sequential(Norm()), backend="inductor")
assert len(list(norm.parameters())) == 2 and isinstance(norm, torch.nn.Module)
assert closed.__name__ == "closed"
closed(torch.randn(4, 8))["a"].sum().backward()
x = torch.randn(3, 8)
x.add_(1)
with torch.no_grad():
    for _ in range(3):
        norm(x)
        x.mul_(2)
    closed(torch.randn(2, 8))
linear.zero_grad()
assert __name__ == "__main__" and sys.argv[1:] == ["--layers", "3"]
"""


@pytest.fixture(scope="module")
def calls(tmp_path_factory):
    path = tmp_path_factory.mktemp("script") / "script.py"
    path.write_text(SCRIPT)
    real, main = torch.compile, sys.modules["__main__"]
    found = run_script(str(path), ["--layers", "3"])
    assert torch.compile is real
    yield found
    sys.modules["__main__"] = main


def test_each_different_call_is_kept_once(calls):
    assert [(call.name, call.count) for call in calls] == [
        ("closed(4x8) with gradients", 1),
        ("Sequential(3x8)", 3),
        ("closed(2x8)", 1),
    ]
    assert calls[0].arguments == {"fullgraph": True}


@pytest.mark.parametrize("side", ["eager", "cpu"])
@pytest.mark.parametrize("number", range(3))
def test_a_subject_is_right_and_leaves_the_state_alone(calls, number, side):
    subject = script_subject(calls[number])
    made = subject.compiled(read_side(side))
    exact = subject.exact()
    assert exact is not None and exact.outputs[0].dtype == torch.float64
    assert len(exact.gradients) == (3 if number == 0 else 0)  # weight, bias, scale
    error = error_of(made.results, exact)
    assert 0 < error.outputs < 1e-6 and error.gradients < 1e-6
    made.step()
    linear = calls[0].function.__globals__["linear"]
    assert linear.weight.grad is None and linear.weight.dtype == torch.float32
    facts = made.facts
    if side == "cpu":
        assert facts.launches >= 1 and facts.written > 0 and facts.read > 0 and facts.compile > 0
        assert facts.flops > (0 if number == 1 else 2 * 8 * 8)
    else:
        assert facts.launches is None and facts.bytes is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("x = 1\ny = x / 0\n", ":2: ZeroDivisionError: division by zero"),
        ("import sys\nsys.exit(3)\n", "exits with 3"),
        ("print('nothing')\n", "calls nothing that torch.compile made"),
        ("import torch\ntorch.compile(lambda x: x)\n", "calls nothing that torch.compile made"),
    ],
)
def test_a_script_that_fails(text, said, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    path = tmp_path / "script.py"
    path.write_text(text)
    with pytest.raises(ScriptError) as raised:
        run_script(str(path))
    assert said in str(raised.value)
