"""What a dump keeps, as execution/captures.py reads it: graphs of Dynamo's and ATen's, inputs, results, guards, reasons."""

import json
import os
import shutil

import pytest
import torch
from safetensors.torch import load_file

from mlirc.execution.captures import CaptureError, read_capture
from tests.commands.command import good, run
from tests.forked_programs import python

PROGRAM = """
import torch

def f(x, w):
    y = x @ w
    print("in between")
    return torch.nn.functional.gelu(y) + torch.tensor([1.0, 2.0, 3.0])

c = torch.compile(f, backend="mlirc")
w = torch.ones(4, 3, requires_grad=True)
c(torch.ones(2, 4), w).sum().backward()
c(torch.ones(5, 4), w).sum().backward()
"""


@pytest.fixture(scope="module")
def captured(tmp_path_factory):
    """By MLIRC_DUMP, of a program with a graph break, called with two sizes."""
    folder = tmp_path_factory.mktemp("captured")
    (folder / "program.py").write_text(PROGRAM)
    environment = os.environ | {"MLIRC_DUMP": str(folder / "dump")}
    done = python(folder / "program.py", env=environment)
    assert (done.returncode, done.stdout, done.stderr) == (0, "in between\n" * 2, "")
    return read_capture(folder / "dump")


def test_graphs_know_where_they_come_from(captured):
    assert [(g.name, g.dynamo) for g in captured.graphs] == [
        *(("000_forward", 0), ("001_forward", 1), ("002_backward", 1), ("003_backward", 0)),
        *(("004_forward", 2), ("005_backward", 2), ("006_forward", 3), ("007_backward", 3)),
    ]
    assert [f.record["aten"] for f in captured.frames] == [[0, 3], [1, 2], [4, 5], [6, 7]]
    for graph in captured.graphs:
        assert list(graph.stages) == ["import", "simplify", "fuse", "plan", "lower"]
        assert "torch.ops.aten." in graph.aten.read_text()
    source = captured.graphs[0].record["source"]
    ((place, line),) = source.items()
    assert place.endswith("program.py:5") and line["text"] == "y = x @ w" and line["function"] == "f"
    assert ["mm", "aten.mm.default"] in line["aten"]


def test_frames_have_guards_and_reasons(captured):
    first, rest, again, _ = captured.frames
    assert first.record["frame"]["function"] == "f" and first.record["compile_id"] == "0/0"
    assert rest.record["frame"]["function"].startswith("torch_dynamo_resume_in_f")
    assert "print" in first.record["ended_by"]["reason"] and first.record["ended_by"]["graph_break"]
    assert not rest.record["ended_by"]["graph_break"]
    assert first.record["recompiled"] is None and "size mismatch at index 0" in again.record["recompiled"]
    assert "size=[2, 4]" in first.guards.read_text() and "size=[None, 4]" in again.guards.read_text()
    assert "matmul" in first.graph.read_text() or "@" in first.graph.read_text()


def test_a_module_of_torch_nn_has_the_line_that_calls_it(tmp_path):
    """Its frame is PyTorch's own."""
    module = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    torch.compile(module, backend="mlirc", options={"dump": str(tmp_path), "cache": False})(torch.ones(2, 3))
    (frame,) = read_capture(tmp_path).frames
    assert frame.record["frame"]["file"] == __file__
    assert frame.record["frame"]["function"] == "call in test_a_module_of_torch_nn_has_the_line_that_calls_it"


def test_inputs_and_results_are_those_of_the_first_call(captured):
    graph = captured.graphs[1]
    inputs, results = load_file(graph.inputs), load_file(graph.results)
    assert torch.equal(inputs["arg0"], torch.full((2, 3), 4.0))
    assert torch.equal(inputs["arg1"], torch.tensor([1.0, 2.0, 3.0])), "a tensor of the graph is an argument too"
    expected = torch.nn.functional.gelu(inputs["arg0"]) + inputs["arg1"]
    torch.testing.assert_close(results["result0"], expected)


def test_mlirc_run_gives_what_the_call_gave(captured, tmp_path):
    for graph in captured.graphs:
        for path in graph.stages.values():
            good("run", path, "--inputs", graph.inputs, "--pipeline", "cpu", "-o", tmp_path / "out.safetensors")
            got, want = load_file(tmp_path / "out.safetensors"), load_file(graph.results)
            for name, x in want.items():
                assert torch.equal(got[name], x), (path, name)


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("000.json", "{", "000.json: Expecting"),
        ("000.json", "[" * 100_000, "000.json: "),
        ("000.json", "{}", "of format None; this mlirc reads format 1"),
        ("000.json", '{"format": 2}', "of format 2; this mlirc reads format 1"),
        ("000.json", '{"format": 1}', "000.json: no record of a graph"),
        ("000.json", '{"format": 1, "number": 0, "kind": "forward", "stages": 3}', "'stages' is no object"),
        ("000.json", "", "no capture; `mlirc capture SCRIPT.py"),
        ("x.txt", "", "no capture; `mlirc capture SCRIPT.py"),
    ],
)
def test_a_folder_that_is_no_capture(name, content, says, tmp_path):
    (tmp_path / name).write_text(content)
    with pytest.raises(CaptureError) as error:
        read_capture(tmp_path)
    assert says in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "..", "a\0b", 3, None, "gone.mlir"])
def test_a_record_names_files_beside_it_alone(name, tmp_path):
    record = {"format": 1, "number": 0, "kind": "forward", "stages": {"import": name}, "inputs": name}
    (tmp_path / "000.json").write_text(json.dumps(record))
    (graph,) = read_capture(tmp_path).graphs
    assert graph.stages == {} and graph.inputs is None


@pytest.mark.parametrize("name", [5, ["x"], {"a": 1}, True, "a\nb", "gone.mlir"])
@pytest.mark.parametrize("command", ["report", "profile"])
def test_a_record_edited_by_hand_is_told_of_in_one_line(command, name, captured, tmp_path):
    shutil.copytree(captured.folder, tmp_path / "edited")
    path = tmp_path / "edited" / f"{captured.graphs[0].number:03d}.json"
    record = json.loads(path.read_text())
    path.write_text(json.dumps({**record, "aten": name, "inputs": name}))
    output = ["-o", tmp_path / "page.html", "--seconds", "0"] if command == "report" else []
    done = run(command, tmp_path / "edited", *output)
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    if command == "report":
        shown = name if name == "gone.mlir" else json.dumps(name)
        assert f"the page is without them: {shown}, {shown}\n" in done.stderr


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(CaptureError, match="No such file"):
        read_capture(tmp_path / "x")
