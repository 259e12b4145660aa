"""Fingerprints of memory: any change of one element is seen, whatever the sizes, and many that look alike are."""

import ctypes
import random

import pytest
import torch

from mlirc.codegen.runtime import fingerprint
from mlirc.codegen.runtime.fingerprint import CHUNK, GRAIN, Fingerprint, extent, joined

SIZES = [1, 3, 7, 8, 63, 64, 65, 127, 128, 1000, 4095, 4096, 4097, 8200, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 77]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("start", [0, 1])
def test_each_bit_of_each_byte_counts(size, start):
    """Of all bytes where there are few, else of those around the places where loops end."""
    memory = torch.randint(0, 256, (size + 2,), dtype=torch.uint8)
    x = memory[start : start + size]
    known = Fingerprint([x])
    ends = {0, 1, 63, 64, 4095, 4096, CHUNK - 1, CHUNK, size - 65, size - 64, size - 2, size - 1}
    places = range(size) if size < 300 else sorted({k for k in ends if 0 <= k < size} | set(range(0, size, 997)))
    for k in places:
        for bit in (0, 3, 7) if size > 300 else range(8):
            x[k] ^= 1 << bit
            assert not known.same(), (k, bit)
            x[k] ^= 1 << bit
    assert known.same()
    memory[start + size] ^= 1
    assert known.same()


def negated(x):
    x.neg_()


def zeroed(x):
    x.zero_()


def doubled(x):
    x.mul_(2)


def one_added(x):
    x.add_(1)


def exchanged(x):
    x.copy_(x.flip(0))


def rolled(x):
    x.copy_(x.roll(1))


def halves_exchanged(x):
    x.copy_(x.roll(len(x) // 2))


def neighbours_exchanged(x):
    x[: len(x) // 2 * 2].view(-1, 2).copy_(x[: len(x) // 2 * 2].view(-1, 2).flip(1).clone())


def two_negated(x):
    x[:2].neg_()


def two_far_apart_negated(x):
    x[:: len(x) - 1].neg_()


@pytest.mark.thinned(50)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
@pytest.mark.parametrize("size", [2, 16, 33, 1024, 1 << 15, 70_001])
@pytest.mark.parametrize(
    "change",
    [
        negated,
        zeroed,
        doubled,
        one_added,
        exchanged,
        rolled,
        halves_exchanged,
        neighbours_exchanged,
        two_negated,
        two_far_apart_negated,
    ],
)
def test_changes_of_many_elements(change, size, dtype):
    torch.manual_seed(size)
    x = torch.randn(size).to(dtype)
    known = Fingerprint([x])
    change(x)
    assert not known.same()


def test_equal_numbers_that_change_alike():
    """Ones everywhere are the data in which changes cancel out most easily."""
    x = torch.ones(CHUNK)
    draw = random.Random(0)
    for _ in range(500):
        known = Fingerprint([x])
        for k in draw.sample(range(len(x)), draw.choice([2, 4, 8])):
            x[k] = -x[k]
        assert not known.same()


def test_threads(monkeypatch):
    """The share of each is looked at."""
    asked = []
    function = fingerprint._function()
    monkeypatch.setattr(fingerprint, "_function", lambda: lambda *a: asked.append(a[-1]) or function(*a))
    x = torch.randn(4 * GRAIN // 4 + 11)
    known = Fingerprint([x])
    for k in range(0, len(x), len(x) // 37):
        old = x[k].item()
        x[k] += 1
        assert not known.same()
        x[k] = old
        assert known.same()
    assert set(asked) == {min(torch.get_num_threads(), 4)}


def test_memory_of_tensors():
    memory = torch.zeros(100)
    x = memory.data_ptr()
    assert extent(memory[10:20]) == (x + 40, x + 80)
    assert extent(memory.as_strided((3, 4), (20, 2), 5)) == (x + 20, x + 4 * (5 + 40 + 6 + 1))
    assert extent(memory[7].expand(50)) == (x + 28, x + 32)
    assert extent(memory[:0])[0] == extent(memory[:0])[1]
    assert joined([(0, 4), (8, 12), (2, 6), (12, 13), (5, 5)]) == [(0, 6), (8, 12), (12, 13)]
    assert Fingerprint([]).same() and Fingerprint([memory[:0]]).same()
    assert Fingerprint([memory, memory[3:], memory.t()]).bytes == memory.nbytes


def test_nothing_beyond_is_read():
    """Memory that ends where a page does."""
    import mmap

    area = mmap.mmap(-1, 3 * mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(area))
    libc = ctypes.CDLL(None, use_errno=True)
    for page in (0, 2):
        assert libc.mprotect(ctypes.c_void_p(start + page * mmap.PAGESIZE), mmap.PAGESIZE, 0) == 0
    inside = (ctypes.c_uint8 * mmap.PAGESIZE).from_address(start + mmap.PAGESIZE)
    x = torch.frombuffer(inside, dtype=torch.uint8)
    for k in range(0, mmap.PAGESIZE, 61):
        assert Fingerprint([x[k:]]).same() and Fingerprint([x[: mmap.PAGESIZE - k]]).same()
