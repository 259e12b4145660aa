"""torch.compile(...).aot_compile: what is saved loads in another process, which traces and compiles nothing."""

import io
import random

import pytest
import torch
from torch import nn
from torch._dynamo.aot_compile import ModelInput

from mlirc.frontend.entry.aot_compile import AheadOfTime
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.package import package_file
from mlirc.frontend.package.packaged_graph import PackageError
from tests.forked_programs import python
from tests.frontend.partition.test_saved_tensor_hooks import HOOKS

pytestmark = pytest.mark.skipif(
    not hasattr(torch._dynamo.config, "enable_aot_compile") or torch.__version__ < "2.13", reason="PyTorch 2.13 has it"
)


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        return self.second(self.first(x).relu()).sin()


def in_place(x, y):
    y.add_(1)
    return (x * y).sin(), x.view(-1), y


def rows(x, w):
    return (x @ w).relu().sum(0) * x.shape[0], w.t()


def compiled(fn, *args, **how):
    with torch._dynamo.config.patch(enable_aot_compile=True):
        made = torch.compile(fn, backend="mlirc", fullgraph=True, **how).aot_compile((args, {}))
    assert isinstance(made._artifacts.compiled_fn, AheadOfTime)
    return made


LOAD = """
import sys, torch
sys.path.insert(0, sys.argv[1])
from tests.frontend.package.test_aot_compile import Network, in_place, rows
torch._dynamo.config.enable_aot_compile = True
folder = sys.argv[2]
torch.set_num_threads(int(sys.argv[3]))  # which Dynamo guards
load = lambda name: torch.compiler.load_compiled_function(open(f"{folder}/{name}", "rb"))
equal = torch.testing.assert_close

a, b = torch.randn(3, 4), torch.randn(3, 4)
other = b.clone()
found, expected = load("in_place")(a, b), in_place(a, other)
equal(found, expected)
equal(b, other)
assert found[1].data_ptr() == a.data_ptr() and found[2] is b

run = load("rows")
for n in (2, 5, 9):
    x, w = torch.randn(n, 6), torch.randn(6, 4, requires_grad=True)
    grads = []
    for f in (run, rows):
        y, t = f(x, w)
        (y.sin().sum() + (t * 3).sum()).backward()
        grads.append(w.grad)
        w.grad = None
    equal(*grads)

torch.manual_seed(0)
model, x = Network(), torch.randn(5, 6)
loaded = torch.compile(model, backend="mlirc", fullgraph=True)
loaded._load_aot_compiled_module(open(f"{folder}/model", "rb").read())
for f in (loaded, model):
    f(x).sin().sum().backward()
    found, grads = grads, [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
equal(found, grads)
assert not {"torch_mlir", "torch._inductor.compile_fx"} & set(sys.modules)
"""


def test_another_process_loads_it(tmp_path, request):
    compiled(in_place, torch.randn(3, 4), torch.randn(3, 4)).save_compiled_function(str(tmp_path / "in_place"))
    given = torch.randn(5, 6), torch.randn(6, 4, requires_grad=True)
    compiled(rows, *given, dynamic=True).save_compiled_function(str(tmp_path / "rows"))
    with torch._dynamo.config.patch(enable_aot_compile=True):
        model = torch.compile(Network(), backend="mlirc", fullgraph=True)
        model._aot_compile([ModelInput((torch.randn(5, 6),), {}, [])])
        model._save_aot_compiled_module(str(tmp_path / "model"))
    given = request.config.rootpath, tmp_path, torch.get_num_threads()
    done = python("-c", LOAD, *given, imported=("torch", "torch._dynamo"))
    assert done.returncode == 0, done.stderr


def test_what_guards_do_not_tell():
    run, x = compiled(in_place, torch.randn(4), torch.randn(4)), torch.randn(8)
    run(x[:4], x[4:])
    with pytest.raises(UnsupportedGraph, match="share memory"):
        run(x[:4], x[2:6])
    with pytest.raises(RuntimeError, match="GuardManager"):
        run(torch.randn(5), torch.randn(5))


def test_what_cannot_be_kept():
    with pytest.raises(UnsupportedGraph, match="aot_compile cannot keep"):
        compiled(lambda x: x + torch.tensor([1.0, 2.0]), torch.randn(2))
    with (
        pytest.raises(UnsupportedGraph, match=r"aot_compile cannot keep .* depend on data"),
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
    ):
        compiled(lambda x: x[x > 0].sin(), torch.randn(9))


def test_damage_is_refused(monkeypatch):
    """A changed bit, or a missing end: within our part, which PyTorch's file has unpickled before."""
    content, chance = compiled(torch.sin, torch.randn(4))._artifacts.compiled_fn.content, random.Random(0)
    for _ in range(60):
        bad = bytearray(content)
        bad[chance.randrange(len(bad))] ^= 1 << chance.randrange(8)
        for changed in (bytes(bad), content[: chance.randrange(len(content))], content + b"\0"):
            with pytest.raises(PackageError) as error:
                AheadOfTime.deserialize_compile_artifacts(changed)
            assert "\n" not in str(error.value)
    told = package_file.made_for() | {"torch": "1.0"}
    monkeypatch.setattr(package_file, "made_for", lambda portable=False: told)
    with pytest.raises(PackageError, match=r"here it is 1\.0"):
        AheadOfTime.deserialize_compile_artifacts(content)


def test_it_can_be_saved_again(tmp_path):
    compiled(torch.sin, torch.randn(4)).save_compiled_function(str(tmp_path / "one"))
    with open(tmp_path / "one", "rb") as file:
        loaded = torch.compiler.load_compiled_function(io.BytesIO(file.read()))
    loaded.save_compiled_function(str(tmp_path / "two"))
    with open(tmp_path / "two", "rb") as file:
        x = torch.randn(4)
        torch.testing.assert_close(torch.compiler.load_compiled_function(file)(x), x.sin())


def test_hooks_of_saved_tensors(tmp_path):
    """What they return is read where it lies."""
    path = tmp_path / "rows"
    x, w = torch.randn(3, 6), torch.randn(6, 4, requires_grad=True)
    compiled(rows, x, w).save_compiled_function(str(path))
    with torch._dynamo.config.patch(enable_aot_compile=True), path.open("rb") as file:
        run = torch.compiler.load_compiled_function(file)
    made = []
    for f in (run, rows):
        with HOOKS["gaps"]():
            y, _ = f(x, w)
        made += torch.autograd.grad(y.sin().sum(), w)
    torch.testing.assert_close(*made)
