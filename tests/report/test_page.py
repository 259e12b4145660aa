"""`mlirc report`: what the page has of a capture, whatever is in it."""

import fnmatch
import json
import os
import re
import tomllib
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlirc.dialects.core.context import context
from mlirc.execution.captures import read_capture
from mlirc.lowering.module.op_text import OpText
from mlirc.measurement.captured_graphs import CapturesError, captured_graphs
from mlirc.report.html_page import SCRIPTS, STYLES, html_page
from mlirc.report.memory_data import most_live
from mlirc.report.op_changes import op_changes
from mlirc.report.report_data import report_data, source_of
from tests.commands.command import bad, good

ROOT = Path(__file__).parents[2]
HOSTILE = "</script><script>window.hit=1</script><img src=x onerror=hit=1>&amp;\u2028'\"`${hit}"


def data_of(folder, profiles=None):
    with context():
        return json.loads(json.dumps(report_data(read_capture(folder), profiles or {}), default=str))


def test_everything_of_a_capture_is_there(captured):
    data = data_of(captured)
    assert len(data["graphs"]) == len(read_capture(captured).graphs) >= 5
    first = data["graphs"][0]
    assert not first["notes"] and first["kind"] == "forward"
    assert [x["name"] for x in first["stages"]] == ["import", "simplify", "fuse", "plan", "lower"]
    assert all("loc(" not in x["text"] for x in first["stages"])
    lines = {x["text"]: x for x in first["source"]}
    (line,) = [x for text, x in lines.items() if "softmax" in text]
    assert [first["kernels"][k]["name"] for k in line["kernels"]]
    titles = [n["t"] for n in first["drawing"]["nodes"]]
    assert "return" in titles and any(n["k"] == "kernel" and n["o"] for n in first["drawing"]["nodes"])
    assert all(
        first["drawing"]["nodes"][a]["y"] < first["drawing"]["nodes"][b]["y"] for a, b in first["drawing"]["edges"]
    )
    assert [x["name"] for x in first["passes"]][:2] == ["canonicalize", "cse"]
    assert first["passes"][-1]["name"] == "plan-memory" and any(x["lines"] for x in first["passes"])
    code = {k: [x for x in first["code"] if x["language"] == k] for k in ("mlir", "llvm", "assembly")}
    labels = [x["name"] for x in first["kernels"]]
    assert [x["label"] for x in code["mlir"]] == labels and sum(map(len, code.values())) == len(first["code"])
    assert all(x["text"].startswith("func.func @kernel_") and "_body(" in x["text"] for x in code["mlir"])
    for language, begins in (("llvm", "define "), ("assembly", ".globl")):  # of each kernel, and of the host program
        assert [x["label"] for x in code[language]] == [*labels, ""] and code[language][-1]["name"] == "graph"
        assert all(begins in x["text"] for x in code[language])
    assert first["memory"]["steps"] and first["ledger"]
    frames = data["frames"]
    assert any(f["ended_by"]["graph_break"] and "graph_break" in f["ended_by"]["reason"] for f in frames)
    assert any(f["recompiled"] for f in frames) and all(f["guards"] for f in frames)


def test_a_line_names_its_calls_of_libraries(captured):
    """What a call becomes is told where it is no kernel of ours; what is a kernel once it is lowered is no call."""
    for graph in data_of(captured)["graphs"]:
        told: dict[str, int] = {}
        for line in graph["source"]:
            assert line["kernels"] or line["calls"] or "@" not in line["text"], line
            for name, kind, times in line["calls"]:
                assert kind == "library"
                told[name] = told.get(name, 0) + times
        assert told == {call["name"]: call["count"] for call in graph["calls"]}


def test_what_is_of_no_line_stands_last():
    """A layer that a container of torch.nn calls has no line of the program's."""
    kernels = [{"name": "matmul", "lines": []}, {"name": "relu", "lines": ["model.py:5"]}]
    nodes = [{"k": "library", "t": "addmm", "l": []}, {"k": "kernel", "t": "matmul", "l": []}] * 2
    first, last = source_of({}, kernels, nodes)
    assert (first["file"], first["kernels"]) == ("model.py", [1])
    assert (last["file"], last["kernels"], last["calls"]) == ("", [0], [["addmm", "library", 2]])


def test_an_attention_of_ours_is_a_kernel(tmp_path):
    options = {"dump": tmp_path, "fallback": "error", "cache": False}
    with torch.no_grad():
        attention = torch.nn.functional.scaled_dot_product_attention
        torch.compile(attention, backend="mlirc", options=options)(*torch.randn(3, 1, 2, 8, 8))
    (graph,) = data_of(tmp_path)["graphs"]
    kinds = {node["k"] for node in graph["drawing"]["nodes"] if node["t"] == "attention"}
    assert kinds == {"kernel"} and not any(line["calls"] for line in graph["source"])


def test_boxes_do_not_overlap(captured):
    for graph in data_of(captured)["graphs"]:
        nodes = graph["drawing"]["nodes"]
        for k, a in enumerate(nodes):
            for b in nodes[:k]:
                apart = a["x"] + a["w"] <= b["x"] or b["x"] + b["w"] <= a["x"]
                assert apart or a["y"] + a["h"] <= b["y"] or b["y"] + b["h"] <= a["y"]


def test_buffers_are_those_of_the_plan(captured):
    for graph in data_of(captured)["graphs"]:
        memory = graph["memory"]
        for slot in memory["slots"]:
            assert 0 <= slot["first"] <= slot["last"] < len(memory["steps"])
            assert slot["offset"] + slot["bytes"] <= memory["arenas"][slot["device"]]
        assert memory["peak"] <= sum(memory["arenas"].values())


def test_bytes_in_use_at_once():
    assert most_live([("cpu", 0, 1, 0, 64), ("cpu", 1, 2, 0, 64)]) == 64  # in place
    assert most_live([("cpu", 0, 1, 0, 64), ("cpu", 1, 2, 32, 64), ("cuda", 1, 1, 0, 8)]) == 104
    assert most_live([("cpu", 0, 0, 0, 64), ("cpu", 1, 2, 64, 64)]) == 64


def test_the_page_is_one_file_that_reaches_no_network(captured):
    page = html_page(data_of(captured), HOSTILE)
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    assert page.count("<script") == 2 and page.count("</script>") == 2 and page.count("<style") == 1
    assert not re.search(r"<(link|img|iframe|base|form|object)\b", page)
    ours = html_page({}, "")
    assert re.findall(r"https?://[\w./]+", ours) == ["http://www.w3.org/2000/svg"]  # a name, not an address


def test_no_script_makes_elements_of_text():
    folder = ROOT / "mlirc/report/page"
    assert sorted(p.name for p in folder.iterdir()) == sorted((*STYLES, *SCRIPTS))
    makes = r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\b|new Function|fetch\(|XMLHttp|import\("
    for path in folder.glob("*.js"):
        assert not re.search(makes, path.read_text()), path


def test_the_wheel_has_the_files_of_the_page():
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"][
        "mlirc.report"
    ]
    assert all(any(fnmatch.fnmatch(f"page/{name}", p) for p in patterns) for name in (*STYLES, *SCRIPTS))


@settings(max_examples=30)
@given(st.text(max_size=40))
def test_any_text_stays_text(text):
    page = html_page({"x": [text, {text: HOSTILE}]}, text)
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)[1]
    assert json.loads(found) == {"x": [text, {text: HOSTILE}]}
    assert page.count("<script") == 2 and page.count("</script>") == 2


def with_candidates(captured, folder, lines):
    for path in captured.glob("000*"):
        (folder / path.name).write_bytes(path.read_bytes())
    record = json.loads((folder / "000.json").read_text())
    (folder / "000.json").write_text(json.dumps(record | {"fusion": "000_forward_fusion.jsonl"}))
    (folder / "000_forward_fusion.jsonl").write_text(lines)


GROUP = {
    "name": "relu",
    "members": ["relu@model.py:5"],
    "ops": ["relu"],
    "lines": ["model.py:5"],
    "read": 512,
    "written": 512,
}
PAIR = {
    "record": "candidate", "number": 0, "pass": "fuse-elementwise", "action": "fuse", "function": "graph", "first": GROUP,
    "second": GROUP | {"name": "softmax"}, "taken": True, "rule": "ONE SPACE", "kind": "", "limits": {}, "bytes_saved": 1024,
    "recomputed": None, "estimated_gain": 120.0, "typical": False, "rewrite": 0, "line": "model.py:5", "measured": None,
}  # fmt: skip


def test_pairs_that_fusion_looked_at(captured, tmp_path):
    measured = PAIR | {"number": 1, "measured": {"gain": -30.0}, "second": GROUP | {"name": "tanh"}}
    failed = PAIR | {"number": 2, "measured": {"failed": "no"}}
    records = [{"record": "run", "format": 1}, PAIR, measured, failed]
    with_candidates(captured, tmp_path, "".join(json.dumps(x) + "\n" for x in records))
    (graph,) = data_of(tmp_path)["graphs"]
    assert graph["candidates"] == records[1:] and not graph["notes"]
    with_candidates(captured, tmp_path, "{")
    (graph,) = data_of(tmp_path)["graphs"]
    assert graph["candidates"] == [] and graph["notes"]


SPOILED = {
    "no module": ("*_import.mlir", b"func.func @graph("),
    "bytes": ("*_fuse.mlir", b"\xff\xfe\0"),
    "nothing": ("*_plan.mlir", b""),
    "deep": ("*_plan.mlir", b"module attributes {x = " + b"[" * 5000),
    "another graph": ("*_lower.mlir", b"module {}"),
    "no tensors": ("*_inputs.safetensors", b"\0" * 20),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_part_that_cannot_be_read_is_left_out(what, captured, tmp_path):
    """And said; the rest is there."""
    pattern, content = SPOILED[what]
    for path in captured.glob("000*"):
        (tmp_path / path.name).write_bytes(content if fnmatch.fnmatch(path.name, pattern) else path.read_bytes())
    (graph,) = data_of(tmp_path)["graphs"]
    assert graph["ledger"] and graph["source"]
    assert all("\n" not in note for note in graph["notes"])
    if what in ("no module", "bytes", "deep"):
        assert graph["notes"]


def test_files_that_are_missing_are_named(captured, tmp_path):
    for path in captured.iterdir():
        (tmp_path / path.name).write_bytes(path.read_bytes())
    gone = ["000.json", "001_forward_3_plan.mlir"] if (captured / "001_forward_3_plan.mlir").exists() else ["000.json"]
    record = json.loads((captured / "002.json").read_text())
    gone.append(record["stages"]["import"])
    for name in gone:
        (tmp_path / name).unlink()
    assert set(read_capture(tmp_path).missing) == set(gone) and not read_capture(captured).missing
    with context():
        (graph,) = [g for g in report_data(read_capture(tmp_path), {}, 0)["graphs"] if gone[-1].startswith(g["name"])]
    assert f"{gone[-1]} is missing" in graph["notes"]
    with pytest.raises(CapturesError, match=r"files are missing: 000\.json, "):
        captured_graphs(str(tmp_path))


def test_records_of_any_shape(captured, tmp_path):
    """Whatever JSON a record has: one line, or a page."""
    whole = json.loads((captured / "000.json").read_text())
    for key in whole:
        for wrong in (None, 3, "x", [1], {"a": 1}, [[1]], {"ledger": 3, "kernels": [3], "aten": {"x": 1}}):
            (tmp_path / "000.json").write_text(json.dumps(whole | {key: wrong}))
            try:
                found = read_capture(tmp_path)
            except ValueError:
                continue
            with context():
                html_page(report_data(found, {}), "x")


@pytest.mark.full
def test_a_page_of_five_thousand_ops_is_made_within_ten_seconds(tmp_path):
    def layers(x, w):
        for _ in range(500):
            y = (x @ w).relu()
            x = x + (y * 0.5).tanh().softmax(-1) * y.sum(-1, keepdim=True).sigmoid()
        return x

    with torch.no_grad():
        options = {"dump": tmp_path, "cache": False, "fallback": "error"}
        torch.compile(layers, backend="mlirc", options=options)(torch.randn(8, 16), torch.randn(16, 16))
    started = sum(os.times()[:4])  # of this process, and of those that it made
    with context():
        data = report_data(read_capture(tmp_path), {})
        page = html_page(data, "large")
    assert sum(os.times()[:4]) - started < 10
    assert any(x["language"] == "assembly" for x in data["graphs"][0]["code"])
    assert data["graphs"][0]["stages"][0]["text"].count("mlirc.") >= 5000 and len(page) < 40_000_000


X = 'tensor<8x32xf32, {device = "cuda:0"}>'
ON_A_GPU = f"""
func.func @graph(%x: {X}) -> {X} {{
  %0 = "mlirc.exp"(%x) : ({X}) -> {X}
  return %0 : {X}
}}"""


def test_code_for_a_gpu_that_is_not_here(tmp_path):
    (tmp_path / "given.mlir").write_text(ON_A_GPU)
    good("opt", tmp_path / "given.mlir", "--target", "gpu-h100", "--pipeline", "gpu", "-o", tmp_path / "lower.mlir")
    record = {"format": 1, "number": 0, "kind": "inference", "stages": {"lower": "lower.mlir"}}
    (tmp_path / "000.json").write_text(json.dumps(record))
    (graph,) = data_of(tmp_path)["graphs"]
    texts = {x["language"]: x["text"] for x in graph["code"] if x["label"] == "exp"}
    assert "def kernel_0_exp(" in texts["python"] and ".target sm_90" in texts["ptx"], graph["notes"]


def test_code_that_llvm_crashes_on_is_left_out(captured, monkeypatch):
    monkeypatch.setattr("mlirc.codegen.llvm.machine_code.assembly", lambda *given: os.abort())
    for graph in data_of(captured)["graphs"]:
        assert "code: SIGABRT" in graph["notes"] and {x["language"] for x in graph["code"]} == {"mlir"}


def test_code_that_takes_too_long_is_left_out(captured):
    with context():
        data = report_data(read_capture(captured), {}, seconds=0)
    assert {x["language"] for graph in data["graphs"] for x in graph["code"]} == {"mlir"}
    assert all(any("--seconds gives more" in note for note in graph["notes"]) for graph in data["graphs"])


def test_the_command(captured, tmp_path):
    out = tmp_path / "report.html"
    done = good("report", captured, "-o", out)
    assert "graphs" in done.stderr and out.read_text().startswith("<!doctype html>")
    assert "no capture" in bad("report", tmp_path)
    assert "nowhere" in bad("report", tmp_path / "nowhere", code=2)
    assert "no DIR" in bad("report", code=2)
    (tmp_path / "rows.json").write_text('{"graphs": [{"name": 3}]}')
    assert "rows" in bad("report", captured, "--profile", tmp_path / "rows.json")


OPS = st.lists(st.sampled_from("abcd"), max_size=30)


def texts(letters):
    return [OpText(f"%{k} = {c}", f"%0 = {c}", (f"%{k - 1}",) if k else (), (f"%{k}",)) for k, c in enumerate(letters)]


@settings(max_examples=100)
@given(OPS, OPS)
def test_changes_are_a_difference(before, after):
    found = op_changes(texts(before), texts(after))
    assert [op.key for sign, op in found if sign != "-"] == [op.key for op in texts(after)]
    assert [op.key for sign, op in found if sign != "+"] == [op.key for op in texts(before)]


@given(OPS)
def test_what_is_equal_stays(ops):
    assert all(sign == " " for sign, _ in op_changes(texts(ops), texts(ops)))


def test_rewrites_in_place_are_seen_as_such():
    layers = [c for k in range(500) for c in ("a", "b", f"c{k % 7}", "d")]
    before, after = texts(layers), texts([c for c in layers if c != "d"])
    found = op_changes(before, after)
    assert [sign for sign, _ in found].count("-") == 500 and "+" not in [sign for sign, _ in found]
