"""Which results require a gradient: views of views of a result, some of which have none in eager."""

import pytest
import torch

VIEWS = {
    "rows": lambda y: y[1:],
    "flat": lambda y: y.view(-1),
    "last": lambda y: y[..., -1:],
    "detached": lambda y: y.detach(),
    "its own dtype": lambda y: y.view(y.dtype),
    "integers": lambda y: y.view(torch.int32),
    "as it is": lambda y: y.view_as(y),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", [name for name in VIEWS if name != "rows"])  # of which aot_eager takes rows twice
def test_views_of_views(name, dynamic):
    def program(x):
        y = x.sin()
        first = VIEWS[name](y)
        views = [VIEWS[other](first) for other in VIEWS if first.is_floating_point() or other != "its own dtype"]
        return y, first, *views

    def described(function):
        x = torch.linspace(-1, 1, 12).reshape(3, 4).requires_grad_()
        results = function(x)
        loss = sum((y * y).sum() for y in results if y.requires_grad)
        known = [y.untyped_storage()._cdata for y in results]
        told = [
            (y.requires_grad, y.shape, y.stride(), y.dtype, known.index(s)) for y, s in zip(results, known, strict=True)
        ]
        return told, torch.autograd.grad(loss, x)[0]

    torch._dynamo.reset()
    told, gradient = described(torch.compile(program, backend="mlirc", dynamic=dynamic))
    wanted, expected = described(program)
    assert told == wanted
    torch.testing.assert_close(gradient, expected)
