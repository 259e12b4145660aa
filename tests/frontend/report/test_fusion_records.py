"""Records of fusion in dumps, in mlirc.explain and in logs."""

import json

import torch

import mlirc
from mlirc.execution.captures import read_capture
from mlirc.lowering.fusion import candidates


def softmax(x):
    return torch.softmax(x * 2, -1) + 1


def test_a_dump_and_explain_have_the_same(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path / "cache"))
    x = torch.randn(4, 8, requires_grad=True)
    torch._dynamo.reset()
    torch.compile(softmax, backend="mlirc", options={"dump": str(tmp_path / "dumped"), "fallback": "error"})(
        x
    ).sum().backward()
    dumped = read_capture(tmp_path / "dumped").graphs
    explained = mlirc.explain(softmax, candidates=True, options={"fallback": "error"})(x)
    graphs = explained.data["graphs"]
    assert [g.kind for g in dumped] == [g["kind"] for g in graphs] == ["forward", "backward"]
    for kept, graph in zip(dumped, graphs, strict=True):
        run, *records = map(json.loads, kept.fusion.read_text().splitlines())
        assert run["kind"] == kept.kind and "fuse-elementwise" in run["passes"]
        assert records == json.loads(json.dumps(graph["candidates"])) and any(r["taken"] for r in records)
        assert graph["fusions"] == sum(r["taken"] and r["action"] != "recompute" for r in records)
        assert all("spaces" in e["numbers"] for e in graph["ledger"] if e["pass_name"].startswith("fuse-"))
        assert graph["cache"] == "off: the option 'candidates' wants every pair that fusion looks at"
    assert f"{len(graphs[0]['candidates'])} pairs looked at by fusion" in str(explained)
    lines = {r["line"].rsplit("/", 1)[-1] for r in records}
    assert all(line.startswith("test_fusion_records.py:") for line in lines)


def test_without_the_option_there_are_none(monkeypatch):
    def never(*_):
        raise AssertionError("nobody asked for records")

    monkeypatch.setattr(candidates.CandidateRecords, "__init__", never)
    with torch.no_grad():
        options = {"fallback": "error", "cache": False}
        (graph,) = mlirc.explain(softmax, options=options)(torch.randn(4, 8)).data["graphs"]
    assert graph["candidates"] == [] and graph["fusions"]
