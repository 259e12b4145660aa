"""Inputs that share memory, of a graph that writes to one of them: each pair after each other one."""

import pytest
import torch

from mlirc.frontend import statistics
from mlirc.frontend.fallback.shared_memory import ANOTHER_WAY
from tests.sampling import some

pytestmark = pytest.mark.thinned


def written(a, b):
    a.add_(1)
    return a * b, b + 1


def both(a, b):
    a.mul_(2)
    b.sub_(1)
    return a.sum() + b.sum()


def lists(a, b):
    torch._foreach_mul_([a], 2)
    return b * 2


def result(a, b):
    b.copy_(a + 1)
    return b[1:]


MEMORY = {
    "apart": lambda m: (m[:8], m[16:24]),
    "alike": lambda m: (m[:8], m[:8]),
    "later": lambda m: (m[:8], m[4:12]),
    "a little later": lambda m: (m[:8], m[2:10]),
    "before": lambda m: (m[4:12], m[:8]),
    "beside": lambda m: (m[:8], m[8:16]),
    "between": lambda m: (m[:16:2], m[1:17:2]),
    "of their own": lambda m: (m[:8], m[8:16].clone()),
}


def outcome(function, name):
    memory = torch.arange(24.0)
    a, b = MEMORY[name](memory)
    found = function(a, b)
    return [x.clone() for x in (found if isinstance(found, tuple) else (found,))], memory, b


@pytest.mark.parametrize(
    "first, dynamic",
    [
        *((first, None) for first in some(tuple(MEMORY), 2)),
        *((first, True) for first in ("apart", "later")),
        *(pytest.param(first, True, marks=pytest.mark.full) for first in MEMORY if first not in ("apart", "later")),
    ],
)
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_each_after_each(first, dynamic):
    for function in (written, both, lists, result):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="mlirc", dynamic=dynamic)
        with torch.no_grad():
            for name in (first, *MEMORY, first):
                try:
                    found = outcome(compiled, name)
                except AssertionError as error:
                    assert function is result and "application of ViewMeta" in str(error)  # AOTAutograd's own
                    continue
                torch.testing.assert_close(found, outcome(function, name), msg=f"{name} after {first}")


def test_another_way_is_counted_once():
    statistics.reset()
    compiled = torch.compile(written, backend="mlirc")
    for name in ("of their own", "alike", "later", "of their own"):
        outcome(compiled, name)
    assert [g.fallback for g in statistics.graphs if g.fallback] == [ANOTHER_WAY]


def test_memory_of_their_own_is_compiled_for():
    compiled = torch.compile(written, backend="mlirc", options={"fallback": "error"})
    for _ in range(3):
        outcome(compiled, "of their own")
    with pytest.raises(Exception, match="share memory in another way"):
        outcome(compiled, "alike")


def test_many_views_of_one_memory():
    """As of an optimizer whose parameters lie in one buffer: none overlaps, none is taken for another."""
    function = lambda parts, by: [x.mul_(2).add_(y) for x, y in zip(parts, by, strict=True)]
    compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    by = [torch.ones(4) for _ in range(20)]
    for _ in range(2):
        memory, same = torch.arange(80.0), torch.arange(80.0)
        compiled(list(memory.split(4)), by)
        function(list(same.split(4)), by)
        torch.testing.assert_close(memory, same)


def test_an_error_of_the_user_is_raised_and_not_printed(capfd):
    def f(x, y):
        x.add_(y)
        return x * 2

    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc")
    memory = torch.arange(10.0)
    compiled(memory[:5], memory[5:])
    capfd.readouterr()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="single memory location"):
            compiled(memory[:5], memory[1:6])
    assert capfd.readouterr() == ("", "")
