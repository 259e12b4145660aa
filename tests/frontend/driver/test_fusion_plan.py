"""options={"fusion_plan": FILE}: carried out, part of the disk cache's key, and an error where it does not fit."""

import json

import pytest
import torch

import mlirc


def function(x):
    y = torch.exp(x)
    return torch.softmax(y, -1)


def pairs_of(x, **options):
    with torch.no_grad():
        (graph,) = mlirc.explain(function, candidates=True, options={"fallback": "error", **options})(x).data["graphs"]
    return graph


def plan_of(pair, decision, kind=None):
    line = {"decision": decision, "pass": pair["pass"], "action": pair["action"]}
    line |= {side: pair[side]["members"] for side in ("first", "second")}
    return json.dumps({"format": 1, "graphs": [{"kind": kind, "pairs": [line]}]})


@pytest.fixture
def plan(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "plan.json"


def test_a_plan_is_carried_out_and_cached_by_its_content(plan):
    x = torch.randn(4, 16)
    fused = pairs_of(x)
    taken = next(p for p in fused["candidates"] if p["taken"])
    plan.write_text(plan_of(taken, "forbid"))
    graph = pairs_of(x, fusion_plan=str(plan))
    assert len(graph["kernels"]) > len(fused["kernels"])
    assert any(p["rule"] == "PLAN" and p["kind"] == "plan" for p in graph["candidates"])

    def kernels(**options):
        with torch.no_grad():
            compiled = torch.compile(function, backend="mlirc", options={"fallback": "error", **options})
            torch.testing.assert_close(compiled(x), function(x))
            (graph,) = mlirc.explain(function, options={"fallback": "error", **options})(x).data["graphs"]
        return len(graph["kernels"]), graph["key"], graph["cache"]

    torch.compiler.reset()
    without, within = kernels(), kernels(fusion_plan=plan)
    assert (without[0], within[0]) == (len(fused["kernels"]), len(graph["kernels"]))
    assert without[1] != within[1] and without[2] == within[2] == "hit"
    plan.write_text(plan_of(taken, "taken"))
    torch.compiler.reset()
    again = kernels(fusion_plan=plan)
    assert again[0] == without[0] and again[1] not in (without[1], within[1])


@pytest.mark.parametrize("fallback", ["error", "eager"])
def test_a_plan_that_does_not_fit_is_an_error(plan, fallback):
    """A wrong option never runs in eager silently."""
    x = torch.randn(4, 16)
    taken = next(p for p in pairs_of(x)["candidates"] if p["taken"])
    taken["first"]["members"] = ["gelu@model.py:77"]
    plan.write_text(plan_of(taken, "forbid"))
    options = {"fusion_plan": str(plan), "fallback": fallback}
    with torch.no_grad(), pytest.raises(Exception, match=r"entry 0 .*@graph has no kernel 'gelu@model.py:77'"):
        torch.compile(function, backend="mlirc", options=options)(x)


def test_a_plan_of_another_kind_is_of_another_graph(plan):
    x = torch.randn(4, 16)
    taken = next(p for p in pairs_of(x)["candidates"] if p["taken"])
    taken["first"]["members"] = ["gelu@model.py:77"]
    plan.write_text(plan_of(taken, "forbid", "backward"))
    assert pairs_of(x, fusion_plan=plan)["candidates"]


@pytest.mark.parametrize(
    ("value", "said"), [(3, "takes the name of a file"), ("none.json", "No such file"), ("", "No such")]
)
def test_the_option_is_checked_before_anything_is_traced(value, said):
    torch.compiler.reset()
    with pytest.raises(Exception, match=f"fusion_plan.*{said}"):
        torch.compile(function, backend="mlirc", options={"fusion_plan": value})(torch.randn(2))
