"""Packages for several kinds of processors: the best that this one is runs; weights are mapped from the file, and shared by processes."""

import os
import subprocess
import sys
import time

import pytest
import torch
from torch import nn
from torch.export import Dim

import mlirc
from mlirc.codegen.llvm.processor import why_not_here
from mlirc.frontend.package.packaged_graph import PackageError
from mlirc.lowering.target import NAMED

KINDS = ("sse4", "avx2", "avx512")
WIDTHS = {"sse4": 16, "avx2": 32, "avx512": 64}
HERE = [kind for kind in KINDS if not why_not_here(NAMED[f"cpu-{kind}"])]


class Network(nn.Module):
    """Kernels of all kinds, a library's matmul, packed weights, an ATen call, a branch, a buffer that is written to."""

    def __init__(self):
        super().__init__()
        self.table, self.linear, self.norm = nn.Embedding(10, 64), nn.Linear(64, 64), nn.LayerNorm(64)
        self.convolution = nn.Conv1d(64, 8, 3)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, tokens):
        self.calls.add_(1)
        h = self.norm(nn.functional.gelu(self.linear(self.table(tokens))))
        h = torch.cond(tokens.sum() > 40, lambda h: h.sin(), lambda h: h.cos(), (h,))
        return torch.softmax(h @ h.transpose(1, 2), -1), self.convolution(h.transpose(1, 2)).sort(-1)[0]


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    torch.manual_seed(0)
    model, path = Network().eval(), tmp_path_factory.mktemp("targets") / "m.mlirc"
    compiled = mlirc.compile(model, (torch.randint(10, (3, 9)),), dynamic_shapes=({0: Dim.DYNAMIC},))
    compiled.save(path, targets=["avx512", "sse4", "avx2"])
    return model, path


@pytest.mark.parametrize("kind", HERE)
def test_each_kind_that_runs_here(saved, monkeypatch, kind):
    model, path = saved
    monkeypatch.setenv("MLIRC_VECTOR_BYTES", str(WIDTHS[kind]))
    loaded = mlirc.load(path)
    assert f"vector-bytes={WIDTHS[kind]}" in loaded._program.target
    for batch in (2, 5):
        tokens = torch.randint(10, (batch, 9))
        torch.testing.assert_close(loaded(tokens), model(tokens), rtol=2e-5, atol=2e-5)


def test_the_best_runs(saved, tmp_path):
    loaded = mlirc.load(saved[1])
    assert f"vector-bytes={WIDTHS[HERE[-1]]}" in loaded._program.target
    loaded.save(tmp_path / "again.mlirc")
    assert mlirc.load(tmp_path / "again.mlirc")._program.target == loaded._program.target
    with pytest.raises(PackageError, match="where it is compiled"):
        loaded.save(tmp_path / "again.mlirc", targets=["avx2"])


def test_none_runs(tmp_path, monkeypatch):
    compiled = mlirc.compile(lambda x: x.sin(), (torch.ones(4),))
    compiled.save(tmp_path / "m.mlirc", targets=["avx2", "avx512"])
    monkeypatch.setenv("MLIRC_VECTOR_BYTES", "16")
    with pytest.raises(PackageError, match="none of which this processor is"):
        mlirc.load(tmp_path / "m.mlirc")
    with pytest.raises(PackageError, match="there is no target 'avx1'"):
        compiled.save(tmp_path / "m.mlirc", targets=["avx1"])


def test_loading_takes_little(saved):
    """CPU time in a process that has loaded one before."""
    mlirc.load(saved[1])
    times = []
    for _ in range(5):
        start = time.process_time()
        mlirc.load(saved[1])
        times.append(time.process_time() - start)
    assert min(times) < 0.05


SMAPS = """
import sys, torch, mlirc
model = mlirc.load(sys.argv[1])
x = torch.ones(1, 1024)
model(x)
fields = {}
for line in open("/proc/self/smaps"):
    name, *rest = line.split()
    if "-" in name and not name.endswith(":"):
        ours = line.rstrip().endswith(sys.argv[1])
    elif ours and rest[-1:] == ["kB"]:
        fields[name] = fields.get(name, 0) + int(rest[0])
print(*(fields.get(f"{name}:", 0) for name in ("Rss", "Shared_Clean", "Private_Clean", "Private_Dirty")), flush=True)
sys.stdin.read()
"""


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps"), reason="only Linux says what is shared")
def test_processes_share_weights(tmp_path):
    model = nn.Linear(1024, 2048).eval()
    mlirc.compile(model, (torch.ones(1, 1024),), options={"freeze": True}).save(tmp_path / "m.mlirc")
    with open(tmp_path / "m.mlirc", "rb") as file:
        os.fsync(file.fileno())  # pages that are not on disk yet count as dirty
    size, found, processes = 1024 * 2048 * 4 // 1024, [], []
    try:
        for _ in range(2):
            command = [sys.executable, "-c", SMAPS, str(tmp_path / "m.mlirc")]
            processes.append(subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True))
            found.append(list(map(int, processes[-1].stdout.readline().split())))
    finally:
        for process in processes:
            process.kill()
            process.communicate()
    (rss, _, _, dirty), (_, shared, private, also_dirty) = found
    assert rss >= size and dirty == also_dirty == 0, found
    assert shared >= size and private < size // 100, found
