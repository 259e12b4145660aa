"""Hooks and gradients of inputs that a differentiated result is not computed from, with and without a history of the gradients."""

import pytest
import torch
from torch import autograd


def at():
    return torch.linspace(-1, 1, 4)


UNREACHED = {
    "leaf": lambda leaf: [leaf],
    "view": lambda leaf: [leaf, leaf[..., 1:]],
    "view of a view": lambda leaf: [leaf, leaf.t(), leaf.t()[1:]],
    "computed": lambda leaf: [leaf, leaf.exp()],
    "computed twice": lambda leaf: (lambda h: [leaf, h, h.sin()])(leaf * 2),
    "of two": lambda leaf: [leaf, leaf * at()],
}
HOOKS = {
    "tensor": lambda x, hear: x.register_hook(hear),
    "node": lambda x, hear: x.grad_fn and x.grad_fn.register_hook(lambda of_inputs, of_outputs: hear(of_outputs[0])),
    "before a node": lambda x, hear: x.grad_fn and x.grad_fn.register_prehook(lambda given: hear(given[0])),
    "accumulated": lambda x, hear: x.is_leaf and x.register_post_accumulate_grad_hook(lambda x: hear(x.grad)),
    "retained": lambda x, hear: x.retain_grad(),
}


@pytest.mark.parametrize("name", UNREACHED)
@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("again", [True, False])
@pytest.mark.thinned(2)
@pytest.mark.filterwarnings("ignore:Using backward")
def test_hooks_of_an_input_that_the_result_is_not_computed_from(name, hook, again):
    """A hook anywhere between the leaf and the graph hears zeros, as under aot_eager, where eager does not call it."""

    def program(x, y):
        return y.sin() * 2, x.sum()

    torch._dynamo.reset()
    compiled = {backend: torch.compile(program, backend=backend) for backend in ("mlirc", "aot_eager")}
    for place in range(len(UNREACHED[name](at()[None]))):
        heard = {}
        for backend, call in compiled.items():
            leaf, y = torch.ones(4, 4, requires_grad=True), at().requires_grad_()
            chain = UNREACHED[name](leaf)
            said = heard[backend] = []
            HOOKS[hook](chain[place], lambda g, said=said: said.append(None if g is None else g.tolist()))
            r, other = call(chain[-1], y)
            r.sum().backward(create_graph=again, retain_graph=True)
            heard[backend] = list(said)
            if backend == "mlirc":
                torch.testing.assert_close(y.grad.detach(), 2 * y.cos())
                (reached,) = autograd.grad(other, leaf, retain_graph=True)
                torch.testing.assert_close(reached, *autograd.grad(chain[-1].sum(), leaf))
            if backend == "mlirc" and again:
                torch.testing.assert_close(*autograd.grad(y.grad.sum(), y), -2 * y.sin())
        assert heard["mlirc"] == heard["aot_eager"]


@pytest.mark.parametrize("backend", ["mlirc", "aot_eager"])
def test_a_leaf_without_hooks_that_the_result_is_not_computed_from(backend):
    torch._dynamo.reset()
    x, y = at().requires_grad_(), at().requires_grad_()
    r, _ = torch.compile(lambda x, y: (y.sin() * 2, x.sum()), backend=backend)(x, y)
    (unused,) = autograd.grad(r.sum(), x, create_graph=backend == "mlirc", allow_unused=True)
    assert unused is None if backend == "mlirc" else not unused.any()  # eager's None, and AOTAutograd's zeros
