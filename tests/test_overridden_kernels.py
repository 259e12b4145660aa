"""Kernels of ATen that a user has replaced are what runs, whichever process compiled first, and are in no other process's cache."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch

from mlirc.codegen.overridden_kernels import computes_otherwise, overridden, overridden_anywhere

ROOT = Path(__file__).parent.parent

PROGRAM = """
import warnings; warnings.simplefilter("ignore")
import sys
import torch
import torch.nn.functional as F
from torch._C import DispatchKey
import mlirc

name, key, how, training = sys.argv[1:5]
functions = {
    "silu": lambda x: torch.sigmoid(x) * 3 + x,
    "add.Tensor": lambda x, y, alpha=1: torch.sub(x, y) * 2,
    "linear": lambda x, w, b=None: (x @ w.t()) * 5,
    "relu": lambda x: x.abs(),
    "permute": lambda x, dims: x.clone(),
    "mm": lambda x, y: torch.matmul(x.unsqueeze(0) * 2, y).squeeze(0),
}
packet = name.partition(".")[0]
overload = getattr(getattr(torch.ops.aten, packet), name.partition(".")[2] or "default")

def override():
    if how == "library":
        global library
        library = torch.library.Library("aten", "IMPL")
        library.impl(name, functions[name], key)
    elif how == "decorator":
        torch.library.impl("aten::" + name, key)(functions[name])

def run(x, w):
    return {
        "silu": lambda: F.silu(x) + 1,
        "add.Tensor": lambda: (x + w) * 2,
        "linear": lambda: F.linear(x, w, w[0]) + 1,
        "relu": lambda: torch.relu(x) * 2,
        "permute": lambda: x.permute(1, 0) * 2,
        "mm": lambda: torch.mm(x, w).sin(),
    }[name]()

if how != "none":
    override()
torch.manual_seed(0)
x = torch.randn(8, 8, requires_grad=training == "True")
w = torch.randn(8, 8)
expected = run(x, w)
compiled = torch.compile(run, backend="mlirc", options={"fallback": "error"})
with torch.enable_grad() if training == "True" else torch.no_grad():
    found = compiled(x, w)
    aot = torch.compile(run, backend="aot_eager")(x, w)
torch.testing.assert_close(found, aot)
torch.testing.assert_close(found, expected)
if training == "True":
    found.sum().backward()
    assert x.grad is not None
print(mlirc.explain(compiled)(x, w).data["graphs"][0]["cache"])
"""


def run(folder, *arguments) -> str:
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "MLIRC_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        env=environment | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@pytest.mark.parametrize(
    "name, key, how, training",
    [
        ("silu", "CPU", "library", "False"),
        pytest.param("silu", "AutogradCPU", "library", "True", marks=pytest.mark.full),
        pytest.param("linear", "CompositeImplicitAutograd", "decorator", "False", marks=pytest.mark.full),
        pytest.param("add.Tensor", "CPU", "decorator", "False", marks=pytest.mark.full),
    ],
)
def test_in_processes_that_share_a_cache(tmp_path, name, key, how, training):
    """Plain, overridden, and plain again: each computes what eager does there."""
    for which in ("none", how, "none"):
        run(tmp_path, name, key, which, training)


@pytest.fixture
def library():
    made = torch.library.Library("aten", "IMPL")
    yield made
    made._destroy()
    torch._dynamo.reset()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "name, function, call",
    [
        ("silu", lambda x: x * 3, lambda x: torch.nn.functional.silu(x) + 1),
        ("relu", lambda x: x.abs(), lambda x: torch.relu(x) * 2),
        ("mm", lambda x, y: x * y, lambda x: torch.mm(x, x) + 1),
        ("permute", lambda x, dims: x.clone(), lambda x: x.permute(1, 0) * 2),
        ("sum.dim_IntList", lambda x, dims, keepdim=False, dtype=None: x[0] * 7, lambda x: x.sum(0) + 1),
        ("_softmax", lambda x, dim, half: x * 0.5, lambda x: torch.softmax(x, -1) + 1),
        ("where.self", lambda c, x, y: torch.mul(x, 9), lambda x: torch.where(x > 0, x, x + 1)),
        ("clone", lambda x, memory_format=None: torch.mul(x, 2), lambda x: x.clone() + 1),
    ],
)
def test_a_kernel_that_computes_otherwise(library, name, function, call):
    """It is called, whatever we have for the operator, and the report says why."""
    import mlirc

    library.impl(name, function, "CPU")
    torch._dynamo.reset()
    x = torch.randn(6, 6)
    with torch.no_grad():
        expected = call(x)
        compiled = torch.compile(call, backend="mlirc", options={"fallback": "error"})
        torch.testing.assert_close(compiled(x), expected)
        graph = mlirc.explain(compiled)(x).data["graphs"][0]
    assert any("not PyTorch's" in why for _, why in graph["aten"].values())
    assert overridden_anywhere().startswith(f"aten.{name}")


def test_pytorchs_own_are_not_foreign():
    """Of every operator of ATen that this PyTorch has."""
    wrong = []
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        found = getattr(torch.ops.aten, packet, None) if namespace == "aten" else None
        target = getattr(found, overload or "default", None)
        if overridden(target):
            wrong.append((name, overridden(target)))
    assert not wrong and not overridden_anywhere()


@pytest.mark.filterwarnings("ignore")
def test_what_is_overridden(library):
    target = torch.ops.aten.hardswish.default
    assert not overridden(target)
    library.impl("hardswish", lambda x: x, "AutogradCPU")
    assert overridden(target) == ["AutogradCPU"] and not computes_otherwise(target)
    library.impl("hardswish", lambda x: x, "CPU")
    assert overridden(target) == ["AutogradCPU", "CPU"] and computes_otherwise(target) == ["CPU"]
