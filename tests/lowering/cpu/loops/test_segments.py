"""Loops that are cut where an index is compared with a constant."""

import tracemalloc
from itertools import pairwise

import pytest
import torch

from mlirc.codegen.llvm.machine_code import assembly
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info

f32 = torch.float32


def concatenated(sizes: list[int], rows: int = 5):
    return concatenation(sizes, rows), [torch.randn(rows, n) for n in sizes]


def concatenation(sizes: list[int], rows: int = 5) -> NativeKernel:
    """The operands one after the other along the last dimension, the first one negated."""
    starts = [sum(sizes[:k]) for k in range(len(sizes) + 1)]

    def build(k, *xs):
        d, row = k.dims[-1], k.dims[0]
        index, value = k.size(d), None
        for x, lo, hi in reversed(list(zip(xs, *zip(*pairwise(starts), strict=True), strict=True))):
            inside = k.bitwise_and(k.ge(index, lo), k.lt(index, hi))
            part = k.read(x, [row, d - lo], mask=inside)
            part = k.neg(part) if lo == 0 else part
            value = part if value is None else k.select(k.lt(index, hi), part, value)
        return [(value, k.dims, info(f32, f"{rows}, {starts[-1]}"))]

    infos = [info(f32, f"{rows}, {n}") for n in sizes]
    return NativeKernel(infos, f"{rows}, {starts[-1]}", "", build)


@pytest.mark.parametrize("sizes", [[32, 32], [32, 16, 16], [16, 40], [10, 22], [1, 31, 3], [64, 1], [16] * 6])
def test_concatenation(sizes):
    kernel, inputs = concatenated(sizes)
    kernel.check(*inputs)


@pytest.mark.skipif(host_cpu().arch != "x86_64", reason="looks for instructions of x86")
@pytest.mark.parametrize(("sizes", "cut"), [([32, 32], True), ([32, 16, 16], True), ([10, 22], False)])
def test_segments_read_without_masks(sizes, cut):
    kernel, _ = concatenated(sizes)
    text = assembly(kernel.llvm)
    assert ("vmaskmov" in text or "{%k" in text) != cut


def test_an_axis_of_many_elements_takes_no_memory():
    """A loss over 4,096 tokens of 32,000 words has 131 million: a set of their indices is gigabytes."""
    tracemalloc.start()
    try:
        concatenation([32, 2**27 - 32])
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()
