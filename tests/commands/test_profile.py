"""The command `mlirc profile`: rows of a script's graphs and of captured ones."""

import json

import pytest
import torch
from torch._higher_order_ops.while_loop import while_loop

from mlirc.commands.profile import disturbed
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


def test_bad_input(tmp_path):
    path = tmp_path / "script.py"
    path.write_text("import torch\ntorch.compile(lambda x: x + 1)(1 / 0)\n")
    assert "no SCRIPT.py or DIR" in bad("profile", code=2)
    assert "nowhere.py: no such file" in bad("profile", "nowhere.py")
    assert "script.py:2: ZeroDivisionError" in bad("profile", path)
    (tmp_path / "empty").mkdir()
    assert "no capture" in bad("profile", tmp_path / "empty")
