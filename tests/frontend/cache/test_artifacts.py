"""torch.compiler.save_cache_artifacts() takes the disk cache's entries along; load_cache_artifacts() puts them into another folder."""

import os
import random
import warnings

import pytest
import torch
from torch.compiler._cache import CacheArtifactManager

from mlirc.codegen.cache import environment
from mlirc.codegen.cache import folder as cache_folder
from mlirc.frontend.cache import artifacts
from tests.forked_programs import python

PROGRAM = """
import os, sys
import torch
from torch import nn
from mlirc.frontend import statistics

torch.manual_seed(0)
path, state = sys.argv[1:]
{before}
model = nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.Linear(8, 6), nn.LayerNorm(6))
compiled = torch.compile(model, backend="mlirc", options={{"fallback": "error"}})
{after}
x = torch.randn(5, 6)
compiled(x).sin().sum().backward()
found = [p.grad.clone() for p in model.parameters()]
model.zero_grad()
model(x).sin().sum().backward()
torch.testing.assert_close(found, [p.grad for p in model.parameters()])
assert {{graph.cache for graph in statistics.graphs}} == {{state}}, statistics.graphs
assert statistics.graphs[0].tracing == state
if state == "hit":
    assert "torch_mlir" not in sys.modules
else:
    content, info = torch.compiler.save_cache_artifacts()
    assert info.mlirc_artifacts
    open(path, "wb").write(content)
"""
LOAD = """
info = torch.compiler.load_cache_artifacts(open(path, "rb").read())
assert info is not None and info.mlirc_artifacts
"""


def process(before, after, path, state, folder):
    program, env = PROGRAM.format(before=before, after=after), os.environ | {"MLIRC_CACHE_DIR": str(folder)}
    done = python("-c", program, path, state, env=env, imported=("torch", "torch._dynamo"))
    assert done.returncode == 0, done.stderr


def test_another_machine_compiles_nothing(tmp_path):
    path = tmp_path / "artifacts"
    process("", "", path, "miss", tmp_path / "first")
    process("", LOAD, path, "hit", tmp_path / "second")
    # entries that were found are taken along like those that were made
    copy = "content, _ = torch.compiler.save_cache_artifacts(); open(path + '2', 'wb').write(content)"
    process(LOAD, f"import atexit\n@atexit.register\ndef _():\n    {copy}", path, "hit", tmp_path / "third")
    process("import mlirc" + LOAD.replace("open(path", "open(path + '2'"), "", path, "hit", tmp_path / "fourth")


@pytest.fixture
def saved(folder, monkeypatch):
    """Artifacts of one graph, and an empty folder to load them into."""
    artifacts.register()
    with CacheArtifactManager.with_fresh_cache():
        compiled = torch.compile(lambda x: x.sin() + 1, backend="mlirc", options={"fallback": "error"})
        compiled(torch.ones(9))
        content, info = torch.compiler.save_cache_artifacts()
    kinds = {name.partition(".")[2] for name in info.mlirc_artifacts}
    assert {"graph", "trace"} <= kinds
    for path in folder.path.iterdir():
        path.unlink()
    cache_folder.warn.cache_clear()
    return content, folder


def parts(content):
    found = CacheArtifactManager.deserialize(content)
    assert found is not None
    return [(x.key, x.content) for x in found["mlirc"]]


def names(folder):
    return {path.name for path in folder.path.iterdir()}


def said(name, content):
    cache_folder.warn.cache_clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        artifacts.take(name, content)
    return [str(x.message) for x in seen]


def test_entries_come_back_as_they_were(saved):
    content, folder = saved
    assert torch.compiler.load_cache_artifacts(content) is not None
    assert names(folder) == {name for name, _ in parts(content)}


def test_damage_is_refused_in_one_line_wherever_it_is(saved):
    """A changed bit or a missing end behind PyTorch's own checksum."""
    content, folder = saved
    chance = random.Random(0)
    for name, good in parts(content):
        for _ in range(25):
            bad = bytearray(good)
            bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
            for changed in (bytes(bad), good[: chance.randrange(len(good))], good + b"\0"):
                (line,) = said(name, changed)
                assert line.startswith("mlirc ignores an artifact") and "\n" not in line
    assert not names(folder)


@pytest.mark.parametrize(
    "name", ["{}.graph/../../x", "../{}.graph", "{}.", "{}", "", ".graph", "{}.GRAPH", "x.graph", "0" * 64 + ".graph"]
)
def test_names_that_lead_elsewhere(saved, name):
    content, folder = saved
    before = sorted(folder.path.parent.parent.rglob("*"))
    key, good = parts(content)[0]
    assert len(said(name.format(key.partition(".")[0]), good)) == 1
    assert sorted(folder.path.parent.parent.rglob("*")) == before


def test_another_version(saved, monkeypatch):
    content, folder = saved
    monkeypatch.setattr(environment, "build", lambda: "0" * 64)
    with pytest.warns(UserWarning, match="another version of mlirc, PyTorch or Python, or for another processor"):
        assert torch.compiler.load_cache_artifacts(content) is not None
    assert not names(folder)


def test_no_disk_cache(saved, monkeypatch):
    content, _ = saved
    monkeypatch.setenv(cache_folder.VARIABLE, cache_folder.OFF)
    with pytest.warns(UserWarning, match="no disk cache"):
        torch.compiler.load_cache_artifacts(content)
