"""Philox in kernels: the words of the published algorithm, and what ATen's dropout makes of them, element by element."""

import numpy
import pytest
import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.symbols import symbol
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.ops.nn.random import PhiloxUniform
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel, small

i64, f32 = torch.int64, torch.float32


def philox(seed: int, counter: list[int]) -> list[int]:
    """Philox4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", in Python's integers."""
    c, key = list(counter), [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ key[0], b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ key[1], a & 0xFFFFFFFF]
        key = [(key[0] + 0x9E3779B9) & 0xFFFFFFFF, (key[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def test_known_answers():
    """From the authors' file of known answers."""
    assert philox(0, [0] * 4) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    ones = 0xFFFFFFFF
    assert philox(ones << 32 | ones, [ones] * 4) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


def drawn(count: int, seed: int, counter: int, width: int, threads: int) -> torch.Tensor:
    """A thread goes through the elements in steps, `width` next to each other at a time, and draws four words for four."""
    found = numpy.zeros(count, numpy.float32)
    for thread in range(threads):
        draws = counter
        for first in range(thread * width, count, threads * width):
            for quad in range(first, first + width, 4):
                words = philox(seed, [draws & 0xFFFFFFFF, draws >> 32, thread, 0])
                draws += 1
                for lane, word in enumerate(words):
                    found[quad + lane] = numpy.float32(word) * numpy.float32(2**-32) + numpy.float32(2**-33)
    return torch.from_numpy(found)


def kernel(rows: int, columns: int, width: int, threads: int, order: str = "d0, d1", shrink=None) -> TritonKernel:
    out = info(f32, f"{rows}, {columns}")
    stride = {"d0, d1": (columns, 1), "d1, d0": (1, rows)}[order]

    def build(k, state):
        words = [k.read(state, (n,)) for n in (0, 1)]
        index = k.size(sum(symbol(f"d{d}") * n for d, n in enumerate(stride)))
        number = lambda n: ir.IntegerAttr.get(ir.IntegerType.get_signless(64), n)
        attributes = {"width": number(width), "threads": number(threads)}
        value = k.apply(PhiloxUniform, *words, index, attributes=attributes)
        assert info_of(value).dtype == f32
        return [(value, k.dims, out)]

    return TritonKernel([info(i64, "2")], f"{rows}, {columns}", "", build, shrink=shrink)


@pytest.mark.thinned(4)
@pytest.mark.parametrize("order", ["d0, d1", "d1, d0"])  # in the second, neighbours in a tile are none in memory
@pytest.mark.parametrize(("rows", "columns", "width", "threads"), [(12, 40, 4, 16), (10, 24, 8, 8), (7, 12, 4, 256)])
def test_each_element_gets_its_number(rows, columns, width, threads, order):
    seed, counter = 0x1234567890ABCDEF, (1 << 32) - 3  # the counter's upper half changes on the way
    made = kernel(rows, columns, width, threads, order, small(16))
    assert ("philox_quads" in made.source) == (order == "d0, d1")
    state = torch.tensor([seed, counter])
    (have,) = made.check(state, rtol=0, atol=0)
    wanted = drawn(rows * columns, seed, counter, width, threads)
    place = wanted.view(rows, columns) if order == "d0, d1" else wanted.view(columns, rows).t()
    out = torch.empty(rows, columns)
    made([state], [out])
    assert torch.equal(out, place) and torch.equal(have, place)


def test_negative_seeds():
    """A seed is 64 bits without a sign, and a tensor of int64 has one."""
    made = kernel(4, 8, 4, 8)
    out = torch.empty(4, 8)
    made([torch.tensor([-2, 5])], [out])
    assert torch.equal(out.flatten(), drawn(32, (1 << 64) - 2, 5, 4, 8))
