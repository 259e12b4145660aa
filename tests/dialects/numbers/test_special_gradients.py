"""Gradients of activations at NaN, infinities, zeros and kinks: what eager's vectors give, in every layout and length.

Eager contradicts itself here, between its vectors and the rest of a row: most of a large tensor is in vectors.
"""

import math

import pytest
import torch
import torch.nn.functional as F

from tests.dialects.numbers.test_special_values import FLOATS, compiled, same

# PyTorch takes hardshrink and softshrink apart before a backend sees them: their gradients are called as operators.
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


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "dtype",
    [pytest.param(x, marks=pytest.mark.full) if x in (torch.float64, torch.float16) else x for x in FLOATS],
    ids=str,
)
def test_gradients_of_activations(dtype):
    """NaN, infinities, both zeros and kinks, as x and as the gradient that comes in."""
    names = [n for n in GRADIENTS if dtype.itemsize > 2 or n not in OF_FLOATS]
    program = lambda xs: [GRADIENTS[n](x) for n, x in zip(names, xs, strict=False)]
    values = torch.tensor(
        [math.nan, math.inf, -math.inf, 0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -3.0, 6.0, 2.5, 21.0, 0.1, 0.9],
        dtype=dtype,
    )  # 0.1 and 0.9: the bounds of "logit eps", rounded
    x, incoming = (v.flatten() for v in torch.meshgrid(values, values[:8], indexing="ij"))
    wanted = gradients_of(program, *(v.repeat_interleave(64) for v in (x, incoming)))
    wanted = [w.view(-1, 64)[:, 0] for w in wanted]
    ours = compiled(program)
    apart = [torch.stack([v, v], 1)[:, 0] for v in (x, incoming)]
    found = [gradients_of(ours, *pair) for pair in ((x, incoming), apart, (x[:-3], incoming[:-3]))]
    wrong = []
    for k, name in enumerate(names):
        for layout, got in zip(("contiguous", "every other one", "another length"), found, strict=True):
            got, right = got[k], wanted[k][: got[k].numel()]
            bad = ~same(right, got, 0.02 if dtype.itemsize == 2 else 1e-5, 1e-6)
            if bad.any():
                wrong.append((name, layout, [v[: bad.numel()][bad][:5].tolist() for v in (x, incoming, got, right)]))
    assert not wrong, wrong


def test_gradients_of_shrinking():
    operators = (torch.ops.aten.hardshrink_backward, torch.ops.aten.softshrink_backward)
    x = torch.tensor([math.nan, math.inf, -math.inf, 0.0, -0.0, 0.5, -0.5, 3.0, -3.0], dtype=torch.float64)
    xs = [x.to(dtype) for dtype in FLOATS]
    program = lambda xs: [op(torch.full_like(x, 2.0), x, 0.5) for op in operators for x in xs]
    wanted = program([x.repeat_interleave(64) for x in xs])
    for got, right in zip(compiled(program)(xs), wanted, strict=True):
        assert torch.equal(got, right.view(-1, 64)[:, 0])


BOUNDED = {
    "hardtanh": lambda x, n: F.hardtanh(x, -n, n),
    "threshold": lambda x, n: F.threshold(x, n, -n),
    "clamp": lambda x, n: x.clamp(-n, n),
    "logit": lambda x, n: torch.logit(x, n),
    "softplus": lambda x, n: F.softplus(x, 1.0, n),
    "greater": lambda x, n: x * (x > n),
    "huber": lambda x, n: F.huber_loss(x, torch.zeros_like(x), delta=n, reduction="none"),
}


@pytest.mark.parametrize("dtype", [torch.float16, pytest.param(torch.bfloat16, marks=pytest.mark.full)], ids=str)
def test_bounds_that_a_half_type_rounds(dtype):
    """x at a bound's two neighbours and at its rounded value: eager rounds some operators' bounds, and compares others' in float32."""
    bounds = (0.1, 0.3, 1 / 3)
    points = [torch.tensor(n, dtype=dtype).view(torch.int16) + k for n in bounds for k in (-1, 0, 1)]
    x = torch.stack(points).view(dtype)
    x = torch.cat([x, -x, 1 - x]).repeat_interleave(64)

    def gradients(program):
        xs = [x.detach().clone().requires_grad_() for _ in BOUNDED for _ in bounds]
        made = program(xs)
        torch.autograd.backward([y.sum() for y in made if y.requires_grad])
        return [y.detach() for y in made], [x.grad for x in xs]

    program = lambda xs: [f(xs.pop(), n) for xs in [xs[::-1]] for f in BOUNDED.values() for n in bounds]
    for found, wanted in zip(gradients(compiled(program)), gradients(program), strict=True):
        for k, (got, right) in enumerate(zip(found, wanted, strict=True)):
            if right is not None:
                torch.testing.assert_close(got, right, msg=f"{[*BOUNDED][k // 3]} of {bounds[k % 3]}", equal_nan=True)
