"""What torch.compile takes beside a function: mlirc.options(), `mode`, `dynamic`, `disable`, stances, functions left out or taken whole."""

import json
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import mlirc
from mlirc.frontend import options, statistics
from mlirc.frontend.errors import OptionError
from mlirc.frontend.options import read_options

README = Path(__file__).parents[3] / "README.md"
X = torch.linspace(-2, 2, 24).reshape(4, 6)


def program(x):
    return torch.relu(x.sin() * 2).sum(-1)


@pytest.fixture(autouse=True)
def fresh():
    statistics.reset()
    yield
    torch._dynamo.reset()


def graphs() -> list[str]:
    """How each graph that was compiled runs: its kernels, or why it does not."""
    return [graph.fallback or f"{len(graph.kernels)} kernels" for graph in statistics.graphs]


def test_the_options_are_data_and_text():
    found = mlirc.options()
    json.dumps(found)
    text = str(found)
    for one in found:
        assert set(one) == {"name", "takes", "values", "default", "help"} and one["help"] and one["takes"]
        assert re.search(rf"^{one['name']}\b", text, re.MULTILINE)
    assert {one["name"]: one["default"] for one in found}["fallback"] == "eager"


def test_each_default_and_each_value_is_taken():
    for one in mlirc.options():
        for value in one["values"] or [one["default"]]:
            kept = read_options({one["name"]: value})
            if one["name"] not in ("passes", "insert", "omit"):
                assert getattr(kept, one["name"]) == value


def test_the_readme_tells_of_each_option():
    table = README.read_text().split("## Options")[1].split("\n* ")[0]
    for one in mlirc.options():
        assert f"`{one['name']}`" in table


@pytest.mark.parametrize(
    "chosen",
    [
        {"mode": "reduce-overhead"},
        pytest.param({"options": {"mode": "max-autotune", "fallback": "error"}}, marks=pytest.mark.full),
    ],
)
def test_a_mode(chosen):
    torch.testing.assert_close(torch.compile(program, backend="mlirc", **chosen)(X), program(X))
    assert graphs() == ["1 kernels"]


def test_pytorch_takes_no_mode_beside_options():
    with pytest.raises(RuntimeError, match="mode or options"):
        torch.compile(program, backend="mlirc", mode="max-autotune", options={"fallback": "error"})


@pytest.mark.parametrize(("dynamic", "compiled"), [(True, 1), pytest.param(None, 2, marks=pytest.mark.full)])
def test_dynamic(dynamic, compiled):
    run = torch.compile(program, backend="mlirc", dynamic=dynamic)
    for n in (3, 5, 7):
        x = torch.randn(n, 6)
        torch.testing.assert_close(run(x), program(x))
    assert graphs() == ["1 kernels"] * compiled


@pytest.mark.full
def test_a_dimension_that_is_marked_is_dynamic():
    run = torch.compile(program, backend="mlirc")
    for n in (3, 5):
        x = torch.randn(n, 6)
        torch._dynamo.mark_dynamic(x, 0)
        torch.testing.assert_close(run(x), program(x))
    assert graphs() == ["1 kernels"]


def test_disable():
    assert torch.equal(torch.compile(program, backend="mlirc", disable=True)(X), program(X)) and not graphs()


def test_stances():
    run = torch.compile(program, backend="mlirc")
    with torch.compiler.set_stance("force_eager"):
        assert torch.equal(run(X), program(X)) and not graphs()
    run(X)
    with torch.compiler.set_stance("fail_on_recompile"):
        run(X)
        with pytest.raises(RuntimeError, match="recompile"):
            run(torch.randn(2, 3, 4))
    with torch.compiler.set_stance("eager_on_recompile"):
        other = torch.randn(2, 3, 4)
        assert torch.equal(run(other), program(other))
    assert graphs() == ["1 kernels"]


def test_a_function_that_is_left_out():
    @torch.compiler.disable
    def outside(x):
        return x.numpy().sum() if not torch.compiler.is_compiling() else None

    def fn(x):
        return x.sin() * 2 + outside(x)

    torch.testing.assert_close(torch.compile(fn, backend="mlirc")(X), fn(X))
    assert graphs() == ["1 kernels"] * 2
    (broken,) = mlirc.explain(fn)(X).data["graph_breaks"]
    assert "torch.compiler.disable" in str(broken)


def test_a_function_that_is_taken_whole():
    @torch.compiler.allow_in_graph
    def opaque(x):
        torch._dynamo.graph_break()  # where Dynamo looks inside, it ends the graph
        return x.cos()

    def fn(x):
        return opaque(x) + 1

    torch.testing.assert_close(torch.compile(fn, backend="mlirc", fullgraph=True)(X), fn(X))
    assert graphs() == ["1 kernels"]


@dataclass(frozen=True)
class MoreOptions(options.Options):
    most: int = options.option("a whole number", 3)
    width: int = options.option("what code depends on", 0, changes_code=True)


def test_a_whole_number_is_checked(monkeypatch):
    monkeypatch.setattr(options, "Options", MoreOptions)
    assert [vars(read_options(given))["most"] for given in ({}, {"most": 0})] == [3, 0]
    for wrong in (-1, True, 1.5, "2"):
        with pytest.raises(OptionError, match=r"'most' takes a whole number of at least 0"):
            read_options({"most": wrong})


def test_what_changes_code_is_in_the_key_of_the_disk_cache(monkeypatch, tmp_path):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(options, "Options", MoreOptions)
    keys = {}
    for name, value in (("width", 1), ("width", 2), ("most", 1), ("most", 2), ("freeze", True)):
        torch._dynamo.reset()
        statistics.reset()
        torch.compile(program, backend="mlirc", options={"fallback": "error", name: value})(X)
        keys[name, value] = statistics.graphs[0].key
    assert all(keys.values())
    assert len({keys["width", 1], keys["width", 2], keys["most", 1], keys["freeze", True]}) == 4
    assert keys["most", 1] == keys["most", 2]
