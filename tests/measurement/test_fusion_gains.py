"""`mlirc opt --measure`: the graph with and without each fusion."""

import json

from mlirc.measurement.alternate import Samples
from mlirc.measurement.fusion_gains import gain_of
from tests.commands.command import bad, good

X = "tensor<4x8xf32>"
GRAPH = f"""func.func @graph(%x: {X}) -> tensor<4xf32> attributes {{mlirc.results = ["g0"]}} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  %1 = "mlirc.neg"(%0) : ({X}) -> {X}
  %2 = "mlirc.sum"(%1) {{dims = "1", keepdim = false}} : ({X}) -> tensor<4xf32>
  return %2 : tensor<4xf32>
}}
"""
CPU = ("--pipeline", "cpu", "--emit", "none", "--rounds", 2)


def records(path):
    return [json.loads(line) for line in path.read_text().splitlines()][1:]


def test_each_fusion_is_measured(tmp_path):
    file, fusion = tmp_path / "a.mlir", tmp_path / "fusion.jsonl"
    file.write_text(GRAPH)
    done = good("opt", file, *CPU, "--stop-after", "fuse", "--ledger-json", fusion, "--measure")
    taken = [r for r in records(fusion) if r["taken"]]
    assert len(taken) == 2 and "measured 2 of 2 fusions" in done.stderr
    for record in taken:
        found = record["measured"]
        assert found["seconds_with"] > 0 and found["seconds_without"] > 0
        assert set(found["faster"]) == set(found["margin"]) == set(found["verdict"]) == {"wall", "cpu"}
    done = good("opt", file, *CPU, "--ledger-json", fusion, "--measure", "--measure-most", 1)
    measured = [r for r in records(fusion) if r["measured"]]
    assert "measured 1 of 2 fusions" in done.stderr
    assert len(measured) == 1
    assert measured[0]["estimated_gain"] == max(r["estimated_gain"] for r in records(fusion) if r["taken"])


def test_what_is_wrong_is_said(tmp_path):
    file, fusion = tmp_path / "a.mlir", tmp_path / "fusion.jsonl"
    file.write_text(GRAPH)
    assert "--measure goes with --ledger-json" in bad("opt", file, "-p", "cse", "--measure", code=2)
    line = bad("opt", file, *CPU, "--ledger-json", fusion, "--measure", "--inputs", tmp_path / "none", code=2)
    assert "No such file" in line and not fusion.exists()
    file.write_text(GRAPH.replace("@graph", "@kernel_1"))
    assert "has no function @graph" in bad("opt", file, *CPU, "--ledger-json", fusion, "--measure")


def test_a_gain_is_of_paired_samples():
    samples = {name: [Samples([s] * 6, [s] * 6)] * 3 for name, s in (("with", 1.0), ("without", 2.0))}
    found = gain_of(samples)
    assert (found["faster"]["wall"]["value"], found["gain"], found["verdict"]["cpu"]) == (2.0, 1e9, "faster")
    assert (found["cpu_gain"], found["margin"], found["seconds_without"]) == (1e9, {"wall": 1.0, "cpu": 1.0}, 2.0)
    slowing = {"with": [1.0, 2.0, 9.0, 10.0], "without": [2.0, 3.0, 10.0, 11.0]}
    assert gain_of({name: [Samples(s, s)] * 3 for name, s in slowing.items()})["gain"] == 1e9


def test_a_gain_within_what_compilations_differ_by_is_none():
    """Each compilation is steady, and one of the same graph is as fast as one without the fusion."""
    compiled = {"with": (1.0, 1.1, 1.2), "without": (1.2, 1.1, 1.25)}
    found = gain_of({name: [Samples([s] * 6, [s] * 6) for s in times] for name, times in compiled.items()})
    assert found["gain"] > 0 and set(found["verdict"].values()) == {"no difference beyond noise"}
