"""as_strided of an input's storage beside writes to inputs, where the input begins later, ends earlier or has gaps: values are eager's."""

import itertools

import pytest
import torch

from mlirc.frontend import statistics

INPUTS = {
    "whole": lambda x: x,
    "begins later": lambda x: x[1:],
    "ends earlier": lambda x: x[:8],
    "has gaps": lambda x: x.view(-1, 5)[:, 0],
    "transposed": lambda x: x.view(5, -1).t(),
    "a part and another": lambda x: (x[:10], x[10:]),
}


def doubled(a, *_):
    a.mul_(2)


def copied(a, *_):
    a[...] = a


def part(a, *_):
    a[2:].add_(1)


def lists(a, *_):
    torch._foreach_mul_([a], 2)


def strided(a, *_):
    a.as_strided((2,), (1,), 4).add_(1)


READS = {
    "method": lambda a: a.as_strided((3,), (1,), 1),
    "no offset": lambda a: a.as_strided((3,), (1,)) * 2,
    "function": lambda a: torch.as_strided(a, (2, 3), (0, 2), 0) + 1,
    "a later part": lambda a: a[1:].as_strided((2,), (3,), 2) + 1,
    "copy": lambda a: torch.as_strided_copy(a, (3,), (1,), 1),
    "scatter": lambda a: torch.as_strided_scatter(a, torch.zeros(2), (2,), (1,), 3),
    "named": lambda a: torch.as_strided(input=a, size=(20,), stride=(1,), storage_offset=0) + 1,
}
CASES = list(itertools.product(INPUTS, [doubled, copied, part, lists, strided], READS))


def function(write, read):
    def run(*args):
        write(*args)
        return read(args[-1])

    return run


def arguments(how):
    made = INPUTS[how](torch.arange(40.0) + 3)
    return made if isinstance(made, tuple) else (made,)


def in_eager(write, read, how):
    memory = arguments(how)
    return function(write, read)(*memory), memory


@pytest.mark.thinned(12)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("how, write, read", CASES, ids=lambda x: getattr(x, "__name__", x))
def test_values(how, write, read, dynamic):
    torch._dynamo.reset()
    compiled = torch.compile(function(write, READS[read]), backend="mlirc", dynamic=dynamic)
    for now in (how, "whole", how):  # a graph is traced for each, or one that was traced for the other is called
        given = arguments(now)
        expected, memory = in_eager(write, READS[read], now)
        torch.testing.assert_close(compiled(*given), expected)
        torch.testing.assert_close(given, memory)


def test_a_whole_input_is_compiled():
    torch._dynamo.reset()
    statistics.reset()
    run = torch.compile(function(doubled, READS["method"]), backend="mlirc", options={"fallback": "error"})
    torch.testing.assert_close(run(*arguments("whole")), in_eager(doubled, READS["method"], "whole")[0])
    assert not statistics.fallbacks


def test_without_a_write_any_input_is_compiled():
    torch._dynamo.reset()
    run = torch.compile(READS["named"], backend="mlirc", options={"fallback": "error"})
    for how in ("begins later", "ends earlier", "has gaps"):
        torch.testing.assert_close(run(*arguments(how)), READS["named"](*arguments(how)))
