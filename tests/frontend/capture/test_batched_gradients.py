"""Gradients that stand for several (`is_grads_batched`, jacobians with `vectorize`): eager's answer, at any call of a backward graph."""

import pytest
import torch

from mlirc.codegen.cache import folder as cache_folder
from mlirc.frontend import statistics
from mlirc.frontend.errors import UnsupportedGraph

BODIES = {
    "one": lambda x, w: (x @ w).sin(),
    "two": lambda x, w: ((x * w).exp(), (x @ w).cos()),
    "images": lambda x, w: torch.nn.functional.conv2d(
        x.expand(2, 3, 4, 4), w[:3, :3].reshape(3, 3, 1, 1).expand(3, 3, 2, 2)
    ),
}


def arguments():
    torch.manual_seed(0)
    return torch.randn(4, 4, requires_grad=True), torch.randn(4, 4, requires_grad=True)


def batched(f):
    x, w = arguments()
    results = f(x, w)
    results = results if isinstance(results, tuple) else (results,)
    return torch.autograd.grad(results, (x, w), [torch.randn(3, *y.shape) for y in results], is_grads_batched=True)


def plain(f):
    x, w = arguments()
    results = f(x, w)
    torch.autograd.backward([y.sum() for y in (results if isinstance(results, tuple) else (results,))])
    return x.grad, w.grad


@pytest.mark.parametrize(
    ("body", "warm"), [("one", False), ("two", True), pytest.param("images", False, marks=pytest.mark.full)]
)
def test_at_any_call(body, warm, tmp_path, monkeypatch):
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
    f = BODIES[body]
    compiled = torch.compile(f, backend="mlirc")
    if warm:  # the trace of a process before this one
        plain(compiled)
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="mlirc")
    statistics.reset()
    for run in (plain, batched, plain, batched, plain):
        torch.testing.assert_close(run(compiled), run(f))
    (why,) = statistics.fallbacks
    assert why.startswith("a gradient stands for several") and statistics.fallbacks[why] == 1


EMPTY = {
    "a dimension before": lambda x: x[None] / 2,
    "transposed": lambda x: (x[:, None] * 3).t(),
    "products": lambda x: x[:, None] * x[None],
    "a dimension behind": lambda x: x.unsqueeze(1).expand(-1, 3).exp(),
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("body", EMPTY)
@pytest.mark.parametrize("warm", [False, True])
def test_of_results_without_elements(body, warm, tmp_path, monkeypatch):
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
    f = EMPTY[body]
    for _ in range(1 + warm):
        torch._dynamo.reset()
        compiled = torch.compile(f, backend="mlirc")
        x = torch.randn(4, requires_grad=True)
        result, expected = compiled(x[:0]), f(x[:0])
        assert result.stride() == expected.stride()
        result.sum().backward(retain_graph=True)
        result.backward(torch.empty_strided(result.shape, (5,) * result.dim()), retain_graph=True)
        torch.testing.assert_close(x.grad, torch.zeros(4))
        given = torch.randn(3, *result.shape)
        (found,) = torch.autograd.grad(result, x, given, is_grads_batched=True)
        torch.testing.assert_close(found, torch.zeros(3, 4))


@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("laid_out", [torch.contiguous_format, torch.channels_last])
def test_gradients_that_lie_as_results_do(batch, laid_out):
    """None is copied, not even of one image; and where several stand for one, eager's answer."""
    x = torch.randn(batch, 3, 4, 5).to(memory_format=laid_out).requires_grad_()
    result = torch.compile(lambda x: x * 2, backend="mlirc", options={"cache": False})(x)
    given = torch.randn_like(result)
    result.backward(given, retain_graph=True)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        (found,) = torch.autograd.grad(result, x, given, retain_graph=True)
    assert "aten::copy_" not in {event.key for event in seen.key_averages()}
    torch.testing.assert_close(found, 2 * given)
    several = (
        torch.randn(3, batch, 4, 5, 3).permute(0, 1, 4, 2, 3)
        if laid_out is torch.channels_last
        else torch.randn(3, *x.shape)
    )
    (found,) = torch.autograd.grad(result, x, several, is_grads_batched=True)
    torch.testing.assert_close(found, 2 * several)


def test_a_jacobian():
    f = BODIES["one"]
    x, w = (y.detach() for y in arguments())
    compiled = torch.compile(f, backend="mlirc")
    found = torch.autograd.functional.jacobian(compiled, (x, w), vectorize=True)
    torch.testing.assert_close(found, torch.autograd.functional.jacobian(f, (x, w)))


def test_where_nothing_may_run_in_eager():
    with pytest.raises(UnsupportedGraph, match="a gradient stands for several"):
        batched(torch.compile(BODIES["one"], backend="mlirc", options={"fallback": "error"}))


LAZY = {
    "without memory": (torch.float32, lambda y: y.sgn()),
    "negated": (torch.float32, lambda y: torch.complex(y, y).conj().imag),
    "conjugated": (torch.complex64, lambda y: y.conj()),
}


@pytest.mark.parametrize("name", LAZY)
def test_lazy_gradients_of_a_trace_from_the_cache(name, tmp_path, monkeypatch):
    monkeypatch.setenv(cache_folder.VARIABLE, str(tmp_path))
    dtype, after = LAZY[name]

    def f(x, w):
        return x * w, x + w

    def gradients(g):
        x, w = (y.detach().to(dtype).requires_grad_() for y in arguments())
        a, b = g(x, w)
        return torch.autograd.grad((after(a).sum() * 2 + b.sum()).real, (x, w))

    for _ in range(2):
        torch._dynamo.reset()
        torch.testing.assert_close(gradients(torch.compile(f, backend="mlirc")), gradients(f))


@pytest.mark.thinned
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("pad", [(1, -1), (1, 1), (-1, -1), (-1, 2, 1, -1)])
@pytest.mark.parametrize("images", [1, 2])
def test_the_gradient_of_channels_last_images_is_channels_last(images, pad, dynamic):
    """A view of one image has a stride in the dimension of images that channels-last images have not."""
    x = torch.randn(images, 7, 6, 5).to(memory_format=torch.channels_last).requires_grad_()
    torch._dynamo.reset()
    strides = []
    for f in (
        torch.compile(lambda x: torch.nn.functional.pad(x, pad), backend="mlirc", dynamic=dynamic),
        lambda x: torch.nn.functional.pad(x, pad),
    ):
        y = f(x)
        (g,) = torch.autograd.grad(y, x, torch.ones_like(y))
        strides.append(g.stride()[1:])
    assert strides[0] == strides[1] == (1, 35, 7)


LAID_OUT = {
    "transposed": lambda x: x.mT,
    "permuted": lambda x: x.permute(2, 0, 3, 1),
    "channels-last": lambda x: x.to(memory_format=torch.channels_last),
    "reversed": lambda x: x.permute(3, 2, 1, 0),
    "row-major": lambda x: x,
    "of size 1": lambda x: x[:1].permute(0, 3, 1, 2),
}
OF_GONE = {
    "products": lambda x: x * x.sin(),
    "a matmul": lambda x: x @ x.mT,
    "rows": lambda x: x.softmax(1).cumsum(-1),
    "sums": lambda x: (x.sum(0, keepdim=True).exp(), x.amax(-1)),
    "elements": lambda x: x[:, torch.tensor([0, 1, 1])] * x[:, 1:2],
    "views": lambda x: (x.transpose(1, 2) * 2, x.flip(0).reshape(-1)),
}


@pytest.mark.thinned
@pytest.mark.parametrize("laid_out", LAID_OUT)
@pytest.mark.parametrize("body", OF_GONE)
def test_of_an_input_that_is_gone(body, laid_out):
    """Its graph cannot run again: the gradients are the backward graph's, whatever strides that wants."""

    def gradients(f):
        w = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), requires_grad=True)
        results = f(LAID_OUT[laid_out](w * 2))
        results = results if isinstance(results, tuple) else (results,)
        generator = torch.Generator().manual_seed(1)
        several = [torch.randn(3, *y.shape, generator=generator) for y in results]
        return torch.autograd.grad(results, w, several, is_grads_batched=True)

    f = OF_GONE[body]
    torch._dynamo.reset()
    torch.testing.assert_close(gradients(torch.compile(f, backend="mlirc")), gradients(f), check_stride=True)


def without_autocast(x, w):
    with torch.autocast("cpu", enabled=False):
        return x @ w


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("batches", [False, True])
@pytest.mark.parametrize(
    ("f", "dtype"),
    [
        (without_autocast, torch.float32),
        (lambda x, w: x.clamp(min=-1) + w, torch.float16),
        (lambda x, w: (x @ w).sin() * x, torch.float32),
    ],
    ids=["without it", "float16", "products"],
)
def test_gradients_in_eager_have_the_autocast_of_the_backward_pass(f, dtype, batches, inside):
    """And not that of the graph: a product is rounded to it, and what it has for bfloat16 may refuse a float16."""

    def gradients(f):
        torch._dynamo.reset()
        x, w = (y.detach().to(dtype).requires_grad_() for y in arguments())
        with torch.autocast("cpu", torch.bfloat16):
            y = f(x, w)
        given = torch.randn(3 if batches else 1, 4, 4, generator=torch.Generator().manual_seed(0)).to(y.dtype)
        with torch.autocast("cpu", torch.bfloat16, enabled=inside):
            if batches:
                return torch.autograd.grad(y, (x, w), given, is_grads_batched=True)
            return torch.autograd.grad(y, (x, w), given[0], create_graph=True)

    try:
        expected = gradients(f)
    except RuntimeError as error:  # of float16, inside
        with pytest.raises(RuntimeError, match=str(error)):
            gradients(torch.compile(f, backend="mlirc"))
    else:
        torch.testing.assert_close(gradients(torch.compile(f, backend="mlirc")), expected, rtol=1e-6, atol=1e-6)
