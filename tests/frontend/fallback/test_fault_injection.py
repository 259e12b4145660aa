"""An exception at any function of ours, while a graph is compiled or first run: the program gives what eager gives.

A function raises at its first call, whatever calls it; Dynamo, AOTAutograd and the user's program know nothing of it.
"""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mlirc.frontend import statistics
from mlirc.frontend.capture import aot_autograd
from mlirc.frontend.entry import backend
from tests import sampling
from tests.faults import called, fault, name_of

OUTERMOST = [backend.mlirc, aot_autograd.Capture.backward]  # what is called within them is caught
ERRORS = [RuntimeError, MemoryError, KeyError]


class Trained(nn.Module):
    """A loss and logits, of which only one gets a gradient; running statistics; a call of ATen."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.last = nn.BatchNorm1d(8), nn.Linear(8, 3)

    def forward(self, x, target):
        y = F.dropout(self.norm(x).relu(), 0.5, training=self.training).cumprod(1)
        logits = self.last(y)
        return F.cross_entropy(logits, target), logits


X, TARGET = torch.randn(6, 8, generator=torch.Generator().manual_seed(1)), torch.tensor([0, 1, 2, 0, 1, 2])


def trained(compile_):
    torch._dynamo.reset()
    torch.manual_seed(0)
    model = Trained()
    loss, logits = compile_(model)(X, TARGET)
    loss.backward()
    return [loss.detach(), logits.detach(), *(p.grad for p in model.parameters()), *model.buffers()]


def inferred(compile_):
    torch._dynamo.reset()
    torch.manual_seed(0)
    linear, x = nn.Linear(8, 8), X.clone()

    def step(x):
        x.add_(1)
        q = linear(x).view(1, 2, 3, 8)
        mask = (torch.arange(3) >= 0)[None, None, :, None].expand(1, 1, 3, 3)  # says nothing
        y = F.scaled_dot_product_attention(q, q, q, attn_mask=mask).reshape(6, 8)
        return y, y.t(), y.argmax(1)

    run = compile_(step)
    with torch.no_grad():
        return [*run(x), *run(x), x]


def with_mlirc(fn):
    return torch.compile(fn, backend="mlirc")


PROGRAMS = [trained, inferred]
SOME = [pytest.param(trained, marks=pytest.mark.full), inferred]


def functions_of(program):
    program(with_mlirc)  # what is made once for the process is there
    return [f for f in called(lambda: program(with_mlirc)) if f not in OUTERMOST]


def survives(program, function, error, expected):
    statistics.reset()
    with fault(function, error) as fired, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = program(with_mlirc)
    for k, (x, want) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(x, want, msg=lambda text, k=k: f"{name_of(function)}, result {k}: {text}")
    return fired()


@pytest.mark.parametrize("program", SOME)
def test_some_functions(program):
    functions = functions_of(program)
    frontend = [f for f in functions if ".frontend." in f.__module__]
    others = [f for f in functions if ".frontend." not in f.__module__]
    check(program, frontend[::8] + others[::100])


@pytest.mark.full
@pytest.mark.parametrize("program", PROGRAMS)
def test_every_function(program):
    check(program, functions_of(program))


def check(program, functions):
    expected = program(lambda fn: fn)
    wrong = []
    for k, function in enumerate(functions):
        try:
            survives(program, function, ERRORS[k % 3]("injected"), expected)
        except Exception as error:
            wrong.append(f"{name_of(function)}: {type(error).__name__}: {str(error)[:300]}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("program", PROGRAMS)
def test_an_interrupt_comes_through_and_the_next_call_is_right(program):
    expected = program(lambda fn: fn)
    for function in sampling.some(functions_of(program)[50::250], 2):
        with fault(function, KeyboardInterrupt()) as fired, pytest.raises(KeyboardInterrupt):
            program(with_mlirc)
            assert not fired(), f"{name_of(function)}: the interrupt is lost"
            raise KeyboardInterrupt  # on a thread of its own, where no interrupt is delivered, or not called
        torch.testing.assert_close(program(with_mlirc), expected)


def test_a_whole_step_has_the_graph_breaks_of_aot_eager():
    def breaks(backend):
        torch._dynamo.reset()
        torch._dynamo.utils.counters.clear()
        model = nn.Linear(4, 2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        def step(x):
            loss = model(x).pow(2).mean()
            loss.backward()
            optimizer.step()
            return loss

        compiled = torch.compile(step, backend=backend)
        for _ in range(2):
            compiled(torch.ones(3, 4))
        return dict(torch._dynamo.utils.counters["graph_break"])

    assert breaks("mlirc") == breaks("aot_eager")
