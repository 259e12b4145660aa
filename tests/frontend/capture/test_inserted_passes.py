"""The options `insert` and `passes`: a pass of a user's in the standard pipeline, at a place that exists."""

from dataclasses import dataclass

import pytest
import torch

import mlirc
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.frontend.errors import OptionError
from mlirc.frontend.options import read_options
from mlirc.lowering.pipeline.pass_manager import passes
from mlirc.lowering.pipeline.pipelines import pipeline as standard


@dataclass(frozen=True)
class SineToCosine:
    """Wrong on purpose, to be seen.

    before:  %0 = "mlirc.sin"(%x)
    after:   %0 = "mlirc.cos"(%x)
    """

    name = "sine-to-cosine"
    takes = "graph"
    times: int = 1

    def run(self, function, ledger):
        from mlirc.dialects.core.bindings import ir

        for op in list(function.regions[0].blocks[0].operations):
            if op.operation.name == "mlirc.sin":
                with ir.InsertionPoint(op), op.location:
                    made = GraphBuilder().mul(GraphBuilder().cos(op.operands[0]), float(self.times))
                op.results[0].replace_all_uses_with(made)
                op.operation.erase()
                ledger.record(self.name, "rewrite", "sin", "ALWAYS", True)


def compiled(insert, **options):
    torch._dynamo.reset()
    given = {"fallback": "error", "passes": [SineToCosine], "insert": insert, **options}
    return torch.compile(lambda x: x.sin() + 1, backend="mlirc", options=given)


X = torch.arange(5.0)


@pytest.mark.parametrize(
    "place", ["after decompose", "before decompose", "after simplify", "before simplify", "before fuse", "after cse#1"]
)
def test_an_inserted_pass_runs(place):
    torch.testing.assert_close(compiled({place: "sine-to-cosine"})(X), X.cos() + 1)


def test_its_options_count_in_the_disk_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    for times in (1, 3, 1):
        found = compiled({"after simplify": f"sine-to-cosine{{times={times}}}"})(X)
        torch.testing.assert_close(found, times * X.cos() + 1)
    torch.testing.assert_close(torch.compile(lambda x: x.sin() + 1, backend="mlirc")(X), X.sin() + 1)


def test_one_insertion_may_name_another():
    found = compiled({"after simplify": "sine-to-cosine", "before sine-to-cosine": "canonicalize"})(X)
    torch.testing.assert_close(found, X.cos() + 1)


def test_dumps_keep_the_names_of_the_stages(tmp_path):
    whole = standard("cpu").replace("canonicalize,", "", 1)
    for k, pipeline in enumerate(("cpu", "strict", "decompose,select-attention,to-kernels", whole)):
        folder = tmp_path / str(k)
        place = "before to-kernels" if k == 2 else "after decompose"
        torch.testing.assert_close(compiled({place: "sine-to-cosine"}, pipeline=pipeline, dump=folder)(X), X.cos() + 1)
        names = {file.stem.split("_", 3)[-1] for file in folder.glob("*.mlir")}
        assert {"simplify", "fuse", "plan", "lower"} <= names


def test_the_ledger_and_explain_have_it():
    options = {"passes": [SineToCosine], "insert": {"after simplify": "sine-to-cosine"}}
    torch._dynamo.reset()
    report = mlirc.explain(lambda x: x.sin() + 1, options=options)(X)
    (graph,) = report.data["graphs"]
    assert any(entry["pass_name"] == "sine-to-cosine" and entry["taken"] for entry in graph["ledger"])


@pytest.mark.parametrize(
    ("insert", "words"),
    [
        ({"after decompos": "cse"}, "'decompos'.*decompose"),
        ({"after xyzzy": "cse"}, "no stage or pass 'xyzzy'.*fold-convolutions.*elide-copies"),
        ({"after canonicalize": "cse"}, "runs .* times.*canonicalize#1"),
        ({"after cse#99": "cse"}, "number them from 1"),
        ({"after fuse": "no-such-pass"}, "no-such-pass"),
        ({"decompose": "cse"}, "after PLACE"),
        ({"after ": "cse"}, "after PLACE"),
        ({"after fuse": ""}, "after PLACE"),
        ({"after fuse": 3}, "after PLACE"),
        ({3: "cse"}, "after PLACE"),
        ("cse", "after PLACE"),
        ({"after fuse": "fuse-elementwise{max-op=3}"}, "max-op"),
    ],
)
def test_a_wrong_insertion_is_an_error(insert, words):
    with pytest.raises(OptionError, match=words):
        read_options({"insert": insert})


def test_a_place_on_gpus_alone_is_an_error_where_a_graph_is_on_the_cpu():
    read_options({"insert": {"after scalars-to-device": "cse"}})
    with pytest.raises(Exception, match="option 'insert', in the pipeline 'cpu': no stage or pass 'scalars-to-device'"):
        compiled({"after scalars-to-device": "cse"})(X)


@pytest.mark.parametrize("given", [SineToCosine, ["sine-to-cosine"], [SineToCosine(3)], [int]])
def test_wrong_passes_are_an_error(given):
    with pytest.raises(OptionError, match="option 'passes'"):
        read_options({"passes": given})


def test_a_name_that_is_taken_is_an_error():
    @dataclass(frozen=True)
    class Other:
        name = "decompose"
        takes = "graph"

        def run(self, function, ledger): ...

    before = passes()["decompose"]
    with pytest.raises(OptionError, match=r"called 'decompose', as .*Decompose is"):
        read_options({"passes": [Other]})
    assert passes()["decompose"] is before
