"""Loops that are cut where an index is compared with a constant."""

import re
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


LONG = [
    (2**17 + 8, 2**17),
    (100_003, 77_777),
    (70_001, 3, 90_001),
    (66_000, 66_001, 66_002),
    (1, 200_000),
    (40_000,) * 6,
]


@pytest.mark.thinned
@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float16, torch.float32, torch.float64])
def test_a_long_concatenation_that_threads_share(dtype, threads):
    """A thread's part begins and ends anywhere in the segments, and segments anywhere in a vector."""
    generator = torch.Generator().manual_seed(threads)
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for sizes in LONG:
            xs = [torch.randint(-9, 9, (n + 1,), generator=generator).to(dtype)[1:] for n in sizes]
            call = torch.compile(lambda *xs: torch.cat([xs[0].flip(0), *xs[1:]]), backend="mlirc", dynamic=False)
            assert torch.equal(call(*xs), torch.cat([xs[0].flip(0), *xs[1:]])), sizes
    finally:
        torch.set_num_threads(before)


def test_results_past_the_cache_end_segments_anywhere():
    """A store past the cache takes addresses at multiples of a vector alone."""
    xs = [torch.randn(2**24 + 3), torch.randn(2**21 + 5)]
    call = torch.compile(lambda *xs: torch.cat(xs), backend="mlirc", dynamic=False)
    assert torch.equal(call(*xs), torch.cat(xs))


@pytest.mark.skipif(host_cpu().arch != "x86_64", reason="looks for instructions of x86")
@pytest.mark.parametrize("sizes", [[2**17 + 8, 2**17], [100_003, 77_777]])
def test_long_segments_of_bytes_are_whole_vectors(sizes):
    """No index of 8 bytes decides how many lanes a vector has."""

    def build(k, x, y):
        (d,) = k.dims
        first = k.lt(k.size(d), sizes[0])
        a, b = k.read(x, [d], mask=first), k.read(y, [d - sizes[0]], mask=k.ge(k.size(d), sizes[0]))
        return [(k.select(first, a, b), k.dims, info(torch.int8, f"{sum(sizes)}"))]

    kernel = NativeKernel([info(torch.int8, f"{n}") for n in sizes], f"{sum(sizes)}", "", build)
    text = assembly(kernel.llvm)
    assert re.search(
        r"^\s+vmov\w+\s+[^{}]*\(%r(?!ip)[^{}]*\), %[yz]mm\d+$", text, re.MULTILINE
    )  # a load of a whole vector, without a mask
    kernel.check(*(torch.randint(-9, 9, (n,), dtype=torch.int8) for n in sizes))
