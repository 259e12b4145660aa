"""Kernels of ATen that a user has replaced are what runs, whichever process compiled first, and are in no other process's cache."""

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from mlirc.codegen.aten.overridden_kernels import computes_otherwise, overridden, overridden_anywhere
from tests.forked_programs import python

pytestmark = pytest.mark.thinned

ROOT = Path(__file__).parents[3]

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
    done = python("-c", PROGRAM, *arguments, env=environment | {"PYTHONPATH": str(ROOT)})
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


PLACES = torch.tensor([0, 1, 2, 3, 4, 5])
embedded_gradient = lambda x, places: torch.ops.aten.embedding_dense_backward(x, places, 6, -1, False) + 1
int8_matmul = torch.ops.aten._weight_int8pack_mm


def attended(x):
    q = x.view(1, 1, 6, 6)
    return F.scaled_dot_product_attention(q, q, q, is_causal=True) + 1


def convolved_gradient(x):
    image, weight = x.view(1, 1, 6, 6), x[:3, :3][None, None]
    steps = [1, 1], [1, 1], [1, 1], False, [0, 0], 1, [True, True, False]
    return torch.ops.aten.convolution_backward(image, image, weight, [0], *steps)[0] + 1


@pytest.fixture
def library():
    made = torch.library.Library("aten", "IMPL")
    yield made
    made._destroy()
    torch._dynamo.reset()


@pytest.mark.thinned(5)
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
        # random numbers
        (
            "native_dropout",
            lambda x, p, train: (torch.mul(x, 5), x > 0),
            lambda x: torch.native_dropout(x, 0.5, True)[0] + 1,
        ),
        ("bernoulli.p", lambda x, p, generator=None: torch.mul(x, 5), lambda x: torch.bernoulli(x, 0.5) + 1),
        ("rand", lambda size, **__: torch.ones(size) * 5, lambda x: torch.rand(6, 6) + x),
        ("multinomial", lambda x, *_, **__: torch.mul(x, 5).long(), lambda x: torch.multinomial(x.abs(), 6) + 1),
        # calls for which passes have code of their own
        (
            "convolution",
            lambda x, *_: x.clone(),
            lambda x: F.conv2d(x.view(1, 1, 6, 6), x[:3, :3][None, None], padding=1) + 1,
        ),
        ("convolution_backward", lambda dy, x, w, *_: (dy * 2, w * 3, None), convolved_gradient),
        ("embedding_dense_backward", lambda dy, *_: torch.mul(dy, 5), lambda x: embedded_gradient(x, PLACES)),
        ("index_add", lambda x, *_, **__: torch.mul(x, 5), lambda x: (x * 2).index_add(0, PLACES, x) + 1),
        ("index_copy", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).index_copy(0, PLACES, x) + 1),
        ("index_fill.int_Scalar", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).index_fill(0, PLACES, 3.0) + 1),
        ("index_put", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).index_put((PLACES,), x, accumulate=True) + 1),
        ("masked_scatter", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).masked_scatter(x > 0, x) + 1),
        ("scatter.src", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).scatter(0, PLACES[None], x) + 1),
        ("scatter.value", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).scatter(0, PLACES[None], 3.0) + 1),
        ("scatter_add", lambda x, *_: torch.mul(x, 5), lambda x: (x * 2).scatter_add(0, PLACES[None], x) + 1),
        (
            "_weight_int8pack_mm",
            lambda x, *_: torch.mul(x, 5),
            lambda x: int8_matmul(x, x.mul(9).to(torch.int8), x[0]) + 1,
        ),
        (
            "_scaled_dot_product_flash_attention_for_cpu",
            lambda q, *_, **__: (torch.mul(q, 5), q[..., 0].clone()),
            attended,
        ),
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


# ---- after a graph was compiled


def silu_calls(x):
    return torch.nn.functional.silu(x).sin() + 1


def replaced(x):
    return torch.mul(x, 3)


def step(run, x):
    x = x.detach().requires_grad_(x.requires_grad)
    result = run(x)
    if x.requires_grad:
        result.sum().backward()
    return result.detach(), x.grad


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("key", ["CPU", "AutogradCPU"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_overridden_later_runs_at_the_next_call(key, training, dynamic):
    """And what is taken back, by hand or with the library object, runs no more."""
    import gc

    from mlirc.frontend import statistics

    torch._dynamo.reset()
    x = torch.randn(6, 6, requires_grad=training)
    plain = step(silu_calls, x)
    compiled = torch.compile(silu_calls, backend="mlirc", dynamic=dynamic)
    torch.testing.assert_close(step(compiled, x), plain)
    for number, drop in enumerate((torch.library.Library._destroy, lambda library: None)):
        made = torch.library.Library("aten", "IMPL")
        statistics.reset()
        torch.testing.assert_close(step(compiled, x), plain)
        made.impl("silu", replaced, key)
        expected = step(silu_calls, x)
        for _ in range(2):
            found = step(compiled, x)
            torch.testing.assert_close(found[0], expected[0])
            if (
                key == "CPU"
            ):  # a kernel above autograd has been differentiated already when a graph is compiled, in aot_eager too
                torch.testing.assert_close(found[1], expected[1])
        assert sum(statistics.fallbacks.values()) >= 1 and "aten::silu" in next(iter(statistics.fallbacks)), number
        drop(made)
        del made
        gc.collect()
        counted = sum(statistics.fallbacks.values())
        for _ in range(2):
            torch.testing.assert_close(step(compiled, x), plain)
        assert sum(statistics.fallbacks.values()) == counted


@pytest.mark.filterwarnings("ignore")
def test_another_operator_that_is_overridden_later_is_of_no_matter(library):
    from mlirc.frontend import statistics

    x = torch.randn(6, 6)
    compiled = torch.compile(silu_calls, backend="mlirc", options={"fallback": "error"})
    expected = compiled(x)
    library.impl("hardswish", replaced, "CPU")
    library.impl("silu", lambda x: torch.empty_like(x), "Meta")
    statistics.reset()
    torch.testing.assert_close(compiled(x), expected)
    assert not statistics.fallbacks


@pytest.mark.filterwarnings("ignore")
def test_one_that_is_overridden_twice(library):
    """Compiled in between: the call goes to whatever kernel there is."""
    library.impl("silu", replaced, "CPU")
    torch._dynamo.reset()
    x = torch.randn(6, 6)
    compiled = torch.compile(silu_calls, backend="mlirc")
    torch.testing.assert_close(compiled(x), silu_calls(x))
    library.impl("silu", lambda x: torch.mul(x, 5), "CPU")
    torch.testing.assert_close(compiled(x), (x * 5).sin() + 1)
    library._destroy()
    torch.testing.assert_close(compiled(x), silu_calls(x))


@pytest.mark.filterwarnings("ignore")
def test_one_that_is_overridden_later_out_of_the_disk_cache(library, tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    x = torch.randn(6, 6, requires_grad=True)
    for _ in range(2):
        torch._dynamo.reset()
        compiled = torch.compile(silu_calls, backend="mlirc")
        plain = step(compiled, x)
        torch.testing.assert_close(plain, step(silu_calls, x))
    library.impl("silu", replaced, "CPU")
    torch.testing.assert_close(step(compiled, x)[0], step(silu_calls, x)[0])
    library._destroy()
    torch.testing.assert_close(step(compiled, x), plain)
