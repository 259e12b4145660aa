"""A first run that fails: eager runs instead, with the same inputs, although a backward graph on a GPU frees its inputs as it runs."""

import warnings

import pytest
import torch
from torch import nn

from mlirc.frontend import statistics
from mlirc.frontend.driver import run as compile_
from mlirc.frontend.fallback import first_run, held_inputs


@pytest.fixture
def frees_as_it_goes(monkeypatch):
    """Backward graphs free their inputs, as on a GPU; and tensors count as a GPU's, so that copies of them go to the host."""
    of = first_run.effects_of

    def effects_of(gm, kind, program):
        found = of(gm, kind, program)
        return first_run.Effects(found.written, found.random, found.again, found.always, frees=kind == "backward")

    monkeypatch.setattr(compile_, "effects_of", effects_of)
    monkeypatch.setattr(held_inputs, "on_gpu", lambda x: isinstance(x, torch.Tensor))


def fails_once_it_has_freed(args):
    args.clear()
    raise RuntimeError("out of memory")


@pytest.mark.parametrize("room", [0, 1 << 40])
def test_a_backward_graphs_first_run_fails(frees_as_it_goes, monkeypatch, room):
    copies = []
    copied = held_inputs.copied
    monkeypatch.setattr(held_inputs, "copied", lambda x, device: copies.append(x) or copied(x, device))
    monkeypatch.setattr(held_inputs, "room", lambda device: room)
    wrap = compile_.wrap

    def wrapped(compiled, *args):
        run = wrap(compiled, *args)
        if compiled.program.host.inputs and run_is_backward[0]:
            fails_once_it_has_freed._boxed_call = True
            fails_once_it_has_freed.program = compiled.program
            return fails_once_it_has_freed
        return run

    run_is_backward = [False]
    monkeypatch.setattr(compile_, "wrap", wrapped)
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16))
    x = torch.randn(4, 8)
    model(x).square().sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    statistics.reset()
    result = torch.compile(model, backend="mlirc", options={"cache": False})(x)
    run_is_backward[0] = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result.square().sum().backward()
    torch.testing.assert_close([p.grad for p in model.parameters()], expected)
    assert list(statistics.fallbacks) == ["RuntimeError: out of memory"] and bool(copies) == (room == 0)


def test_copies_have_the_strides_of_what_they_copy():
    for x in (torch.randn(3, 4).t(), torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last), torch.randn(0, 2)):
        made = held_inputs.copied(x, torch.device("cpu"))
        assert (
            made.stride() == x.stride() and torch.equal(made, x) and made.untyped_storage() is not x.untyped_storage()
        )


def test_memory_is_counted_once():
    x = torch.zeros(10)
    assert held_inputs.size([x, x[2:], torch.zeros(3)], x.device) == 52
