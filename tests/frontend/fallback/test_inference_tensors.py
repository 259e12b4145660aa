"""Tensors of inference mode, inside and outside of it: what may be done with them is what eager lets a program do."""

import pytest
import torch
from torch import nn

import mlirc
from mlirc.frontend.fallback.inference_tensors import writes


class Counter(nn.Module):
    n: torch.Tensor

    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(3))

    def forward(self, x):
        self.n.add_(x[0])
        return self.n * x


def each(x):
    torch._foreach_add_([x], 1.0)  # pyright: ignore[reportPrivateImportUsage]
    return x.sum()


def item(x):
    x[0] = 1
    return x.sum()


PROGRAMS = {
    "an input": lambda: lambda x: x.add_(1),
    "a view": lambda: lambda x: x.view(-1)[1:].mul_(2),
    "an item": lambda: item,
    "a list": lambda: each,
    "out": lambda: lambda x: torch.exp(x, out=x),
    "a buffer": Counter,
    "batch norm": lambda: nn.BatchNorm1d(3),
    "no write": lambda: lambda x: (x * 2, x.sum(0)),
    "a write to a copy": lambda: lambda x: x.clone().add_(1),
    "a view of an input": lambda: lambda x: (x, x[0], x + 1),
    "parameters": lambda: nn.Linear(3, 2),
}
MODES = {"inference": lambda: torch.inference_mode(), "no_grad": torch.no_grad, "grad": torch.enable_grad}


def told(call, x):
    try:
        results = call(x)
    except RuntimeError as error:
        return str(error).split(".")[0]
    results = results if isinstance(results, tuple) else (results,)
    return [(y.detach().clone(), y.is_inference(), y.requires_grad) for y in results]


def calls(name, order, made_in, given_in, compiled):
    """What each call gives, and the input and state after all."""
    torch.manual_seed(0)
    torch._dynamo.reset()
    with MODES[made_in]():
        f = PROGRAMS[name]()
    with MODES[given_in]():
        x = torch.arange(6.0).view(2, 3)
    run = torch.compile(f, backend="mlirc") if compiled else f
    found = []
    for mode in order:
        with MODES[mode]():
            found.append(told(run, x))
    state = [y.detach().clone() for y in f.state_dict().values()] if isinstance(f, nn.Module) else []
    return found, x.clone(), state


@pytest.mark.thinned(6)
@pytest.mark.parametrize(
    "made_in, given_in", [("inference", "grad"), ("grad", "inference"), ("inference", "inference")]
)
@pytest.mark.parametrize("order", [("inference", "no_grad", "grad"), ("no_grad", "inference", "no_grad")], ids="-".join)
@pytest.mark.parametrize("name", PROGRAMS)
def test_as_eager(name, order, made_in, given_in):
    if name == "parameters" and made_in == given_in:
        order = tuple(
            mode for mode in order if mode != "grad"
        )  # AOTAutograd saves parameters that eager asks no gradient of
    found, *after = calls(name, order, made_in, given_in, True)
    expected, *should = calls(name, order, made_in, given_in, False)
    for one, other in zip(found, expected, strict=True):
        if isinstance(one, str) or isinstance(other, str):
            assert one == other
        else:
            torch.testing.assert_close(one, other)
    torch.testing.assert_close(after, should)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", PROGRAMS)
def test_what_is_counted(name):
    """Nothing runs in eager but what would raise there."""
    with torch.inference_mode():
        f, x = PROGRAMS[name](), torch.ones(2, 3)
    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    with torch.inference_mode():
        compiled(x)
    if "no write" in name or "copy" in name or "view of" in name:
        with torch.no_grad():
            compiled(x)
        assert "outside of that mode" not in str(mlirc.explain(f)(x))


def test_what_nobody_knows_is_a_write():
    class Unknown(torch.fx.GraphModule):
        pass

    graph = torch.fx.Graph()
    graph.output(graph.call_function(torch.nonzero, (graph.placeholder("x"),)))
    assert writes(Unknown({}, graph), [torch.ones(3)])
