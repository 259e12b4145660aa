"""Gradients of activations at NaN, infinities, zeros and kinks: what eager gives in its vectors or one by one."""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.dialects.numbers.test_special_values import FLOATS, compiled, same

# PyTorch takes softshrink apart before a backend sees it.
ACTIVATIONS = [
    "relu",
    "relu6",
    "silu",
    "gelu",
    "elu",
    "celu",
    "selu",
    "mish",
    "softplus",
    "softsign",
    "hardtanh",
    "hardsigmoid",
    "hardswish",
    "hardshrink",
]
ACTIVATIONS += ["leaky_relu", "logsigmoid", "tanhshrink"]
GRADIENTS = {name: getattr(F, name) for name in ACTIVATIONS}
GRADIENTS |= {
    "gelu tanh": lambda x: F.gelu(x, approximate="tanh"),
    "elu 0.3": lambda x: F.elu(x, 0.3),
    "celu 2": lambda x: F.celu(x, 2.0),
    "softplus 2": lambda x: F.softplus(x, 2.0, 1.0),
    "threshold": lambda x: F.threshold(x, 0.5, 7.0),
    "prelu": lambda x: F.prelu(x[:, None], torch.full((1,), 0.25, dtype=x.dtype)),
    "logit": torch.logit,
    "logit eps": lambda x: torch.logit(x, 0.1),
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "abs": torch.abs,
    "clamp": lambda x: x.clamp(-1, 1),
    "nan_to_num": torch.nan_to_num,
}
OF_FLOATS = {
    "tanhshrink",
    "softsign",
    "celu 2",
    "hardswish",
    "mish",
}  # several ops, or products, which overflow in a half type


def gradients_of(program, x: torch.Tensor, incoming: torch.Tensor) -> list[torch.Tensor]:
    xs = [x.detach().clone().requires_grad_() for _ in GRADIENTS]
    made = program(xs)
    torch.autograd.backward(made, [incoming.view(y.shape) for y in made])
    return [x.grad for x, _ in zip(xs, made, strict=False)]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_gradients_of_activations(dtype):
    """NaN, infinities, both zeros and kinks, in vectors and one by one."""
    names = [n for n in GRADIENTS if dtype.itemsize > 2 or n not in OF_FLOATS]
    program = lambda xs: [GRADIENTS[n](x) for n, x in zip(names, xs, strict=False)]
    values = torch.tensor(
        [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, 2.5, 21.0], dtype=dtype
    )
    x, incoming = (v.flatten() for v in torch.meshgrid(values, values[:8], indexing="ij"))
    apart = torch.stack([x, x], 1)[:, 0]
    wanted = [gradients_of(program, v, w) for v, w in ((x, incoming), (apart, torch.stack([incoming] * 2, 1)[:, 0]))]
    wanted.append(
        [
            torch.cat(g)
            for g in zip(
                *(gradients_of(program, a, b) for a, b in zip(x.split(1), incoming.split(1), strict=True)), strict=True
            )
        ]
    )
    got = gradients_of(compiled(program), x, incoming)
    wrong = []
    for k, name in enumerate(names):
        right = same(wanted[0][k], got[k], 0.02 if dtype.itemsize == 2 else 1e-5, 1e-6)
        for other in wanted[1:]:
            right |= same(other[k], got[k], 0.02 if dtype.itemsize == 2 else 1e-5, 1e-6)
        if not right.all():
            wrong.append((name, [v[~right][:5].tolist() for v in (x, incoming, got[k], *(w[k] for w in wanted))]))
    assert not wrong, wrong
