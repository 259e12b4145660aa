"""Each command on a program of a GPU: attention, norms and their gradients, captured and gone on with from its files."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = Path(__file__).parents[2] / "debugger/planted/passes.py"
SCRIPT = """
import torch
from torch import nn
import torch.nn.functional as F


class Block(nn.Module):
    def __init__(self, n=64, heads=4):
        super().__init__()
        self.norm, self.qkv, self.out, self.heads = nn.LayerNorm(n), nn.Linear(n, 3 * n), nn.Linear(n, n), heads

    def forward(self, x):
        b, t, n = x.shape
        q, k, v = self.qkv(self.norm(x)).view(b, t, 3, self.heads, n // self.heads).permute(2, 0, 3, 1, 4)
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, n))


if __name__ == "__main__":
    torch.manual_seed(0)
    net = nn.Sequential(Block(), Block()).cuda()
    compiled = torch.compile(net)
    x = torch.randn(4, 160, 64, device="cuda")
    for _ in range(2):
        (compiled(x).cos() * 2).sum().backward()
    with torch.no_grad():
        print(torch.compile(lambda x, y: x.cos() * 2 - y.exp())(x, x).shape)
"""


def mlirc(folder, *arguments):
    command = [sys.executable, "-m", "mlirc", *map(str, arguments)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"{arguments}: {done.stderr[-3000:]}"
    return done


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("captured")
    (folder / "net.py").write_text(SCRIPT)
    assert "3 graphs" in mlirc(folder, "capture", "--out", "kept", "net.py").stderr
    return folder


def imported(folder):
    return sorted((folder / "kept").glob("*_0_import.mlir"))


def test_each_pass_is_checked(captured):
    """40,960 elements, so that PyTorch's threads are at work, with drawn inputs and with those that the program gave."""
    for k, file in enumerate(imported(captured)):
        given = ["--inputs", str(file).replace("_0_import.mlir", "_inputs.safetensors")] if k != 1 else []
        done = mlirc(captured, "run", file, "--pipeline", "gpu", "--check-each-pass", *given)
        assert (
            "compared with float64" in done.stderr and "right after each pass, and so is Triton's code" in done.stdout
        )


def test_each_stage_runs(captured):
    for file in sorted((captured / "kept").glob("*_?_*.mlir")):
        done = mlirc(captured, "run", file, "--repeat", "3")
        assert re.search(r"us, the median of 3 calls", done.stderr) and "nan" not in done.stdout, file


def test_a_planted_bug_is_named(captured):
    given = ["--pipeline", "gpu", "--import", PASSES, "--passes-after", "simplify=sine-for-cosine", "--no-reduce"]
    done = mlirc(captured, "bisect", "net.py", *given)
    assert "The pass is 'sine-for-cosine'" in done.stdout and "mlirc.cos" in done.stdout, done.stdout


def test_profile_and_report_of_a_folder(captured):
    mlirc(captured, "profile", "kept", "--json", "rows.json")
    graphs = json.loads((captured / "rows.json").read_text())["graphs"]
    assert [len(g["rows"]) > 2 for g in graphs] == [True, True, False]
    for row in (row for graph in graphs for row in graph["rows"] if row["floor"]):
        assert row["floor"] < 1.2 * row["seconds"], row
    mlirc(captured, "report", "kept", "-o", "page.html", "--profile", "rows.json")
    assert "add_layer_norm" in (captured / "page.html").read_text()


def test_captures_are_compared(captured):
    done = mlirc(captured, "compare", "gpu", "gpu + forget-negation after simplify", "--captures", "kept", "--import", PASSES,
                 "--rounds", "3", "--json", "found.json")  # fmt: skip
    assert "002_inference" in done.stdout and "error" in done.stdout


def test_fusions_are_measured(captured):
    done = mlirc(captured, "opt", imported(captured)[1], "--pipeline", "gpu", "--emit", "none", "--ledger-json", "pairs.jsonl",
                 "--measure", "--measure-most", "3", "--rounds", "3")  # fmt: skip
    assert "measured 3 of" in done.stderr
    records = map(json.loads, (captured / "pairs.jsonl").read_text().splitlines())
    assert sum(1 for r in records if "gain" in (r.get("measured") or {})) == 3
