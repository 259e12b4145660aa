"""Parameters come to lie in huge pages, with the numbers that they had, where that makes no process larger."""

import ctypes
import mmap
import os
import re
import time
from pathlib import Path

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from mlirc.frontend.performance import parameter_pages

BLOCKS = 4


def small_pages(filled: float) -> mmap.mmap:
    """BLOCKS + 1 blocks, the leading part of which is there, in pages of 4 KiB whatever the system prefers."""
    size = (BLOCKS + 1) * parameter_pages.block_size()
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(15)  # MADV_NOHUGEPAGE
    part = int(filled * size)
    memory[:part] = os.urandom(part)
    memory.madvise(14)  # MADV_HUGEPAGE: of what is touched from here on, which is nothing
    return memory


def parameter(filled: float = 1.0) -> nn.Parameter:
    numbers = torch.frombuffer(small_pages(filled), dtype=torch.bfloat16)
    return nn.Parameter(numbers.view(-1, 1024), requires_grad=False)


def huge_blocks(x: torch.Tensor) -> int:
    """Huge pages in the mapping that holds a tensor."""
    for mapping in re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
        start, end = (int(n, 16) for n in mapping.split(maxsplit=1)[0].split("-"))
        if start <= x.data_ptr() < end:
            kilobytes = re.search(r"AnonHugePages: +(\d+) kB", mapping)
            assert kilobytes
            return (int(kilobytes[1]) << 10) // parameter_pages.block_size()
    raise AssertionError("no mapping holds the tensor")


def gathered(x: torch.Tensor) -> int:
    """How many blocks became huge."""
    before = huge_blocks(x)
    made = parameter_pages.gather([x])
    assert made is not None
    made.result(60)
    return huge_blocks(x) - before


@pytest.fixture(autouse=True)
def _can_collapse(monkeypatch):
    """Skips where the system makes no page huge on request."""
    size = parameter_pages.block_size()
    if not size:
        pytest.skip("no huge pages")
    memory = small_pages(1.0)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    if not parameter_pages._collapse(-(-address // size) * size):
        pytest.skip("MADV_COLLAPSE is refused")
    monkeypatch.setattr(parameter_pages, "WAIT", 0)
    monkeypatch.setattr(parameter_pages, "REST", 0)


def test_the_first_call_goes_first(monkeypatch):
    monkeypatch.setattr(parameter_pages, "WAIT", 1.0)
    x = parameter()
    before = huge_blocks(x)
    made = parameter_pages.gather([x])
    assert made is not None
    time.sleep(0.1)
    assert huge_blocks(x) == before
    made.result(60)
    assert huge_blocks(x) >= before + BLOCKS


def test_parameters_lie_in_huge_pages_with_the_numbers_they_had():
    x = parameter()
    before = x.view(torch.int16).clone()
    assert gathered(x) >= BLOCKS
    assert torch.equal(x.view(torch.int16), before)


def test_pages_that_nobody_has_touched_stay_untouched():
    assert 1 <= gathered(parameter(filled=0.5)) <= BLOCKS // 2


def test_pages_that_a_child_shares_stay_shared():
    x = parameter()
    ours, theirs = os.pipe()
    child = os.fork()
    if not child:
        os.close(theirs)
        os.read(ours, 1)  # until the parent is done
        os._exit(0)
    try:
        assert gathered(x) == 0
    finally:
        os.write(theirs, b".")
        os.waitpid(child, 0)
    assert gathered(x) >= BLOCKS


def test_memory_that_is_gone_is_left_alone():
    x = parameter()
    start, found = x.data_ptr(), []
    found.extend(parameter_pages.blocks([(start, start + x.nbytes)]))
    assert len(found) >= BLOCKS
    del x
    parameter_pages._collapse_all(found, 0, 0)


def test_tensors_that_are_no_parameters_stay_as_they_are():
    assert parameter_pages.gather([parameter().data, torch.randn(1 << 20), 3]) is None
    assert parameter_pages.gather([nn.Parameter(torch.randn(100))]) is None
    with FakeTensorMode():
        assert parameter_pages.gather([nn.Parameter(torch.randn(1 << 22))]) is None


def test_blocks_lie_within_parameters_that_are_near():
    size = parameter_pages.block_size()
    near, far = parameter_pages.NEAR, parameter_pages.NEAR + 1
    assert list(parameter_pages.blocks([(size - 1, 2 * size - near), (2 * size, 3 * size)])) == [size, 2 * size]
    assert list(parameter_pages.blocks([(2 * size, 3 * size), (size - 1, 2 * size - far)])) == [2 * size]
    assert list(parameter_pages.blocks([(1, size)])) == []


def test_compiling_a_model_gathers_its_parameters():
    layer = nn.Linear(8, 8, bias=False, dtype=torch.bfloat16)
    layer.weight = parameter()
    compiled = torch.compile(layer, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad():
        compiled(torch.randn(1, 1024, dtype=torch.bfloat16))
    for _ in range(600):
        if huge_blocks(layer.weight) >= BLOCKS:
            return
        time.sleep(0.1)
    raise AssertionError("the pages of its parameter stay small")
