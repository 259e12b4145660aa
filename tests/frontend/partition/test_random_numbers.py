"""Random numbers of a CPU: a compiled graph draws what eager draws for the same seed, in eager's order, forward and backward.

Of dropout with p=1 AOTAutograd makes an operator that draws numbers, which eager does not: what comes after differs, as under `aot_eager`.
"""

import pytest
import torch
from torch.nn import functional as F

from mlirc.frontend import statistics


def dropouts(x):
    image = x.reshape(1, 4, 8, -1)
    turned = F.dropout(x.t(), 0.3)  # elements that do not lie in order
    a = (
        F.dropout(x, 0.5),
        F.alpha_dropout(x, 0.2),
        F.dropout1d(x, 0.5),
        F.dropout2d(image, 0.5),
        F.feature_alpha_dropout(image, 0.5),
    )
    return *a, turned, F.dropout(x.bfloat16(), 0.1), F.dropout(x, 0.0)


def attention(x):
    q = x.reshape(1, 4, 8, -1)
    return (F.scaled_dot_product_attention(q, q, q, dropout_p=0.3),)


def noise(x):
    p = x.sigmoid()
    a = (
        torch.rand_like(x),
        torch.randn_like(x),
        torch.rand(3, 5),
        torch.randn(2, dtype=torch.float64),
        torch.randperm(9),
    )
    b = torch.bernoulli(p), torch.multinomial(p.detach(), 2), torch.randint(0, 9, (7,)), torch.randint_like(x, 5)
    c = torch.normal(0.0, p.detach()), torch.poisson(p.detach() * 4), F.rrelu(x, training=True), F.gumbel_softmax(x)
    return *a, *b, *c


def in_place(x):
    made = torch.empty_like(x)
    a = made.clone().uniform_(), made.clone().normal_(), made.clone().exponential_(), made.clone().bernoulli_(0.3)
    b = made.clone().geometric_(0.3), made.clone().log_normal_(), made.clone().cauchy_()
    return *a, *b, x * 2


def drawn(fn, x):
    torch.manual_seed(7)
    x = x.clone().requires_grad_()
    made = fn(x)
    loss = sum(y.float().sum() for y in made if y.requires_grad)
    loss.backward()
    return [*made, x.grad, torch.rand(3)]  # and as many as eager


@pytest.mark.parametrize(
    "fn",
    [dropouts, noise, *(pytest.param(fn, marks=pytest.mark.full) for fn in (attention, in_place))],
    ids=lambda fn: fn.__name__,
)
def test_eagers_numbers(fn):
    x = torch.randn(64, 32)
    statistics.reset()
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    torch.testing.assert_close(drawn(compiled, x), drawn(fn, x))
    assert [graph.kind for graph in statistics.graphs] == ["forward", "backward"]
