"""After a compilation the compilers' libraries take next to no memory, and compile again."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mlirc.codegen import compiler_pages

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
def test_only_pages_that_nobody_has_written_to_are_given_back():
    x = torch.randn(4)
    torch.compile(lambda x: x + 1, backend="mlirc", options={"fallback": "error"})(x)
    spans = {start: start + size for start, size in compiler_pages._unwritten()}
    assert spans
    found = 0
    for mapping in re.split(r"\n(?=[0-9a-f]+-)", Path("/proc/self/smaps").read_text()):
        start, end = (int(n, 16) for n in mapping.split(maxsplit=1)[0].split("-"))
        if spans.get(start) == end:
            found += 1
            assert re.search(r"Private_Dirty: +0 kB", mapping) and re.search(r"Anonymous: +0 kB", mapping), mapping
    assert found == len(spans)
