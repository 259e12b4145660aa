"""`p.data = y` in a compiled function: the parameter keeps the memory of a computed tensor after the call."""

import pytest
import torch


def initialised(p, x):
    p.data = torch.log(x.std(0, keepdim=True) + 1e-6).expand(4, 4).contiguous().data
    return (x * torch.exp(-p)).sum()


def several(p, x):
    p.data = (x + 1).sin()
    p.data = x.cos()
    return p * 2


def turned(p, x):
    p.data = (x * 2).t()
    return p.sum()


def part(p, x):
    p.data = torch.cat([x, x * 2])[2:6]
    return p.sum()


def by_the_library(p, x):
    p.data = x @ x
    return p.sum()


def result_too(p, x):
    y = x * 2
    p.data = y.detach()
    return y + 1, y


def input_itself(p, x):
    p.data = x
    return p * 2


BODIES = [initialised, several, turned, part, by_the_library, result_too, input_itself]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: body.__name__)
def test_the_memory_outlives_the_call(body):
    x = torch.arange(16.0).reshape(4, 4).sin()
    expected, given = (torch.nn.Parameter(torch.zeros(4, 4)) for _ in range(2))
    wanted = body(expected, x)
    compiled = torch.compile(body, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    torch.testing.assert_close(compiled(given, x), wanted)
    other = torch.compile(lambda x: (x.exp() + 1).sum(0).cumsum(0) @ x, backend="mlirc")
    kept = [other(x), *(torch.full((n,), 7.0) for n in (1, 4, 16, 16, 16, 32))]  # memory that was free
    torch.testing.assert_close(given.detach(), expected.detach())
    assert given.stride() == expected.stride() and len(kept) == 7


def test_a_result_and_the_parameter_share_it():
    x = torch.ones(4, 4)
    p = torch.nn.Parameter(torch.zeros(4, 4))
    with torch.no_grad():
        _, y = torch.compile(result_too, backend="mlirc", fullgraph=True)(p, x)
        y.fill_(5.0)
    assert p.eq(5).all()
