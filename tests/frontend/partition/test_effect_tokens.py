"""Training graphs with a call that may raise, a factorization: its token is a result of the graph before those that AOTAutograd counts."""

import pytest
import torch
from torch import nn


def factored(m):
    return torch.linalg.lu_factor(m.mT @ m + torch.eye(m.shape[-1]))[0].sum()


@pytest.mark.parametrize("cached", [False, True])
def test_saved_images_lie_as_the_backward_graph_takes_them(cached, tmp_path, monkeypatch):
    """Channels last, where convolutions gain by that and there is no token; behind one as in eager."""
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Conv2d(4, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 2, 3, padding=1))

        def forward(self, image, m):
            return self.layers(image * image).square().sum() + factored(m)

    torch.manual_seed(0)
    net = Net()
    image, m = torch.randn(2, 4, 8, 8, requires_grad=True), torch.randn(3, 3, requires_grad=True)
    given = [image, m, *net.parameters()]
    for _ in range(1 + cached):
        torch._dynamo.reset()
        compiled = torch.compile(net, backend="mlirc", options={"fallback": "error", "cache": cached})
        found = torch.autograd.grad(compiled(image, m), given)
    expected = torch.autograd.grad(net(image, m), given)
    for x, y in zip(found, expected, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)
        assert x.stride() == y.stride()


def test_the_last_result_is_the_callers():
    """A view that conjugates stays one: it is not saved alone."""

    def program(x, m):
        return factored(m), (x * 2).conj()

    x = torch.randn(4, dtype=torch.complex64, requires_grad=True)
    m = torch.randn(3, 3, requires_grad=True)
    found = torch.compile(program, backend="mlirc", options={"fallback": "error", "cache": False})(x, m)
    for y, z in zip(found, program(x, m), strict=True):
        torch.testing.assert_close(y, z)
        assert y.is_conj() == z.is_conj()
