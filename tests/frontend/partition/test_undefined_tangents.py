"""Backward graphs without the gradients of results that nobody differentiated."""

import copy
import random

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
        torch.testing.assert_close(gradients(model, call, use, x, labels), gradients(plain, plain, use, x, labels))
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
@pytest.mark.thinned
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


STEPS = {
    "sin": lambda x, y: x.sin(),
    "detached": lambda x, y: x.detach() * y,
    "sum of both": lambda x, y: x + y,
    "product": lambda x, y: x * y,
    "sign": lambda x, y: x.sign() * 2 + y,
    "floor": lambda x, y: x.floor(),
    "transposed": lambda x, y: x.mT + 1,
    "matmul": lambda x, y: x @ y,
    "part of a stack": lambda x, y: torch.stack([x, y]).unbind()[1],
    "chunk": lambda x, y: torch.cat([x.chunk(2)[1], y.chunk(2)[0]]),
    "chosen": lambda x, y: torch.where(x > 0, x, y),
    "constant": lambda x, y: x.detach() * 2,
    "softmax": lambda x, y: x.softmax(0),
    "zero": lambda x, y: x * 0,
    "difference": lambda x, y: x - y,
}


def random_gradients(seed):
    """A program of three inputs with several results, and which of them are differentiated."""
    rng = random.Random(seed)
    steps = [(rng.choice([*STEPS]), rng.randrange(3 + k), rng.randrange(3 + k)) for k in range(rng.choice((2, 3, 5)))]
    returned = rng.sample(range(3, 3 + len(steps)), rng.choice((2, len(steps))))
    if rng.random() < 0.2:
        returned.append(rng.randrange(3))

    def program(*inputs):
        values = list(inputs)
        for name, x, y in steps:
            values.append(STEPS[name](values[x], values[y]))
        return [values[k] for k in returned]

    return program, [k for k in range(len(returned)) if rng.random() < 0.5] or [0], steps, returned


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(k, marks=pytest.mark.full) for k in range(12, 200))])
def test_gradients_that_eager_has_not(seed):
    """None, as in eager, for an input that no differentiated result is computed from."""
    program, used, *told = random_gradients(seed)
    torch._dynamo.reset()
    torch.manual_seed(0)
    inputs = [torch.randn(4, 4, requires_grad=True) for _ in range(3)]

    def found(call):
        results = [r for k, r in enumerate(call(*inputs)) if k in used and r.requires_grad]
        if not results:
            return []
        total = torch.stack([r.square().sum() for r in results]).sum()
        return torch.autograd.grad(total, inputs, allow_unused=True)

    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error"})
    torch.testing.assert_close(found(compiled), found(program), msg=lambda text: f"{told} {used}: {text}")


def heads(x, first, second):
    return (x * first).sum(), (x * second).sin()


def test_an_optimizer_leaves_an_unused_head_alone():
    """With zeros for its gradient, weight decay would change it."""
    kept = []
    for call in (heads, torch.compile(heads, backend="mlirc", options={"fallback": "error"})):
        weights = [torch.ones(4, requires_grad=True) for _ in range(2)]
        optimizer = torch.optim.AdamW(weights, lr=0.1, weight_decay=0.5)
        for k in (0, 1, 0):
            optimizer.zero_grad()
            call(torch.arange(4.0), *weights)[k].sum().backward()
            optimizer.step()
        kept.append([w.detach() for w in weights])
    torch.testing.assert_close(*kept)


HOOKS = {
    "tensor": lambda x, hear: x.register_hook(hear),
    "accumulated": lambda x, hear: x.register_post_accumulate_grad_hook(lambda x: hear(x.grad)),
}


@pytest.mark.parametrize("hook", HOOKS)
@pytest.mark.parametrize("behind", [lambda x: x, lambda x: x.mT], ids=["leaf", "view"])
def test_hooks_hear_zeros(hook, behind):
    """As under aot_eager, where eager calls no hook: a hook takes no None."""
    heard = []
    for backend in ("aot_eager", "mlirc"):
        torch._dynamo.reset()
        leaf, other = (torch.ones(2, 3, requires_grad=True) for _ in range(2))
        said = []
        HOOKS[hook](leaf, lambda g, said=said: said.append((g * 2).tolist()))
        torch.compile(heads, backend=backend)(torch.ones(1), other, behind(leaf))[0].backward()
        assert leaf.grad is not None
        heard.append((said, leaf.grad.tolist()))
    assert heard[0] == heard[1] == ([[[0.0] * 3] * 2], [[0.0] * 3] * 2)
