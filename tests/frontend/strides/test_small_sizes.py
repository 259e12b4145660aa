"""Strides of operators on tensors with sizes of 0 to 3, in all layouts, those of dimensions of size 1 and of what is empty included."""

import itertools
import random

import pytest
import torch
import torch.nn.functional as F
from torch.utils._pytree import tree_leaves

from tests.frontend.strides.layouts import LAYOUTS, fakes, permuted, walked
from tests.frontend.strides.test_size_one import with_stride

aten = torch.ops.aten
ALL = LAYOUTS | {f"stride {n} where the size is 1": with_stride(n) for n in (0, 1, 7)}
SHAPES = [shape for rank in (2, 3, 4) for shape in itertools.product((0, 1, 2, 3), repeat=rank)]
OPERATORS = {
    "channel_shuffle": lambda x: aten.channel_shuffle.default(x, 1),
    "channel_shuffle of two": lambda x: aten.channel_shuffle.default(x, 2),
    "roll flat": lambda x: aten.roll.default(x, [1]),
    "roll": lambda x: aten.roll.default(x, [1], [0]),
    "layer norm": lambda x: aten.native_layer_norm.default(x, [x.shape[-1]], None, None, 1e-5),
    "group norm": lambda x: aten.native_group_norm.default(
        x, None, None, x.shape[0], x.shape[1], x[0, 0].numel(), 1, 1e-5
    ),
    "flip": lambda x: aten.flip.default(x, [0, -1]),
    "clone": aten.clone.default,
    "cat": lambda x: aten.cat.default([x, x], 1),
    "sum": lambda x: aten.sum.dim_IntList(x, [1]),
    "sum, kept": lambda x: aten.sum.dim_IntList(x, [1], True),
    "mean": lambda x: aten.mean.dim(x, [0], True),
    "amax": lambda x: aten.amax.default(x, [0], True),
    "var": lambda x: aten.var.correction(x, [1], correction=0),
    "cumsum": lambda x: aten.cumsum.default(x, 1),
    "softmax": lambda x: aten._softmax.default(x, 1, False),
    "gather": lambda x: aten.gather.default(x, 0, torch.zeros(x.shape, dtype=torch.int64)),
    "tril": aten.tril.default,
    "sort": lambda x: aten.sort.default(x, 1),
    "product": lambda x: aten.mm.default(x, x.t()),
    "batched product": lambda x: aten.bmm.default(x, x.mT),
    "masked_fill": lambda x: aten.masked_fill.Scalar(x, x > 0, 1.0),
    "max pool": lambda x: aten.max_pool2d_with_indices.default(x, [1, 1]),
    "average pool": lambda x: aten.avg_pool2d.default(x, [1, 1]),
    "select gradient": lambda x: aten.select_backward.default(x, [2, *x.shape], 0, 1),
    "loss": lambda x: aten.mse_loss.default(x, x, 0),
}


def numbers(x: torch.Tensor) -> tuple:
    return tuple(n if isinstance(n, int) else n.node.hint for n in x.stride())


def differences(name: str, tries: int) -> tuple[list, int]:
    draw, found, compared = random.Random(name), [], 0
    for _ in range(tries):
        shape, layout, dynamic = draw.choice(SHAPES), draw.choice(list(ALL)), draw.random() < 0.3
        try:
            x = ALL[layout](torch.full(shape, 0.5))
            expected = tree_leaves(OPERATORS[name](x))
        except (RuntimeError, IndexError, ValueError):  # eager refuses the rank, or what is empty
            continue
        got = fakes(OPERATORS[name], (x,), {}, dynamic)
        compared += 1
        found += [
            (layout, shape, x.stride(), dynamic, numbers(g), e.stride())
            for e, g in zip(expected, got, strict=True)
            if numbers(g) != e.stride()
        ]
    return found, compared


@pytest.mark.parametrize("tries", [30, pytest.param(1500, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", OPERATORS)
def test_strides(name, tries):
    found, compared = differences(name, tries)
    assert not found, found[:10]
    assert compared


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
@pytest.mark.parametrize("dynamic", [False, True])
def test_rows_resized_by_the_nearest(mode, dynamic):
    """Eager's lie row-major, and so does their gradient."""

    def function(x):
        return F.interpolate(x.sin(), scale_factor=2, mode=mode)

    torch._dynamo.reset()
    compiled = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for dims, shape in itertools.product(((0, 1, 2), (1, 2, 0), (2, 1, 0)), ((3, 2, 4), (2, 3, 1))):
        with torch.no_grad():
            assert walked(compiled(permuted(torch.rand(shape), *dims))) == walked(torch.empty(*shape[:2], 2 * shape[2]))
        of = []
        for call in (function, compiled):
            x = permuted(torch.linspace(-1, 2, 24)[: shape[0] * shape[1] * shape[2]].reshape(shape), *dims)
            result = call(x.requires_grad_())
            of.append((result, *torch.autograd.grad(result.square().sum(), x)))
        for e, f in zip(*of, strict=True):
            assert walked(f) == walked(e)
            torch.testing.assert_close(f, e)
