"""Backward graphs without the gradients of results that nobody differentiated."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from mlirc.frontend.partition import undefined_tangents


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 5)

    def forward(self, x, labels):
        hidden = self.body(x).tanh()
        logits = self.head(hidden)
        return nn.functional.cross_entropy(logits, labels), logits.view(2, 3, 5), hidden.unsqueeze(0)


USES = {
    "the loss": (lambda loss, logits, hidden: loss, (1, 2)),
    "the loss and the logits": (lambda loss, logits, hidden: loss + logits.sin().sum(), (2,)),
    "everything": (lambda loss, logits, hidden: loss + logits.sin().sum() + hidden.exp().sum(), ()),
    "what lies within": (lambda loss, logits, hidden: hidden.exp().sum(), (0, 1)),
}


def gradients(model, call, use, x, labels):
    model.zero_grad(set_to_none=True)
    use(*call(x, labels)).backward()
    return {name: p.grad for name, p in model.named_parameters()}


@pytest.fixture
def compilations(monkeypatch):
    """Which gradients, counted among themselves, each backward graph that is compiled does without."""
    found = []
    plain = undefined_tangents.without

    def noted(gm, absent):
        first = [str(n.target).startswith("tangents") for n in gm.graph.find_nodes(op="placeholder")].index(True)
        found.append(tuple(k - first for k in absent))
        return plain(gm, absent)

    monkeypatch.setattr(undefined_tangents, "without", noted)
    return found


@pytest.mark.parametrize("order", [[*USES], [*USES][::-1]], ids=["loss first", "loss last"])
def test_gradients_with_some_results_unused(order, compilations):
    torch.manual_seed(0)
    model = Model()
    call = torch.compile(model, backend="mlirc", options={"fallback": "error"})
    plain = copy.deepcopy(model)
    x, labels = torch.randn(6, 6), torch.randint(5, (6,))
    for name in order + order:
        use, _ = USES[name]
        made, own = gradients(model, call, use, x, labels), gradients(plain, plain, use, x, labels)
        torch.testing.assert_close(made, own)  # None where nothing led to a parameter
    assert compilations == [USES[name][1] for name in order]  # each once, when it is needed


def test_a_gradient_that_is_not_there_is_not_added(monkeypatch):
    plain, additions = undefined_tangents.without, []

    def noted(gm, absent):
        made = plain(gm, absent)
        additions.extend(
            len(g.graph.find_nodes(op="call_function", target=torch.ops.aten.add.Tensor)) for g in (gm, made)
        )
        return made

    monkeypatch.setattr(undefined_tangents, "without", noted)
    torch.compile(Model(), backend="mlirc")(torch.randn(6, 6), torch.randint(5, (6,)))[0].backward()
    assert additions == [2, 0]  # to what comes from the loss, for the logits and the hidden values


def spikes(x, w):
    """The second row of the stack is a result, too: its gradient is a part of another, which a matmul reads transposed."""
    v = x * 2 @ w.T
    return torch.stack([x @ w.T, v]), v


def parts(cut, split):
    """As `spikes`, for other operators that give parts of a gradient, and others that read them."""

    def program(x, w):
        v = (x @ w).sin()
        return cut(v), split(v), v

    return program


MOVED = {
    "transposed": spikes,
    "sliced": parts(lambda v: torch.cat([v.exp(), v]), lambda v: v.mT.contiguous()),
    "split": parts(lambda v: torch.cat([v.exp(), v], 1), lambda v: torch.cat([c.cos() for c in v.chunk(2)])),
    "diagonal": parts(lambda v: torch.stack([v.mul(3), v]), lambda v: torch.stack([v, v.diagonal().diag_embed()])),
    "summed": lambda x, w: (
        torch.stack([x.sum(0) @ w, (x * 2).mean(0) @ w]),
        x.mean(0).outer(w.sum(0)).diagonal(),
        x @ w,
    ),
}


@pytest.mark.parametrize("used", range(3))
@pytest.mark.parametrize("name", MOVED)
@pytest.mark.thinned(3)
def test_a_gradient_that_is_a_part_of_another(name, used):
    """In place of a sum with nothing stands a part of a gradient that does not begin where the sum does; views follow it."""
    torch.manual_seed(0)
    x, w = torch.randn(6, 6), torch.randn(6, 6, requires_grad=True)

    def gradient(call):
        results = call(x, w)
        return torch.autograd.grad(results[min(used, len(results) - 1)].square().sum(), w)[0]

    made = gradient(torch.compile(MOVED[name], backend="mlirc", options={"fallback": "error"}))
    torch.testing.assert_close(made, gradient(MOVED[name]))


def test_zeros_that_are_seen_as_parts():
    """What is not differentiated reaches an operator that is not linear by views of views, which lie within no zeros of ours."""
    x = torch.randn(3, 4, requires_grad=True)

    def program(x):
        both = torch.stack([x.cos(), x.tanh()])
        return torch.stack([part.diagonal().sin().diag_embed() for part in both]), x.exp(), x * 2

    def gradient(call, used):
        return torch.autograd.grad(call(x)[used].square().sum(), x)[0]

    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error"})
    for used in range(3):
        torch.testing.assert_close(gradient(compiled, used), gradient(program, used))


def test_nodes_of_others_are_left_alone():
    """A result may be an input, whose node of autograd's graph is somebody else's."""

    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2, x * 3

        @staticmethod
        def backward(ctx, first, second):
            assert second is not None
            return first * 2 + second * 3

    x = torch.randn(4, requires_grad=True)
    doubled, _ = Double.apply(x)
    w = torch.randn(4, requires_grad=True)
    same, loss, _ = torch.compile(lambda a, b: (a, (a * b).sum(), a.exp()), backend="mlirc")(doubled, w)
    (loss + same.sum()).backward()
    torch.testing.assert_close(x.grad, 2 * (w.detach() + 1))


class OfItsTangent(torch.autograd.Function):
    """Of a tangent of zeros its first gradient is 1."""

    @staticmethod
    def forward(ctx, a, b):
        return a * 2, b * 3

    @staticmethod
    def backward(ctx, *tangents):
        return tangents[0].cos(), tangents[1] * 3


def test_a_function_that_hears_zeros_gives_what_it_makes_of_them():
    found = []
    for run in (OfItsTangent.apply, torch.compile(lambda a, b: OfItsTangent.apply(a, b), backend="mlirc")):
        a, b = torch.ones(3, requires_grad=True), torch.ones(3, requires_grad=True)
        run(a, b)[1].sum().backward()
        found.append((a.grad, b.grad))
    torch.testing.assert_close(*found)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("used", [0, 1])
def test_compiled_autograd_has_zeros_for_what_is_undefined(used, dynamic):
    """It copies the backward graph's operators, which take no None; and the call's own backward pass, later, has None again."""

    def program(x, y):
        return x * -1.5 + y.exp(), nn.functional.leaky_relu(y) * y

    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"cache": False, "fallback": "error"})
    found = []
    for function in (program, compiled):
        torch.manual_seed(0)
        x, y = (torch.randn(3, requires_grad=True) for _ in range(2))
        for within in (function is compiled, False):
            with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")) if within else nullcontext():
                function(x, y)[used].sum().backward()
            found += [x.grad, y.grad]
            x.grad = y.grad = None
    for eager, ours in zip(found[:4], found[4:], strict=True):
        torch.testing.assert_close(torch.zeros(3) if ours is None else ours, torch.zeros(3) if eager is None else eager)
