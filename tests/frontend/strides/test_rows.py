"""Operators over rows, rotations and PReLU, of sizes 1 and 0, have all of eager's strides: those of dimensions that nobody walks along, too."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tests.frontend.strides.layouts import every, wrong
from tests.frontend.strides.test_size_one import ALL

aten = torch.ops.aten
SHAPES = (
    (1,),
    (0,),
    (1, 4),
    (4, 1),
    (1, 1),
    (0, 3),
    (3, 0),
    (2, 1, 4),
    (1, 3, 1),
    (2, 0, 3),
    (1, 1, 4, 4),
    (2, 1, 3, 2),
)
SHAPES += ((1, 4, 1, 1), (2, 4, 2, 1), (0, 4, 2, 2), (2, 0, 2, 2), (1, 2, 1, 1, 1))


def calls(x: torch.Tensor) -> Iterator[Callable[[Any], Any]]:
    rank = x.dim()
    slope = torch.rand([1] * rank)
    yield lambda x: aten._prelu_kernel.default(x, slope)
    yield lambda x: aten._prelu_kernel_backward.default(x.contiguous(), x, slope)
    yield lambda x: aten.native_dropout_backward.default(x, (x > 0).contiguous(), 2.0)
    if rank > 1:
        slopes = torch.rand([1, x.shape[1], *[1] * (rank - 2)])
        yield lambda x: aten._prelu_kernel.default(x, slopes)
        for turns in range(-1, 4):
            yield lambda x, turns=turns: aten.rot90.default(x, turns, [rank - 1, 0])
    for d in range(rank):
        for keep in (False, True):
            yield lambda x, d=d, keep=keep: aten.linalg_vector_norm.default(x, 2, [d], keep)
            yield lambda x, d=d, keep=keep: aten.linalg_vector_norm.default(x, 1, [d], keep, dtype=torch.float64)
        yield lambda x, d=d: aten._softmax.default(x, d, False)
        yield lambda x, d=d: aten._log_softmax.default(x, d, False)
        for op in (aten._softmax_backward_data.default, aten._log_softmax_backward_data.default):
            yield lambda x, d=d, op=op: op(x, x, d, x.dtype)
            yield lambda x, d=d, op=op: op(x.contiguous(), x, d, x.dtype)
            yield lambda x, d=d, op=op: op(x, x.contiguous(), d, x.dtype)
        if rank > 1:
            yield lambda x, d=d: aten.renorm.default(x, 2, d, 1.0)


@pytest.mark.parametrize(("dynamic", "of"), [(False, 9), (True, 31), pytest.param(True, 1, marks=pytest.mark.full)])
def test_calls(dynamic, of):
    found, compared = [], 0
    laid = [(lay(torch.rand(shape)), name) for shape, (name, lay) in itertools.product(SHAPES, ALL.items())]
    cases = [(x, name, call) for x, name in laid for call in calls(x)]
    for x, name, call in cases[1::of]:
        wrongs = wrong(call, (x,), {}, dynamic, every)
        compared += wrongs is not None
        found += [f"{name}: {text}" for text in wrongs or ()]
    assert not found, "\n".join(found[:40])
    assert compared > len(cases) // of * 3 // 4
