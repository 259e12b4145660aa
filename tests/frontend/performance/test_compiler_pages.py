"""After a compilation the compilers' libraries take next to no memory, and compile again."""

import ctypes
import mmap
import subprocess
import sys

import pytest
import torch

from mlirc.frontend.performance import compiler_pages
from mlirc.frontend.performance.compiler_pages import give_back  # tests/conftest.py replaces it in the module

linux = pytest.mark.skipif(sys.platform != "linux", reason="other systems keep no such account of pages")

COMPILE = """
import torch

def resident():
    lines = open("/proc/self/smaps").read().splitlines()
    total, ours = 0, False
    for line in lines:
        if line.split(":")[0].isalpha() or "_" in line.split(":")[0]:
            total += int(line.split()[1]) if ours and line.startswith("Rss:") else 0
        else:
            ours = "libllvmlite" in line or "libTorchMLIR" in line or "libMLIRPythonCAPI" in line
    return total / 1024

def check(fn):
    x = torch.randn(8, 64)
    compiled = torch.compile(fn, backend="mlirc", options={"fallback": "error", "cache": False})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), fn(x))

check(lambda x: x.softmax(-1))
print(resident())
check(lambda x: x.exp() + x.sum(0))
print(resident())
"""


@linux
def test_compiling_leaves_no_pages_of_the_compilers():
    done = subprocess.run([sys.executable, "-c", COMPILE], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    for megabytes in map(float, done.stdout.split()):
        assert 0 < megabytes < 15


@linux
def test_what_somebody_wrote_into_a_library_stays():
    """A debugger's breakpoint lies in pages that are only readable."""
    torch.compile(lambda x: x + 1, backend="mlirc", options={"fallback": "error", "cache": False})(torch.randn(4))
    libc, page = ctypes.CDLL(None), mmap.PAGESIZE
    start, end = max(compiler_pages._mappings(), key=lambda span: span[1] - span[0])
    at = (start + (end - start) // 2) & -page
    before = ctypes.string_at(at, page)
    assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 7) == 0
    ctypes.c_uint8.from_address(at).value ^= 0xFF
    assert libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 5) == 0
    try:
        give_back()
        assert ctypes.c_uint8.from_address(at).value == before[0] ^ 0xFF
    finally:
        libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 7)
        ctypes.c_uint8.from_address(at).value ^= 0xFF
        libc.mprotect(ctypes.c_void_p(at), ctypes.c_size_t(page), 5)
    assert ctypes.string_at(at, page) == before


def test_a_system_that_does_not_tell_keeps_its_pages(monkeypatch):
    monkeypatch.setattr(compiler_pages, "_mappings", lambda: [(0, 1 << 20)])
    monkeypatch.setattr(compiler_pages, "_unwritten", refused)
    give_back()


def refused(*args):
    raise PermissionError
