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


@pytest.mark.thinned(3)
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


OF_INPUTS = {
    "rows": lambda x, n: x[n:],
    "row": lambda x, n: x.select(0, n),
    "columns": lambda x, n: x.mT,
    "permuted": lambda x, n: x.permute(2, 0, 1),
    "flat": lambda x, n: x.flatten(),
    "split": lambda x, n: x.tensor_split(2)[1],
    "chunks": lambda x, n: x.chunk(3, 1)[1],
    "unbound": lambda x, n: x.unbind(1)[-1].unsqueeze(n),
    "unfolded": lambda x, n: x.unfold(2, 2, 1),
    "expanded": lambda x, n: x[:, None].expand(-1, n + 1, -1, -1),
    "diagonal": lambda x, n: x.diagonal(0, 1, 2),
    "every other": lambda x, n: x[::2, :, 1::n].squeeze(1),
    "from its start": lambda x, n: x.as_strided((2, 2), (1, 2)),
    "as it is": lambda x, n: x.view_as(x),
}


@pytest.mark.parametrize(
    "name", [name if name in ("rows", "split") else pytest.param(name, marks=pytest.mark.full) for name in OF_INPUTS]
)
def test_gradients_of_views_of_inputs(name):
    """Under symbolic sizes: views that autograd knows, as PyTorch's own, whose gradients have eager's strides."""

    def program(x, n):
        return OF_INPUTS[name](x, n), x.sin()

    torch._dynamo.reset()
    plain = torch.compile(program, backend="aot_eager", dynamic=True)
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for rows, n in ((4, 1), (6, 1), (6, 2)):
        for layout in (torch.contiguous_format, torch.channels_last):
            seen = []
            for function in (plain, compiled):
                leaf = torch.linspace(-1, 1, rows * 30).reshape(1, rows, 6, 5).requires_grad_()
                x = leaf.to(memory_format=layout)[0]
                gradients: list[torch.Tensor] = []
                x.register_hook(gradients.append)
                view, _ = function(x, n)
                (whole,) = torch.autograd.grad((view * 2).sum(), leaf)
                seen.append((view.stride(), type(view.grad_fn).__name__, gradients[0].stride(), whole.stride(), whole))
            assert seen[0][:-1] == seen[1][:-1]
            torch.testing.assert_close(seen[0][-1], seen[1][-1])
