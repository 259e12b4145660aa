"""Inputs that a graph overwrites, read before and after through any view, are as eager leaves them; caches are not copied."""

import random
from collections.abc import Callable

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as sdpa

from mlirc.frontend import statistics

pytestmark = pytest.mark.thinned

OPTIONS = {"fallback": "error", "cache": False}


def inputs() -> list[torch.Tensor]:
    """Two matrices, a cache [2, 6, 4], rows for it, and where they go."""
    torch.manual_seed(0)
    return [torch.randn(4, 4), torch.randn(4, 4), torch.randn(2, 6, 4), torch.randn(2, 2, 4), torch.tensor([4, 1])]


Step = Callable[
    [list[torch.Tensor], list[torch.Tensor]], object
]  # takes the inputs (and views of them) and the results
WRITES: list[Step] = [
    lambda x, out: x[2].index_copy_(1, x[4], x[3]),
    lambda x, out: x[2].index_copy_(1, x[4], x[3] * 2),
    lambda x, out: x[2].index_copy_(1, x[4], x[2][:, 2:4] + 1),
    lambda x, out: x[2].index_add_(1, x[4], x[3]),
    lambda x, out: x[2].index_fill_(1, x[4][:1], 0.5),
    lambda x, out: x[2].index_put_((torch.tensor([0, 1]), x[4]), x[3][0], accumulate=True),
    lambda x, out: x[2][:, 1:3].copy_(x[3]),
    lambda x, out: x[2][1].mul_(1.5),
    lambda x, out: x[0].mul_(2),
    lambda x, out: x[0].add_(x[1].t()),
    lambda x, out: x[0].copy_(x[0].t() + 1),
    lambda x, out: x[0][1:3].copy_(x[1][:2].exp()),
    lambda x, out: x[1].copy_(x[0] @ x[1]),
    lambda x, out: x[1].copy_(x[0].softmax(-1)),
    lambda x, out: x[0].index_copy_(0, x[4].remainder(4), x[1][:2]),
    lambda x, out: x[-1].add_(1) if x[-1].is_floating_point() else None,
]
READS: list[Step] = [
    lambda x, out: out.append(x[2].sum(1)),
    lambda x, out: out.append(sdpa(x[0][None, None], x[2][:1][None], x[2][1:][None])),
    lambda x, out: out.append(x[2].clone()),
    lambda x, out: out.append(x[0] @ x[1]),
    lambda x, out: out.append(x[0].t().cumsum(0) + x[1]),
    lambda x, out: out.append(x[-1] * 2),
    lambda x, out: out.append(x[0].clone()),
    lambda x, out: x.append(x[2][:, 3]),
    lambda x, out: x.append(x[0].t()[1:]),
]


def program(seed: int) -> Callable[..., list[torch.Tensor]]:
    generator = random.Random(seed)
    steps = [generator.choice(generator.choice((WRITES, READS))) for _ in range(generator.randint(3, 9))]

    def run(*given: torch.Tensor) -> list[torch.Tensor]:
        x, out = list(given), [given[0] + given[1]]
        for step in steps:
            step(x, out)
        return out

    return run


def same_as_eager(fn: Callable, calls: int = 2) -> list[str]:
    """Calls both on inputs that go on from call to call; gives the rules by which inputs were overwritten."""
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(fn, backend="mlirc", options=OPTIONS)
    ours, eager = inputs(), inputs()
    with torch.no_grad():
        for _ in range(calls):
            torch.testing.assert_close(compiled(*ours), fn(*eager))
            torch.testing.assert_close(ours, eager)
    entries = [entry for graph in statistics.graphs for entry in graph.ledger]
    return [entry.rule for entry in entries if entry.rule.startswith("TO INPUT")]


@pytest.mark.parametrize("block", [0, *(pytest.param(k, marks=pytest.mark.full) for k in (1, 2, 3))])
def test_random_programs(block):
    rules = [rule for seed in range(12 * block, 12 * block + 12) for rule in same_as_eager(program(seed))]
    assert rules.count("TO INPUT") > 5 and len(set(rules)) > 2  # some in place, some refused


def test_a_cache_is_updated_in_place():
    """Twice, one after the other, and all of it read; beside it a slice that is written, and read afterwards."""

    def decode(q, other, cache, rows, at):
        cache.index_copy_(1, at[:1], rows[:, :1])
        cache.index_copy_(1, at[1:], rows[:, 1:])
        other[1:2] = q[:1]
        return sdpa(q[None], cache[:1], cache[1:]), other @ q

    assert same_as_eager(decode) == ["TO INPUT", "TO INPUT"]
    (graph,) = statistics.graphs
    assert [*graph.aten] == ["aten.index_copy_.default"] and not graph.through_python


def refused(fn: Callable) -> list[str]:
    return [rule.removeprefix("TO INPUT: ") for rule in same_as_eager(fn) if rule != "TO INPUT"]


def test_what_is_read_as_it_was_before():
    def later(a, b, cache, rows, at):
        old = cache.sum(1)
        new = cache.index_copy(1, at, rows)
        result = cache * new  # the old one, after the new one is there
        cache.copy_(new)
        return result, old

    def itself(a, b, cache, rows, at):
        cache.copy_(cache.index_copy(1, at, cache[:, :2]))

    def result(a, b, cache, rows, at):
        new = cache.index_copy(1, at, rows)
        cache.copy_(new)
        return new

    assert "what was there before is used later" in refused(later)
    assert "the call reads more of the input than what it changes" in refused(itself)
    assert "the value is a result too" in refused(result)


def test_one_value_for_two_inputs():
    def fn(a, b, cache, rows, at):
        new = (a + b).relu()
        a.copy_(new)
        b.copy_(new)
        return a @ b

    assert same_as_eager(fn).count("TO INPUT") == 1
    assert "the value is in another input" in refused(fn)


TWICE: list[Callable] = [
    lambda a, at: a.masked_scatter(a > 0, a),
    lambda a, at: a.index_copy(0, at, a),
    lambda a, at: a.index_add(0, at, a),
    lambda a, at: a.scatter(0, at[:, None].expand(6, 6), a),
    lambda a, at: a.scatter_add(0, at[:, None].expand(6, 6), a),
    lambda a, at: a.index_put((at,), a),
    lambda a, at: a.index_put((at,), a, accumulate=True),
]


@pytest.mark.thinned(4)
@pytest.mark.parametrize("made", range(len(TWICE)))
@pytest.mark.parametrize("own", [False, True])
def test_a_call_that_reads_what_it_would_change(made, own):
    """The tensor is given twice to one call: one operand, which stands in two of its arguments."""

    def fn(a, at):
        if own:
            return TWICE[made](a + 1, at), a
        new = TWICE[made](a, at)
        a.copy_(new)
        return new - new, a

    torch.manual_seed(0)
    given = [torch.randn(6, 6), torch.tensor([3, 0, 5, 1, 4, 2])]
    ours, eager = ([x.clone() for x in given] for _ in range(2))
    torch._dynamo.reset()
    torch.testing.assert_close(torch.compile(fn, backend="mlirc", options=OPTIONS)(*ours), fn(*eager))
    torch.testing.assert_close(ours, eager)
