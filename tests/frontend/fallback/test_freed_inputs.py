"""No graph keeps what a call was given: its inputs are freed with the caller's last reference, as under aot_eager."""

import gc
import weakref

import pytest
import torch


def plain(x, y):
    return x.sin() + y


def writes(x, y):
    y.add_(1)
    return x.sin() + y


def shows(x, y):
    y.mul_(2)
    return y[1:], x.exp()


def breaks(x, y):
    y = y + x.cos()
    torch._dynamo.graph_break()
    y.add_(1)
    return x.exp() * y


def draws(x, y):
    return torch.nn.functional.dropout(x, 0.5) * y


def multiplies(x, y):
    return torch.fft.rfft(x * y).abs()


@pytest.fixture(autouse=True, scope="module")
def others_are_left_out():
    """Of collections: what earlier tests left behind, which takes them a second each. As conftest.py does with the tests themselves."""
    gc.collect()
    gc.freeze()


def freed(function, backend, dynamic, grad):
    """Which inputs of the first and of a second call are gone after it."""
    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, dynamic=dynamic)
    found = []
    for n in (6, 6, 8):
        given = torch.randn(n, requires_grad=grad), torch.randn(n)
        weak = [weakref.ref(x) for x in given]
        results = compiled(*given)
        if grad:
            for y in results if isinstance(results, tuple) else (results,):
                if y.requires_grad:
                    y.sum().backward()
                    break
        del given, results
        y = None
        gc.collect()
        found.append([x() is None for x in weak])
    return found


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("function", [plain, writes, shows, breaks, draws, multiplies])
@pytest.mark.thinned(2)
def test_inputs_are_freed(function, dynamic, grad):
    found, expected = (freed(function, backend, dynamic, grad) for backend in ("mlirc", "aot_eager"))
    pairs = [pair for calls in zip(found, expected, strict=True) for pair in zip(*calls, strict=True)]
    assert all(is_gone or not wanted for is_gone, wanted in pairs)
