"""Views of an input that is written to: where the input begins in its storage, under symbolic sizes."""

import pytest
import torch

from mlirc.frontend import statistics

pytestmark = pytest.mark.thinned


def copied(a):
    a.copy_(a * 0)
    return a.reshape(a.size())


def doubled(a):
    a.mul_(2)
    return a.view(a.size(0)), a + 1


def part(a):
    a[1:].mul_(2)
    return a.reshape(a.size()), a[2:]


def split(a):
    parts = torch.tensor_split(a, 3, 0)
    parts[2].mul_(0)
    return parts[0], parts[2], parts[1] + 1


def lists(a):
    torch._foreach_mul_([a], 2)
    return a.view(a.size(0)), a + 1


WRITES = [copied, doubled, part, split, lists]


@pytest.mark.parametrize("mode", [torch.inference_mode, torch.no_grad, torch.enable_grad])
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", WRITES)
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_results_are_views_of_the_input(function, dynamic, mode):
    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic)
    with mode():
        for start in (0, 3, 1, 0):
            memory, same = torch.arange(16.0), torch.arange(16.0)
            found, expected = compiled(memory[start : start + 9]), function(same[start : start + 9])
            pairs = [(found, expected)] if isinstance(found, torch.Tensor) else zip(found, expected, strict=True)
            for x, y in pairs:
                assert (x.storage_offset(), x.stride()) == (y.storage_offset(), y.stride())
                torch.testing.assert_close(x, y)
            torch.testing.assert_close(memory, same)


@pytest.mark.parametrize("function", [lambda a: (a.reshape(a.size()), a.sin()), lambda a: (a.mul_(2), a.sum())])
def test_an_input_that_is_only_viewed_or_only_written_may_begin_anywhere(function):
    torch._dynamo.reset()
    statistics.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for start in (0, 2):
        x, y = torch.arange(16.0), torch.arange(16.0)
        for found, expected in zip(compiled(x[start:9]), function(y[start:9]), strict=True):
            assert found.storage_offset() == expected.storage_offset()
            torch.testing.assert_close(found, expected)
    assert not statistics.fallbacks
