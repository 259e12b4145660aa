"""Gradients of reflection and replication pads, at every level of the dialect, against eager."""

import random

import pytest
import torch
import torch.nn.functional as F

from tests.compare_stages import check

aten = torch.ops.aten
WAYS = {
    "reflection": [getattr(aten, f"reflection_pad{n}d") for n in (1, 2, 3)],
    "replication": [getattr(aten, f"replication_pad{n}d") for n in (1, 2, 3)],
}
BACKWARD = {
    "reflection": [getattr(aten, f"reflection_pad{n}d_backward").default for n in (1, 2, 3)],
    "replication": [getattr(aten, f"replication_pad{n}d_backward").default for n in (1, 2, 3)],
}


@pytest.mark.thinned(16)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(16))
def test_gradients_of_pads(seed, way, dynamic):
    """Pads that cover all of the image, that cut off some of it, and images of one element; the gradient has a NaN, an infinity or a -0.0."""
    draw = random.Random(seed)
    rank = draw.randint(1, 3)
    dtype = draw.choice([torch.float32, torch.float64, torch.bfloat16, torch.float16])
    sizes = [draw.randint(4, 7) for _ in range(rank)]
    if seed % 4 == 0:
        sizes[-1] = 1
    padding = []
    for n in reversed(sizes):
        most = n - 1 if way == "reflection" else 4
        padding += [draw.randint(-1 if n > 3 and not dynamic else 0, most) for _ in range(2)]
    x = torch.randn(*draw.choice([(2, 3), (3,), (0, 2)]), *sizes).to(dtype)
    grad = torch.randint(-8, 9, WAYS[way][rank - 1](x, padding).shape).to(dtype)
    if grad.numel():
        grad.view(-1)[draw.randrange(grad.numel())] = draw.choice([float("nan"), float("inf"), -0.0])
    check(lambda grad, x: BACKWARD[way][rank - 1](grad, x, padding), grad, x, dynamic=dynamic)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("size", [1, 2, 3])
def test_pads_that_cut_off_much(size, way):
    """All pads of a short row: they may cut off all of it, and show its edge alone."""
    x, forward, backward = torch.randn(2, size), WAYS[way][0], BACKWARD[way][0]
    for low in range(-3, 4):
        for high in range(-3, 4):
            try:
                grad = torch.randn_like(forward(x, [low, high]))
            except RuntimeError:
                continue  # eager refuses it, too
            check(lambda grad, x, pad=[low, high]: backward(grad, x, pad), grad, x, aten=True)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
def test_compiled_steps(mode, layout):
    x = torch.randn(2, 3, 5, 6).to(memory_format=layout).requires_grad_()
    function = lambda x: F.pad(x * 2, (2, 1, -1, 3), mode=mode).sin()
    torch.compiler.reset()
    compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    found, expected = (torch.autograd.grad(f(x).sum(), x)[0] for f in (compiled, function))
    torch.testing.assert_close(found, expected)
    assert found.stride() == expected.stride()


@pytest.mark.parametrize("way", WAYS)
def test_zeros_have_eagers_signs(way):
    grad, x = torch.full((2, 6), -0.0), torch.ones(2, 4)
    backward = BACKWARD[way][0]
    run = torch.compile(lambda grad, x: backward(grad, x, [1, 1]), backend="mlirc", options={"fallback": "error"})
    assert torch.equal(run(grad, x).signbit(), backward(grad, x, [1, 1]).signbit())
