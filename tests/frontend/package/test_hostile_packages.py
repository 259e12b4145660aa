"""Files of models that somebody has made up, behind right hashes: one error in one line, nothing imported, nothing written, no crash."""

import collections
import enum
import hashlib
import json
import random
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

import mlirc
from mlirc.frontend.package.packaged_graph import PackageError
from mlirc.frontend.torch_compat.dynamo.trees import tree_from_text

ODD = [
    None,
    -1,
    2**70,
    "x",
    "",
    [],
    {},
    True,
    1e308,
    "../../etc/passwd",
    "torch",
    [0] * 40,
    "s0//0",
    "[" * 2000,
    {"__enum__": 1, "fqn": "antigravity:x"},
]


class Color(enum.Enum):
    RED = 1


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("saved")
    model = nn.Sequential(nn.Linear(6, 6), nn.ReLU()).eval()
    mlirc.compile(model, (torch.randn(4, 6),), dynamic_shapes=({0: Dim.DYNAMIC},)).save(folder / "m.mlirc")
    with safe_open(folder / "m.mlirc", "pt") as file:
        return file.metadata(), {name: file.get_tensor(name) for name in file.keys()}, folder  # noqa: SIM118


def written(saved, data, change=lambda tensors: None):
    _, tensors, folder = saved
    text, tensors = json.dumps(data), dict(tensors)
    change(tensors)
    save_file(tensors, folder / "made.mlirc", {"mlirc": text, "hash": hashlib.sha256(text.encode()).hexdigest()})
    return folder / "made.mlirc"


def places(data, at=()):
    """All places in a description."""
    yield at
    for key, x in data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ():
        yield from places(x, (*at, key))


def put(data, at, value):
    for key in at[:-1]:
        data = data[key]
    data[at[-1]] = value


def test_any_value_at_any_place(saved):
    """A generator: what is loaded all the same is a description that means something."""
    chance, refused = random.Random(0), 0
    known = [at for at in places(json.loads(saved[0]["mlirc"])) if at]
    for _ in range(250):
        data = json.loads(saved[0]["mlirc"])
        put(data, chance.choice(known), chance.choice(ODD))
        path = written(saved, data)
        try:
            mlirc.load(path)
        except PackageError as error:
            refused += 1
            assert "\n" not in str(error) and str(path) in str(error)
    assert refused > 100 and "antigravity" not in sys.modules


@pytest.mark.parametrize(
    "change",
    [
        lambda tensors: tensors.pop("code:0"),
        lambda tensors: tensors.pop("weight:0.weight"),
        lambda tensors: tensors.update({"weight:0.weight": torch.ones(6, 7)}),
        lambda tensors: tensors.update({"weight:0.weight": torch.ones(6, 6).double()}),
        lambda tensors: tensors.update({"code:0": torch.ones(8)}),
        lambda tensors: tensors.update({"code:0": torch.zeros(0, dtype=torch.uint8)}),
    ],
)
def test_other_tensors(saved, change):
    with pytest.raises(PackageError):
        mlirc.load(written(saved, json.loads(saved[0]["mlirc"]), change))


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"__metadata__": {"mlirc": 3}}',
        b'{"__metadata__": {"mlirc": "{}", "hash": ""}}',
        b'{"x": {"dtype": "F32", "shape": [4294967296, 4294967296], "data_offsets": [0, 4]}}',
        b'{"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 18446744073709551615]}}',
        b'{"__metadata__": ' * 500,
    ],
)
def test_headers(saved, header):
    for told in (len(header), 2**63, 2**40, 0):
        path = saved[2] / "header.mlirc"
        path.write_bytes(told.to_bytes(8, "little") + header + bytes(4))
        with pytest.raises(PackageError) as error:
            mlirc.load(path)
        assert "\n" not in str(error.value)


def tree(context):
    return json.dumps([1, {"type": "builtins.dict", "context": json.dumps(context), "children_spec": []}])


def test_trees_import_nothing(saved, tmp_path, monkeypatch):
    """PyTorch's own reader of trees imports the modules of enums and of factories of defaultdict."""
    (tmp_path / "evil_module.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(str(tmp_path))
    factory = {"default_factory_module": "evil_module", "default_factory_name": "x", "dict_context": []}
    node = {"type": "collections.defaultdict", "context": factory, "children_spec": []}
    system = {"default_factory_module": "os", "default_factory_name": "abort", "dict_context": []}
    for text in (
        tree([{"__enum__": True, "fqn": "evil_module:X", "name": "x"}]),
        json.dumps([1, node]),
        json.dumps([1, node | {"context": system}]),
        json.dumps([1, node | {"context": json.dumps(factory)}]),
    ):
        for place in ("takes", "gives"):
            data = json.loads(saved[0]["mlirc"])
            data["signature"][place] = text
            with pytest.raises(PackageError):
                mlirc.load(written(saved, data))
    assert "evil_module" not in sys.modules


def test_trees_that_are_right():
    trees = torch.utils._pytree
    for x in ({Color.RED: 1}, collections.defaultdict(list, a=2), [(1, {"[x": None})], collections.OrderedDict(b=1)):
        spec = trees.tree_flatten(x)[1]
        assert tree_from_text(trees.treespec_dumps(spec)) == spec


def test_another_target(saved):
    data = json.loads(saved[0]["mlirc"])
    data["graphs"][0]["target"] = "cpu-neon"
    with pytest.raises(PackageError, match="none of which this processor is"):
        mlirc.load(written(saved, data))
