"""Inputs that share memory, of a graph that writes to one of them: each pair after each other one."""

import pytest
import torch
import torch.nn.functional as F

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


@pytest.mark.thinned(1)
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


def first_is_written(a, b):
    a[0] = 7
    b.sub_(1)
    return a + 0


def second_reads(a, b):
    a.add_(1)
    b.mul_(2)
    return a.sum() + b.sum()


MATRICES = [  # rows and columns of each, row stride, distance of their starts
    (4, 3, 3, 3, 6, 6),  # the rows of the second are rows of the first
    (4, 3, 2, 3, 6, 12),
    (4, 3, 3, 2, 6, 7),  # parts of rows
    (4, 3, 3, 3, 6, 8),  # the second's rows begin in the first's, and end behind them
    (4, 3, 3, 3, 6, 3),  # between the rows
    (4, 3, 3, 3, 6, 9),
    (4, 3, 3, 3, 6, 1),
    (4, 3, 4, 2, 3, 3),
    (1, 2, 2, 1, 2, 1),
]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("rows, columns, rows2, columns2, stride, distance", MATRICES)
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_matrices_of_one_row_stride(rows, columns, rows2, columns2, stride, distance):
    """AOTAutograd takes some that overlap for two that do not."""
    for function in (first_is_written, second_reads):
        outcomes = []
        torch._dynamo.reset()
        for called in (function, torch.compile(function, backend="mlirc", dynamic=False)):
            memory = torch.arange(64.0)
            result = called(
                memory.as_strided((rows, columns), (stride, 1)),
                memory.as_strided((rows2, columns2), (stride, 1), distance),
            )
            outcomes.append((result, memory))
        torch.testing.assert_close(*reversed(outcomes))


BASES = {  # what two tensors that overlap are views of: no guard asks
    "a row": lambda: torch.arange(24.0),
    "a longer row": lambda: torch.arange(40.0),
    "a matrix": lambda: torch.arange(24.0).view(4, 6).clone(),
    "another matrix": lambda: torch.arange(24.0).view(6, 4).clone(),
    "a transposed matrix": lambda: torch.arange(24.0).view(4, 6).t().clone(memory_format=torch.preserve_format),
    "a part": lambda: torch.arange(40.0)[8:].detach(),
    "a row, later": lambda: torch.arange(24.0),
    "cut off": lambda: torch.arange(24.0),
}


def two_parts(name):
    base = BASES[name]()
    start = base.storage_offset() + (name == "a row, later")
    a, b = (base.as_strided((4,), (1,), start + k) for k in (0, 2))
    return (a.detach(), b.detach(), base) if name == "cut off" else (a, b, base)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("first", BASES)
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_another_base(first, mode):
    """AOTAutograd's graph takes the base, or the storage, in place of tensors that overlap: one of other sizes is another graph's."""
    for function in (written, both):
        torch._dynamo.reset()
        compiled = torch.compile(function, backend="mlirc")
        with mode():
            for name in (first, *BASES, first):
                found = []
                for run in (compiled, function):
                    a, b, base = two_parts(name)
                    found.append([run(a, b), base])
                torch.testing.assert_close(*found, msg=f"{name} after {first}")


class Kept(torch.nn.Module):
    """Writes to a buffer, and reads another one, a parameter and the input; or writes to the input instead."""

    def __init__(self, writes):
        super().__init__()
        self.register_buffer("state", torch.zeros(8))
        self.register_buffer("other", torch.ones(8))
        self.weight = torch.nn.Parameter(torch.arange(8.0))
        self.writes = writes

    def forward(self, x):
        (x if self.writes == "input" else self.state).add_(1)
        return x.cumsum(0) * self.other.flip(0) @ torch.diag(self.weight)


def share(module, how):
    """The input of a call, after two of the module's tensors and it have come to share memory, or no longer do."""
    x = torch.ones(8)
    if how == "other buffer":
        module.other = module.state.view(8)
    elif how == "part of other buffer":
        module.other = torch.cat([module.state, module.state])
        module.state = module.other[4:12]
        module.other = module.other[:8]
    elif how == "parameter":
        module.weight.data = module.state
    elif how == "apart again":
        module.other, module.state = module.other.clone(), module.state.clone()
        module.weight.data = module.weight.data.clone()
    elif how == "input is a buffer":
        x = module.state.detach()
    elif how == "input is another buffer":
        x = module.other[:8]
    elif how == "input is a parameter":
        x = module.weight.detach()
    return x


HOW = (
    "apart",
    "other buffer",
    "apart again",
    "part of other buffer",
    "apart again",
    "parameter",
    "input is a buffer",
    "apart again",
    "input is a buffer",
    "input is another buffer",
    "input is a parameter",
    "apart",
)


@pytest.mark.parametrize("writes", ["buffer", "input"])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_buffers_and_parameters_come_to_share_memory(writes, dynamic):
    """After they were traced apart: no guard of Dynamo's tells, and AOTAutograd's graph reads what was there before the write."""
    torch._dynamo.reset()
    modules = Kept(writes), Kept(writes)
    compiled = torch.compile(modules[0], backend="mlirc", dynamic=dynamic)
    with torch.no_grad():
        for how in HOW:
            found, expected = [], []
            for module, called, outcomes in ((modules[0], compiled, found), (modules[1], modules[1], expected)):
                x = share(module, how)
                outcomes += [called(x), x, module.state, module.other, module.weight]
            torch.testing.assert_close(found, expected, msg=how)


def test_a_buffer_that_moves_is_compiled_for():
    torch._dynamo.reset()
    module = Kept("buffer")
    compiled = torch.compile(module, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad():
        for how in ("apart", "apart again", "apart", "input is another buffer"):
            compiled(share(module, how))
        with pytest.raises(Exception, match="share memory in another way"):
            compiled(share(module, "other buffer"))
        compiled(share(module, "apart again"))


def test_parameters_in_one_memory_are_compiled_for():
    """As an optimizer's, of which each is a part: none overlaps another one."""
    torch._dynamo.reset()
    memory = torch.arange(12.0)
    layers = torch.nn.ParameterList([torch.nn.Parameter(x) for x in memory.split(4)])
    for x in layers:
        x.grad = torch.ones(4)
    optimizer = torch.optim.SGD(layers.parameters(), lr=1.0)
    step = torch.compile(optimizer.step, backend="mlirc", options={"fallback": "error"})
    for _ in range(2):
        step()
    torch.testing.assert_close(memory, torch.arange(12.0) - 2)


def bare_norm(x, state, read):
    return F.batch_norm(x, state[:3], state[3:], training=True, momentum=0.5), read * 2


def instance_norm(x, state, read):
    return F.instance_norm(x.t()[None], state[:3], state[3:], momentum=0.5), read * 2


def renormed(x, state, read):
    return F.embedding(torch.tensor([0, 1]), state.view(2, 3), max_norm=0.5) + x[0], read * 2


@pytest.mark.parametrize("function", [bare_norm, instance_norm, renormed])
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_writes_that_no_version_counts(function):
    """Running statistics of a norm in memory that another input comes to show."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc")
    x = torch.arange(12.0).view(4, 3).sin()
    for place in (8, 0, 8, 2):
        outcomes = []
        for called in (compiled, function):
            memory = torch.arange(1.0, 15.0)
            outcomes.append((called(x, memory[:6], memory[place : place + 6]), memory))
        torch.testing.assert_close(*outcomes)


def test_norms_that_come_to_share_statistics():
    torch._dynamo.reset()
    models = [torch.nn.Sequential(torch.nn.BatchNorm1d(3), torch.nn.BatchNorm1d(3)) for _ in range(2)]
    compiled = torch.compile(models[0], backend="mlirc")
    for k in range(3):
        for model in models if k else ():
            model[1].running_mean = model[0].running_mean if k == 1 else model[0].running_mean.view(3)
        x = torch.arange(12.0).view(4, 3).sin()
        torch.testing.assert_close(compiled(x), models[1](x))
        torch.testing.assert_close([*models[0].buffers()], [*models[1].buffers()])
