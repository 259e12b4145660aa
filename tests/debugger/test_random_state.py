"""What a captured graph drew at random, `mlirc run` draws again; a file's state is checked before PyTorch takes it."""

import pytest
import torch
from safetensors.torch import load_file, save_file

from mlirc.dialects.core.context import context
from mlirc.execution.accuracy import Expectation
from mlirc.execution.captures import read_capture
from mlirc.execution.inputs import read_inputs
from mlirc.execution.random_state import why_no_state
from mlirc.ir import ir
from tests.commands.command import bad, good


def drawing(x):
    dropped = torch.nn.functional.dropout(x @ x, 0.3)
    return dropped.relu() + torch.rand(8, 8), torch.randn(5), torch.bernoulli(torch.full((8,), 0.5))


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captured")
    torch.manual_seed(5)
    x = torch.randn(8, 8)
    torch.rand(700)  # in the middle of the generator's numbers, and behind a number of randn's two
    torch.randn(3)
    with torch.no_grad():
        torch.compile(drawing, backend="mlirc", options={"dump": folder, "cache": False})(x)
    (graph,) = read_capture(folder).graphs
    return graph


@pytest.mark.parametrize("target", ["cpu", "interpreter"])
@pytest.mark.parametrize("stage", ["import", "simplify", "fuse", "plan", "lower"])
def test_a_captured_graph_draws_the_same(stage, target, captured, tmp_path):
    out = tmp_path / "out.safetensors"
    good("run", captured.stages[stage], "--inputs", captured.inputs, "--target", target, "-o", out)
    left, expected = load_file(out), load_file(captured.results)
    assert left.keys() == expected.keys()
    for name, x in expected.items():
        torch.testing.assert_close(
            left[name], x, rtol=0 if target == "cpu" else 1e-5, atol=0 if target == "cpu" else 1e-6
        )


def test_the_float64_reference_draws_the_same(captured):
    with context():
        module = ir.Module.parse(captured.stages["import"].read_text())
        expected = Expectation(module, read_inputs(module, str(captured.inputs)))
    assert expected.exact is not None
    for own, exact in zip(expected.own.results, expected.exact.results, strict=True):
        torch.testing.assert_close(own.double(), exact, rtol=1e-5, atol=1e-5)


def changed(at, value, size=4):
    state = torch.Generator().manual_seed(1).get_state()
    state[at : at + size] = torch.tensor(list(value.to_bytes(size, "little", signed=True)), dtype=torch.uint8)
    return state


LIES = {
    "a float": torch.ones(5056),
    "short": torch.ones(100, dtype=torch.uint8),
    "a matrix": torch.ones(8, 632, dtype=torch.uint8),
    "none left": changed(8, 0),
    "less than none": changed(8, -1),
    "too many left": changed(8, 700),
    "left behind the end": changed(16, 600, 8) | changed(8, 600),
    "next far away": changed(16, 1 << 60, 8),
    "next before": changed(16, -1, 8),
    "not seeded": changed(12, 0),
}


@pytest.mark.parametrize("lie", LIES)
def test_states_that_are_none(lie, captured, tmp_path):
    path = tmp_path / "in.safetensors"
    save_file(load_file(captured.inputs) | {"random_state": LIES[lie]}, path)
    assert "random_state" in bad("run", captured.stages["import"], "--inputs", path)


def test_every_state_of_a_generator_is_taken():
    generator = torch.Generator().manual_seed(3)
    for step in range(630):
        assert not why_no_state(generator.get_state()), step
        torch.rand(1, generator=generator)
