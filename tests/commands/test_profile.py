"""The command `mlirc profile`: rows of a script's graphs and of captured ones."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from mlirc.commands.profile import disturbed
from mlirc.frontend.report.processor_wait import ProcessorWait
from tests.commands.command import bad, good

SCRIPT = """
import torch
layer = torch.nn.Linear(16, 16)
f = torch.compile(lambda x: layer(x).exp().softmax(-1))
f(torch.randn(4, 16)).sum().backward()
with torch.no_grad():
    f(torch.randn(8, 16))
"""


def test_a_script(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(SCRIPT)
    table = good("profile", path, "--json", tmp_path / "rows.json").stdout
    assert "of floor" in table and "script.py:4" in table
    found = json.loads((tmp_path / "rows.json").read_text())
    names = [graph["name"] for graph in found["graphs"]]
    assert names == [
        "<lambda>(4x16) with gradients, forward",
        "<lambda>(4x16) with gradients, backward",
        "<lambda>(8x16), inference",
    ]
    for graph in found["graphs"]:
        assert sum(row["share"] for row in graph["rows"]) == pytest.approx(1)
        assert {"kernel", "library"} & {row["kind"] for row in graph["rows"]}


def test_captured_graphs(tmp_path):
    with torch.no_grad():
        torch.compile(lambda x: (x @ x).exp().softmax(-1), backend="mlirc", options={"dump": str(tmp_path)})(
            torch.randn(8, 8)
        )
    (graph,) = json.loads(good("profile", tmp_path, "--json", "-").stdout)["graphs"]
    assert graph["name"].endswith("inference") and any("softmax" in row["label"] for row in graph["rows"])


def test_a_kernel_in_a_loop_counts_for_each_step(tmp_path):
    def function(x):
        start = torch.tensor(0)
        return while_loop(lambda i, x: i < 4, lambda i, x: (i + 1, x.sin()), (start, x))

    with torch.no_grad():
        torch.compile(function, backend="mlirc", options={"dump": str(tmp_path)})(torch.randn(8))
    good("profile", tmp_path, "--json", tmp_path / "rows.json")
    (rows,) = [graph["rows"] for graph in json.loads((tmp_path / "rows.json").read_text())["graphs"]]
    times = {row["label"]: (row["times"], row["read"]) for row in rows if row["kind"] == "kernel"}
    assert times["sin"] == (4, 4 * 8 * 4) and times["lt"][0] == 5, times


def test_a_title_says_where_times_vary():
    assert disturbed([{"seconds": 1.9e-6, "shortest": 1e-6}]) == ""
    said = disturbed([{"seconds": 9e-6, "shortest": 1e-6}, {"seconds": 1e-6, "shortest": 1e-6}])
    assert said.startswith("; the shortest times add up to 2.0 us: other processes compute here")


def test_a_title_says_where_all_calls_wait_alike():
    rows = [{"seconds": 1e-6, "shortest": 1e-6, "waited": 0.5}]
    assert disturbed(rows).startswith("; 50% of the time its threads waited for a processor: other processes compute")
    assert disturbed([rows[0] | {"waited": 0.02}]) == disturbed([rows[0] | {"waited": None}]) == ""


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="this system does not tell how long threads wait")
def test_threads_of_one_processor_wait_for_it():
    """Two of them, of which each has half of it."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, [min(before)])
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        time.sleep(0.05)
        with ProcessorWait() as wait:
            until = time.process_time() + 0.1
            while time.process_time() < until:
                pass
        assert wait.share > 0.2
    finally:
        other.kill()
        other.wait()
        os.sched_setaffinity(0, before)


def test_bad_input(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import torch\ntorch.compile(lambda x: x + 1)(1 / 0)\n")
    assert "no SCRIPT.py or DIR" in bad("profile", code=2)
    assert "nowhere.py: No such file or directory" in bad("profile", "nowhere.py", code=2)
    assert "script.py:2: ZeroDivisionError" in bad("profile", path)
    assert "options of a script stand after --" in bad("profile", path, "--size", code=2)
    (tmp_path / "empty").mkdir()
    assert "'x': a folder takes no arguments" in bad("profile", tmp_path / "empty", "x", code=2)
    assert "no capture" in bad("profile", tmp_path / "empty")
