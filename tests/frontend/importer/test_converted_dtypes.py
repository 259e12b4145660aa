"""Conversions between dtypes of which kernels know one or neither: complex numbers, float8, wide unsigned integers."""

import itertools

import pytest
import torch
from torch.utils._pytree import tree_leaves

pytestmark = pytest.mark.thinned

KNOWN = [torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
KNOWN += [torch.float16, torch.bfloat16, torch.float32, torch.float64]
OTHERS = [torch.complex32, torch.complex64, torch.complex128, torch.uint16, torch.uint32, torch.uint64]
OTHERS += [torch.float8_e4m3fn, torch.float8_e5m2]


def part(x, y):
    x[:-1] = y
    return x


def picked(x, y):
    x[torch.tensor([0, 2])] = y
    return x


PROGRAMS = {
    "part": part,
    "picked": picked,
    "copied": lambda x, y: x.copy_(y),
    "converted": lambda x, y: (y.to(x.dtype), x.to(y.dtype), y.type_as(x) * 1),
    "made": lambda x, y: (torch.zeros_like(x, dtype=y.dtype), torch.full_like(x, 2, dtype=y.dtype)),
    "equal": lambda x, y: torch.where(x == x.flip(0), x, x.flip(1)),
    "chosen": lambda x, y: torch.where(torch.arange(4) > 1, x, y),
    "joined": lambda x, y: torch.cat([x, y.expand(1, 4)]),
}
PAIRS = [pair for pair in itertools.product([*KNOWN, *OTHERS], repeat=2) if set(pair) & set(OTHERS)]
QUICK = [
    (torch.uint16, torch.bool),
    (torch.int64, torch.complex128),
    (torch.complex64, torch.float32),
    (torch.bool, torch.complex64),
]


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", PROGRAMS)
@pytest.mark.parametrize("pair", [p if p in QUICK else pytest.param(p, marks=pytest.mark.full) for p in PAIRS])
@pytest.mark.filterwarnings("ignore:Casting complex values to real")
def test_converts_as_eager(name, pair):
    x, y = torch.arange(1, 17).reshape(4, 4).to(pair[0]), torch.tensor(3).to(pair[1])
    try:
        expected = tree_leaves(PROGRAMS[name](x.clone(), y))
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"eager refuses it: {error}")
    torch._dynamo.reset()
    try:
        torch.compile(PROGRAMS[name], backend="aot_eager")(x.clone(), y)
    except (RuntimeError, NotImplementedError) as error:
        pytest.skip(f"PyTorch's tracing refuses it: {error}")
    torch._dynamo.reset()
    made = torch.compile(PROGRAMS[name], backend="mlirc", options={"fallback": "error"})(x.clone(), y)
    for ours, eager in zip(tree_leaves(made), expected, strict=True):
        assert (ours.shape, ours.stride(), ours.dtype) == (eager.shape, eager.stride(), eager.dtype)
        assert torch.equal(ours.reshape(-1).view(torch.uint8), eager.reshape(-1).view(torch.uint8))
