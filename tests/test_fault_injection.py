"""An exception at any function of ours, while a graph is compiled or first run: the program gives what eager gives.

A function raises at its first call, whatever calls it; Dynamo, AOTAutograd and the user's program know nothing of it.
"""

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from mlirc.frontend import backend, statistics
from tests.faults import called, fault, name_of

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


def functions_of(program):
    program(with_mlirc)  # what is made once for the process is there
    return [f for f in called(lambda: program(with_mlirc)) if f is not backend.mlirc]  # within it all is caught


def survives(program, function, error, expected):
    statistics.reset()
    with fault(function, error) as fired, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = program(with_mlirc)
    for k, (x, want) in enumerate(zip(found, expected, strict=True)):
        torch.testing.assert_close(x, want, msg=lambda text, k=k: f"{name_of(function)}, result {k}: {text}")
    return fired()


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("part", ["frontend", "codegen", "lowering", "dialects"])
def test_some_functions(program, part):
    some = [f for f in functions_of(program) if f".{part}." in f".{f.__module__}."]
    check(program, some if part == "frontend" else some[:: max(len(some) // 6, 1)])


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
