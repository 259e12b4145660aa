"""Sizes that are computed of symbols: at some sizes of the inputs they are 1, and then other strides are eager's.

Each program is traced at some sizes. Its strides are eager's at all others for which its guards hold.
"""

import itertools
import random
from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
import torch.nn.functional as F
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.utils._pytree import tree_leaves

from mlirc.frontend.strides.traced import with_eager_strides

PARTS = {
    "slice": lambda x: x[2:],
    "columns": lambda x: x[..., 2:],
    "both": lambda x: x[2:, 2:],
    "diagonal": lambda x: x.diagonal(2),
    "split": lambda x: x.tensor_split(3)[2],
    "columns of a split": lambda x: x.tensor_split(3, -1)[2],
    "chunk": lambda x: x.chunk(3, 1)[-1],
    "step": lambda x: x[::3],
    "every third column": lambda x: x[..., ::3],
    "windows": lambda x: x.unfold(0, 2, 3)[..., 0],
    "expanded": lambda x: x[2:, :, :1].expand(-1, -1, x.shape[0]),
}
LAYOUTS = {
    "as it is": lambda x: x,
    "transposed": lambda x: x.mT,
    "reversed": lambda x: x.permute(2, 1, 0),
    "first innermost": lambda x: x.mT.contiguous().mT,
    "of rank 4": lambda x: x.unsqueeze(1),
}
CALLS: dict[str, Callable] = {
    "unary": torch.sin,
    "sum": lambda x: x + x.mT.contiguous().mT,
    "broadcast": lambda x: x + x.new_ones(x.shape[-1]),
    "first row": lambda x: x[:1] * x,
    "column": lambda x: torch.addcmul(x[..., :1], x, x.contiguous()),
    "where": lambda x: torch.where(x > 0, x, x[..., :1]),
    "converted": lambda x: x.double(),
    "copy": torch.clone,
    "empty_like": lambda x: torch.empty_like(x).zero_(),
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "index": lambda x: x[:, torch.tensor([0, 0])],
    "cat": lambda x: torch.cat([x, x], -1),
    "reshape": lambda x: x.reshape(-1, x.shape[0]) * 1,
    "view": lambda x: x.unflatten(-1, (1, -1)) + 1,
    "matmul": lambda x: x @ x.mT,
    "einsum": lambda x: torch.einsum("...ij,...i,de->d...jie", x, x.new_ones(x.shape[-2]), x.new_ones(2, 3)),
    "instance_norm": lambda x: F.instance_norm(x, eps=0.1) + x[..., :1],
    "softmax": lambda x: x.softmax(-1),
    "stretched": lambda x: x.new_ones(2, *x.shape[1:]) * x,  # where one element is left
    "columns stretched": lambda x: torch.where(x > 0, x, x.mT.new_ones(2, *x.shape[:-1]).movedim(0, -1)),
    "einsum of stretched": lambda x: torch.einsum("...ij,i,de->d...jie", x, x.new_ones(2), x.new_ones(2, 3)),
    "fft": lambda x: torch.fft.fft2(x),
    "rfft": lambda x: torch.fft.rfftn(x, dim=(1, 0)),
}
SIZES = ((3, 4, 5), (5, 3, 4), (4, 6, 3), (7, 7, 7), (4, 4, 4), (3, 3, 3), (6, 7, 8), (2, 3, 4), (8, 3, 5), (3, 2, 4))


def walked(sizes: Any, strides: Any) -> tuple | None:
    return None if 0 in sizes else tuple(s if n > 1 else None for n, s in zip(sizes, strides, strict=True))


def made_of(program: Callable, sizes: tuple) -> list | None:
    try:
        return tree_leaves(program(torch.ones(sizes)))
    except (RuntimeError, ValueError, IndexError):
        return None


def differences(program: Callable, traced: tuple, others: Any) -> tuple[list[str], int]:
    """Where strides are not eager's, and how many sizes were compared."""
    environment = ShapeEnv()
    mode = FakeTensorMode(shape_env=environment, allow_non_fake_inputs=True)
    eager = {sizes: made for sizes in (traced, *others) if (made := made_of(program, sizes)) is not None}
    if traced not in eager:
        return [], 0
    try:
        fake = mode.from_tensor(torch.ones(traced), source=ConstantSource("x"))
        symbols: Any = [n if isinstance(n, int) else n.node.expr for n in fake.shape]
        with with_eager_strides([fake]), mode:
            made = tree_leaves(program(fake))
    except (RuntimeError, ValueError, IndexError):
        return [], 0
    found, compared = [], 0
    for sizes, expected in eager.items():
        values = dict(zip(symbols, map(sympy.Integer, sizes), strict=True))
        if [values[s] for s in symbols] != [*sizes] or not all(g.expr.xreplace(values) for g in environment.guards):
            continue
        compared += 1
        numbers = lambda given, values=values: [
            n if isinstance(n, int) else int(n.node.expr.xreplace(values)) for n in given
        ]
        for x, y in zip(expected, made, strict=True):
            ours, eagers = walked(numbers(y.shape), numbers(y.stride())), walked(x.shape, x.stride())
            if ours != eagers:
                found.append(f"traced at {traced}, at {sizes}: {ours}, eager {eagers}")
    return found, compared


def some(part: int, of: int) -> tuple[list[str], int]:
    found, compared = [], 0
    for part_, layout, call in [*itertools.product(PARTS, LAYOUTS, CALLS)][part::of]:
        drawn = random.Random(f"{part_} {layout} {call}").sample(SIZES, 5)
        program = lambda x, p=part_, n=layout, c=call: CALLS[c](LAYOUTS[n](PARTS[p](x)))
        wrong, count = differences(program, drawn[0], drawn[1:])
        found += [f"{part_}, {layout}, {call}: {text}" for text in wrong]
        compared += count
    return found, compared


def test_some_programs():
    found, compared = some(part=5, of=23)
    assert not found, "\n".join(found)
    assert compared > 50


@pytest.mark.full
@pytest.mark.parametrize("part", range(12))
def test_each_program(part):
    found, compared = some(part, of=12)
    assert not found, "\n".join(found)
    assert compared > 100


def product(x, y):
    parts = torch.tensor_split(x, 3, -2)
    return torch.einsum("ab, a, de->dbae", parts[2], y, parts[0])


def norm(x, y):
    part = x.diagonal(3)
    rows = part @ y.expand(1, 2)
    return torch.addcmul(part, rows, F.instance_norm(rows), value=0.1)


CASES = [
    *((product, sizes) for sizes in (((7, 7), (4, 4), (8, 9)), ((4, 4), (7, 7)), ((3, 5), (7, 7)))),
    *(
        (norm, sizes)
        for sizes in (((1, 16, 0, 1), (1, 4, 7, 1), (1, 6, 3, 1)), ((1, 4, 7, 1), (2, 4, 7, 1), (2, 4, 6, 1)))
    ),
]


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("program, sizes", CASES)
@pytest.mark.thinned(2)
def test_compiled(program, sizes, dynamic):
    """The last of three parts, and a diagonal, have one element in some calls."""
    torch._dynamo.reset()
    given = torch.randn(2)
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for shape in sizes:
        x = torch.randn(shape)
        found, expected = compiled(x, given), program(x, given)
        torch.testing.assert_close(found, expected)
        assert walked(found.shape, found.stride()) == walked(expected.shape, expected.stride())
