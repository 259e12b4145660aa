"""What is written to between a forward and its backward pass: the gradient is that of what was saved, or an error is raised."""

import pytest
import torch

from mlirc.frontend.partition import recomputation
from mlirc.frontend.torch_compat.dynamo.lazy_graph import lazy_class

VIEWS = [
    lambda x: x.t(),
    lambda x: x[:, 1:4],
    lambda x: x[1],
    lambda x: x.expand(3, *x.shape),
    lambda x: x.chunk(2)[1],
    lambda x: x.as_strided((2, 3), (1, 4), 2),
    lambda x: x.detach().t(),
    lambda x: x.t()[1:].unsqueeze(0),
]


def product(v, w):
    return (v.reshape(-1, v.shape[-1]) @ w[: v.shape[-1]]).sum()


def of_arguments(xs, w):
    """Views of arguments are saved."""
    return sum(product(view(x), w) for view, x in zip(VIEWS, xs, strict=True)), xs


def of_returned_views(xs, w):
    """Views of arguments are saved, and are results: a write to one is a write to the argument."""
    views = [view(x) for view, x in zip(VIEWS, xs, strict=True)]
    return sum(((v * 2).sin() * w.sum()).sum() for v in views), views


def of_results(returned):
    """Views of results are saved; they are detached, or AOTAutograd itself would lose what is written to them."""

    def f(xs, w):
        ys = [(x * w.sum()).sin() for x in xs]
        loss = sum(product(view(y), w) + y.exp().sum() for view, y in zip(VIEWS, ys, strict=True))
        return loss, [returned(view, y.detach()) for view, y in zip(VIEWS, ys, strict=True)]

    return f


def arguments():
    torch.manual_seed(0)
    return [torch.rand(4, 6) for _ in VIEWS], torch.rand(12, 12, requires_grad=True)


def check(f, compiled, training=False):
    """Writes to one of the second results after the other, each before a backward pass of its own; in training the arguments have
    gradients too."""

    def gradients(loss, xs, w):
        found = torch.autograd.grad(loss, [w, *(xs if training else ())], allow_unused=True)
        return [torch.zeros(()) if g is None else g for g in found]  # the detached one has none

    def given():
        xs, w = arguments()
        return [x.requires_grad_(training) for x in xs], w

    inputs = given()
    right = gradients(f(*inputs)[0], *inputs)
    for k in range(len(VIEWS)):
        inputs = given()
        loss, written = compiled(*inputs)
        with torch.no_grad():
            written[k].detach().fill_(-3)
        try:
            got = gradients(loss, *inputs)
        except RuntimeError as error:
            assert "modified by an inplace operation" in str(error), f"view {k}"
        else:
            torch.testing.assert_close(got, right, rtol=1e-4, atol=1e-5, msg=f"view {k}")


def compiled(f, **made):
    torch._dynamo.reset()
    return torch.compile(f, backend="mlirc", options={"fallback": "error"}, **made)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)])
def test_arguments_are_written(dynamic):
    check(of_arguments, compiled(of_arguments, dynamic=dynamic))


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)])
@pytest.mark.parametrize("training", [False, True])
def test_returned_views_of_arguments_are_written(training, dynamic):
    check(of_returned_views, compiled(of_returned_views, dynamic=dynamic), training)


@pytest.mark.parametrize("returned", [lambda view, y: y, lambda view, y: view(y)], ids=["base", "view"])
def test_results_are_written(returned):
    check(of_results(returned), compiled(of_results(returned)))


def test_a_weight_is_updated_too_early():
    def f(x, w):
        return (x @ w).sin().sum()

    x, w = torch.randn(3, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)
    loss = compiled(f)(x, w)
    loss.backward(retain_graph=True)
    torch.optim.SGD([w], 0.1).step()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_weight_behind_sizes_that_are_symbols():
    """The sizes that a view is made with are saved beside what it shows."""

    def f(x, w, n):
        return (x @ w[:n].t().reshape(x.shape[1], -1)).sin().sum()

    run = compiled(f, dynamic=True)
    for rows, n in ((3, 2), (5, 3), (4, 4)):
        x, w = torch.randn(rows, 6, requires_grad=True), torch.randn(5, 6, requires_grad=True)
        got = torch.autograd.grad(run(x, w, n), (x, w))
        torch.testing.assert_close(got, torch.autograd.grad(f(x, w, n), (x, w)))
    loss = run(x, w, n)
    with torch.no_grad():
        w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_a_backward_graph_is_rewritten_and_copied_without_its_text(monkeypatch):
    """What PyTorch writes for its logs and in its partitioner is left aside."""
    assert lazy_class() is not None  # which tries one
    written, text, parted = [], torch.fx.Graph.python_code, recomputation.partition

    def heard(graph, *args, **kwargs):
        written.append(str(graph))
        return text(graph, *args, **kwargs)

    def partition(*args, **options):
        graphs = parted(*args, **options)
        monkeypatch.setattr(torch.fx.Graph, "python_code", heard)
        return graphs

    monkeypatch.setattr(recomputation, "partition", partition)
    monkeypatch.setattr(torch.fx.GraphModule, "print_readable", lambda *_, **__: "")
    torch._dynamo.reset()
    xs, w = arguments()
    compiled = torch.compile(of_arguments, backend="mlirc", options={"fallback": "error", "cache": False})
    found = torch.autograd.grad(compiled(xs, w)[0], w)
    assert torch.fx.Graph.python_code is heard and not written
    torch.testing.assert_close(found, torch.autograd.grad(of_arguments(xs, w)[0], w))
