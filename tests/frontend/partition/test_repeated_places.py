"""The gradient of nearest upsampling by whole factors is a sum."""

import pytest
import torch
from torch.nn import functional as F

import mlirc

aten = torch.ops.aten

UPSAMPLING = {
    "images": (lambda x: F.interpolate(x, scale_factor=2), (2, 3, 5, 6)),
    "other factors": (lambda x: F.interpolate(x, size=(15, 24)), (2, 3, 5, 6)),
    "rows": (lambda x: F.interpolate(x, scale_factor=3), (2, 3, 7)),
    "volumes": (lambda x: F.interpolate(x, scale_factor=(1, 2, 3)), (2, 3, 2, 3, 4)),
    "exact": (lambda x: F.interpolate(x, scale_factor=2, mode="nearest-exact"), (2, 3, 5, 6)),
    "one pixel": (lambda x: F.interpolate(x, scale_factor=4), (2, 3, 1, 1)),
    "twice": (lambda x: F.interpolate(F.interpolate(x, scale_factor=2).sin(), scale_factor=3), (1, 2, 3, 3)),
}
OTHERS = {
    "no whole factor": (lambda x: F.interpolate(x, size=(8, 9)), (2, 3, 5, 6)),
    "as many, unequally": (
        lambda x: aten._unsafe_index(x, [None, None, (torch.arange(6) ** 2 // 9)[:, None], torch.arange(4) // 2]),
        (2, 3, 3, 2),
    ),
    "as many, backwards": (lambda x: aten._unsafe_index(x, [None, 1 - torch.arange(4) // 2]), (2, 2, 3)),
    "written places": (
        lambda x: x[:, :, torch.tensor([[0], [0], [1], [2], [2]]), torch.tensor([0, 0, 1, 1])],
        (2, 3, 3, 2),
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("last", [False, True], ids=["contiguous", "channels last"])
@pytest.mark.parametrize("name", UPSAMPLING | OTHERS)
def test_gradients(name, last, dtype):
    function, shape = (UPSAMPLING | OTHERS)[name]
    if last and len(shape) != 4:
        pytest.skip("channels last is of images")
    x = torch.randn(shape).to(dtype)
    x = x.to(memory_format=torch.channels_last) if last else x
    found = []
    for run in (function, torch.compile(function, backend="mlirc", options={"fallback": "error"})):
        torch.manual_seed(0)
        leaf = x.detach().requires_grad_()
        y = run(leaf)
        y.backward(torch.randn_like(y))
        found.append((y.detach(), leaf.grad))
    for eager, ours in zip(*found, strict=True):
        assert eager.stride() == ours.stride() or 1 in ours.shape[1:]  # of one pixel AOTAutograd has other strides
        torch.testing.assert_close(ours, eager)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("name", UPSAMPLING)
def test_nothing_is_scattered(name):
    function, shape = UPSAMPLING[name]
    graphs = mlirc.explain(function)(torch.randn(shape, requires_grad=True)).data["graphs"]
    assert len(graphs) == 2 and not any("index_put" in call for graph in graphs for call in graph["aten"])


def test_a_batch_that_is_a_symbol():
    function, shape = UPSAMPLING["images"]
    run = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    for batch in (2, 5, 3):
        x = torch.randn(batch, *shape[1:], requires_grad=True)
        torch._dynamo.maybe_mark_dynamic(x, 0)
        run(x).sum().backward()
        torch.testing.assert_close(x.grad, torch.full_like(x, 4))
