"""Views of computed tensors in random sizes: eager's values and strides, or eager's error where their memory has no such view."""

import random

import pytest
import torch


def reshaped(seed):
    """A function that slices, permutes and views a tensor, and its argument."""
    draw = random.Random(seed)
    sizes = [draw.choice([1, 2, 3, 4, 6]) for _ in range(draw.randint(1, 4))]
    left, target = torch.Size(sizes).numel(), []
    while left > 1 and len(target) < 4:
        target.append(draw.choice([k for k in range(1, left + 1) if left % k == 0]))
        left //= target[-1]
    target.append(left)
    if draw.random() < 0.5:
        target[draw.randrange(len(target))] = -1
    steps = [draw.choice([1, 1, 2, 3]) for _ in sizes]
    order = draw.sample(range(len(sizes)), len(sizes)) if draw.random() < 0.5 else sorted(range(len(sizes)))
    name = draw.choice(["view", "view", "reshape"])

    def f(x):
        y = (x + 1)[tuple(slice(0, n * step, step) for n, step in zip(sizes, steps, strict=True))].permute(*order)
        return getattr(y, name)(target), y

    return f, torch.randn(*[n * step for n, step in zip(sizes, steps, strict=True)])


def outcome(f, x):
    try:
        return [(y, y.stride()) for y in f(x)]
    except RuntimeError:  # Dynamo refuses some itself
        return "refused"


@pytest.mark.thinned(12)
@pytest.mark.parametrize("seed", range(60))
def test_views_and_errors_are_eagers(seed):
    f, x = reshaped(seed)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad():
        got, expected = outcome(compiled, x), outcome(f, x)
    if isinstance(expected, str):
        assert got == expected
    else:
        torch.testing.assert_close(got, expected, rtol=0, atol=0)
