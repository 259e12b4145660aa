"""Files of compiled models: they load without tracing, and what is damaged, foreign or for another machine is refused."""

import hashlib
import json
import os
import random
import resource
import subprocess
import sys

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn
from torch.export import Dim

import mlirc
from mlirc.frontend.package.packaged_graph import PackageError


class Network(nn.Module):
    """Weights of every kind: tied, of other strides, parts of others, of no elements, one number, many dtypes, written to."""

    def __init__(self):
        super().__init__()
        self.first, self.conv = nn.Linear(6, 6), nn.Conv2d(2, 4, 3).to(memory_format=torch.channels_last)
        self.second = nn.Linear(6, 6, bias=False)
        self.second.weight = self.first.weight
        whole = torch.randn(4, 12)
        for name, x in {
            "small": torch.randn(6).bfloat16(),
            "mask": torch.rand(6) > 0.5,
            "turned": torch.randn(6, 5).t(),
            "left": whole[:, :6],
            "right": whole[:, 6:],
            "again": whole.view(48),
            "none": torch.empty(0, 3),
            "one": torch.tensor(2),
            "spread": torch.randn(1, 6).expand(3, 6),
            "plane": torch.randn(6, dtype=torch.complex64),
            "calls": torch.zeros(2),
        }.items():
            self.register_buffer(name, x)

    def forward(self, x, image):
        self.calls.add_(1)
        y = self.second(self.first(x).relu()) + self.small.float() + self.mask
        y = y * self.one + self.left.sum() - self.right.sum() + self.again.mean() + self.spread.sum() + self.plane.real
        return y @ self.turned.t(), self.conv(image), self.none.sum() + self.calls


@pytest.fixture(scope="module")
def compiled():
    torch.manual_seed(0)
    model = Network().eval()
    given = torch.randn(4, 6), torch.randn(2, 2, 8, 8)
    return model, given, mlirc.compile(model, given, dynamic_shapes=({0: Dim.DYNAMIC}, None))


@pytest.fixture
def saved(compiled, tmp_path):
    model, given, whole = compiled
    model.calls.zero_()
    whole.save(tmp_path / "model.mlirc")
    return model, given, tmp_path / "model.mlirc"


LOAD = """
import sys, torch, mlirc
model = mlirc.load(sys.argv[1])
slow = [name for name in ("torch._dynamo", "sympy", "torch_mlir") if name in sys.modules]
assert not slow, slow
x, image, y, z, calls = torch.load(sys.argv[2])
for _ in range(2):
    found = model(x, image)
torch.testing.assert_close(found, (y, z, calls + 1), rtol=1e-5, atol=1e-5)
model.weights["first.weight"].zero_()
assert not model.weights["second.weight"].any()
assert "torch_mlir" not in sys.modules
"""


def test_another_process_loads_it_and_traces_nothing(saved, tmp_path):
    model, given, path = saved
    before = path.read_bytes()
    x = torch.randn(7, 6)
    torch.save((x, given[1], *model(x, given[1])), tmp_path / "given.pt")
    subprocess.run([sys.executable, "-c", LOAD, path, tmp_path / "given.pt"], check=True, timeout=300)
    assert path.read_bytes() == before, "a call wrote to the file's pages"
    assert os.listdir(tmp_path).count("model.mlirc") == 1 and len(os.listdir(tmp_path)) == 2


def test_weights_are_as_they_were(saved):
    model, _, path = saved
    found = mlirc.load(path)
    state = dict(model.state_dict())
    for name, x in found.weights.items():
        assert x.dtype == state[name].dtype and x.stride() == state[name].stride()
        torch.testing.assert_close(x, state[name].detach(), rtol=0, atol=0)
    assert found.weights["first.weight"] is found.weights["second.weight"]
    with safe_open(path, "pt") as file:
        torch.testing.assert_close(file.get_tensor("weight:first.weight"), model.first.weight.detach())
    assert "(x, image)" in repr(found)


def test_a_loaded_model_can_be_saved(saved, tmp_path):
    model, given, path = saved
    mlirc.load(path).save(tmp_path / "again.mlirc")
    found = mlirc.load(str(tmp_path / "again.mlirc"))(*given)
    torch.testing.assert_close(found, model(*given), rtol=1e-5, atol=1e-5)


def test_damaged_files_are_refused(saved, tmp_path):
    """A changed byte is noticed wherever it is, and so is an end that is missing."""
    _, given, path = saved
    content, chance, bad = path.read_bytes(), random.Random(0), tmp_path / "bad.mlirc"
    expected = [x.detach() for x in mlirc.load(path)(*given)]
    header = int.from_bytes(content[:8], "little")
    places = [chance.randrange(8) for _ in range(8)]
    places += [chance.randrange(8, 8 + header) for _ in range(60)]
    places += [chance.randrange(8 + header, len(content)) for _ in range(60)]
    for place in places:
        changed = bytearray(content)
        changed[place] ^= 1 << chance.randrange(8)
        bad.write_bytes(changed)
        try:
            found = mlirc.load(bad)
        except PackageError as error:
            assert "\n" not in str(error) and str(bad) in str(error)
        else:  # padding, or a space of the header's
            torch.testing.assert_close([x.detach() for x in found(*given)], expected, rtol=0, atol=0)
    for end in (0, 3, 8, 100, 8 + header, len(content) - 1):
        bad.write_bytes(content[:end])
        with pytest.raises(PackageError):
            mlirc.load(bad)


def test_foreign_files(tmp_path):
    with pytest.raises(FileNotFoundError):
        mlirc.load(tmp_path / "none.mlirc")
    with pytest.raises(IsADirectoryError):
        mlirc.load(tmp_path)
    save_file({"x": torch.ones(3)}, tmp_path / "x.safetensors")
    torch.save(nn.Linear(2, 2), tmp_path / "x.pt")
    for name in ("x.safetensors", "x.pt"):
        with pytest.raises(PackageError, match="not a model"):
            mlirc.load(tmp_path / name)


@pytest.mark.parametrize(
    ("what", "value", "said"),
    [
        ("mlirc", "0.0.1 (0)", "for mlirc 0.0.1"),
        ("torch", "1.0", "for torch 1.0"),
        ("Python", "2.7", "for Python 2.7"),
        ("the kind of processor", "vax", "vax"),
        ("the processor's features", "+sse2,+warp-drive", "warp-drive"),
    ],
)
def test_another_version_or_machine(saved, tmp_path, what, value, said):
    with pytest.raises(PackageError, match=said):
        mlirc.load(edited(saved[2], tmp_path, lambda data: data["made for"].__setitem__(what, value)))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data.__setitem__("format", 1),
        lambda data: data.pop("graphs"),
        lambda data: data.__setitem__("signature", []),
        lambda data: data["weights"].clear(),
        lambda data: data["code"].append("0"),
        lambda data: data["signature"].__setitem__("takes", "[0]"),
        lambda data: data["graphs"][0].__setitem__("inputs", "x"),
        lambda data: data.__setitem__("placeholders", "x"),
    ],
)
def test_descriptions_that_somebody_else_wrote(saved, tmp_path, change):
    """With a right hash."""
    with pytest.raises(PackageError):
        mlirc.load(edited(saved[2], tmp_path, change))


def edited(path, folder, change):
    with safe_open(path, "pt") as file:
        told, tensors = file.metadata(), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    data = json.loads(told["mlirc"])
    change(data)
    text = json.dumps(data)
    save_file(tensors, folder / "edited.mlirc", {"mlirc": text, "hash": hashlib.sha256(text.encode()).hexdigest()})
    return folder / "edited.mlirc"


def test_a_file_that_cannot_be_written_is_left_as_it_was(saved, tmp_path):
    _, _, path = saved
    model, before = mlirc.load(path), path.read_bytes()
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
        with pytest.raises((OSError, PackageError)):
            model.save(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert path.read_bytes() == before and os.listdir(tmp_path) == ["model.mlirc"]
    with pytest.raises((OSError, PackageError)):
        model.save(tmp_path / "no" / "model.mlirc")
