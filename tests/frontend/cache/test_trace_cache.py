"""AOTAutograd's traces in the disk cache: a hit traces nothing and does the same; what a key cannot tell is not kept, and says so."""

import copy
import json
import math
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch._dynamo.utils import counters
from torch._functorch import aot_autograd
from torch._functorch import config as functorch_config
from torch.nn import functional

import mlirc
from mlirc.codegen.cache import folder as cache_folder
from mlirc.codegen.cache.entry import CacheEntry, pack, unpack
from mlirc.frontend import statistics
from mlirc.frontend.cache import graph_data, graph_text
from mlirc.frontend.errors import NoText
from mlirc.frontend.torch_compat import global_switches
from mlirc.frontend.torch_compat.aot_autograd import trace_metadata, trace_result

STRICT = {"fallback": "error"}
KEPT = torch.__version__.startswith(trace_result.VERSIONS)
pytestmark = pytest.mark.skipif(not KEPT, reason="this version of torch is none whose traces are kept")


@pytest.fixture
def captures(monkeypatch):
    """How often AOTAutograd traced."""
    made = []
    trace = aot_autograd.aot_stage1_graph_capture
    monkeypatch.setattr(aot_autograd, "aot_stage1_graph_capture", lambda *a: (made.append(1), trace(*a))[1])
    return made


def compiled(fn, backend="mlirc", **options):
    torch._dynamo.reset()
    return torch.compile(fn, backend=backend, options=STRICT | options if backend == "mlirc" else None)


def tracing():
    """What came of the lookups of traces since the last call."""
    found = [graph.tracing for graph in statistics.graphs if graph.kind != "backward"]
    statistics.reset()
    return found


def step(fn, *tensors, **options):
    """A call and its backward pass: results, gradients, and the arguments after it."""
    given = [x.detach().clone().requires_grad_(x.requires_grad) for x in tensors]
    results = fn(
        *[x * 1 if x.requires_grad else x for x in given]
    )  # an argument that requires a gradient may be overwritten
    tensors_out = [x for x in results if isinstance(x, torch.Tensor) and x.requires_grad]
    if tensors_out:
        sum(x.sin().sum() for x in tensors_out).backward()
    return [*results], [x.grad for x in given], [x.detach() for x in given]


def check(fn, *tensors):
    """Eager, a miss and what is found next do the same."""
    expected = step(fn, *tensors)
    for _ in range(2):
        torch.testing.assert_close(step(compiled(fn), *tensors), expected)


def inputs(*shapes, grad=True):
    torch.manual_seed(0)
    return [torch.randn(shape, requires_grad=grad) for shape in shapes]


# ---- found


def test_a_hit_traces_neither_forward_nor_backward(folder, captures):
    class Norm(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner, self.norm, self.outer = nn.Linear(8, 12), nn.BatchNorm1d(12), nn.Linear(12, 4)

        def forward(self, x):
            y = self.outer(functional.gelu(self.norm(self.inner(x))))
            return y.square().mean(), y

    torch.manual_seed(0)
    models = [Norm() for _ in range(3)]
    for model in models[1:]:
        model.load_state_dict(models[0].state_dict())
    found = []
    for model, call in zip(models, (models[0], None, None), strict=True):
        call = call or compiled(model)
        for x in inputs((6, 8), (6, 8), grad=False):
            loss, y = call(x)
            loss.backward()
        found.append([loss, y, [p.grad for p in model.parameters()], [*model.buffers()]])
    torch.testing.assert_close(found[1:], [found[0]] * 2)
    assert tracing() == ["miss", "hit"] and len(captures) == 1


@pytest.mark.parametrize("grad", [True, False])
def test_arguments_that_are_overwritten(folder, captures, grad):
    def fn(x, y):
        y.add_(1).mul_(x.detach())
        return x * y, None, 3, y.sum()

    check(fn, *inputs((4, 5), grad=grad), *inputs((4, 5), grad=False))
    assert tracing() == ["miss", "hit"] and len(captures) == 1


def test_results_that_are_one_another_or_an_argument(folder, captures):
    def fn(x):
        y = x.exp()
        return x, y, y, x.sin()

    for _ in range(2):
        x = torch.randn(3, requires_grad=True)
        a, b, c, _ = compiled(fn)(x)
        assert a is x and b is c
        b.sum().backward()
    assert tracing() == ["miss", "hit"] and len(captures) == 1


def test_views_of_arguments_are_traced_each_time(folder):
    def fn(x):
        return x[0], x.t() + 1

    check(fn, *inputs((3, 4)))
    first, second = tracing()
    assert first == second == "off: a ViewMetaSequence in what is known of its inputs and outputs"


def test_gradients_that_are_never_needed_stay_none(folder):
    def fn(x, y):
        return x * y.detach(), (x + 1).sum()

    check(fn, *inputs((3,), (3,)))
    assert tracing() == ["miss", "hit"]
    for _ in range(2):  # the graph that y comes from is not run through a second time
        x, y = inputs((3,), (3,))
        z = y.exp()
        z.sum().backward()
        compiled(fn)(x, z)[0].sum().backward()
        assert torch.equal(y.grad, y.detach().exp())


def test_gradients_that_were_absent_or_not(folder, captures):
    def fn(x):
        return x.sin(), x.exp()

    for _ in range(2):
        x = torch.randn(5, requires_grad=True)
        a, _ = compiled(fn)(x)
        a.sum().backward()
        torch.testing.assert_close(x.grad, x.detach().cos())
        assert len(captures) == 1
    for _ in range(2):  # both at once: of that no backward graph is there, at first
        x = torch.randn(5, requires_grad=True)
        a, b = compiled(fn)(x)
        (a + b).sum().backward()
        torch.testing.assert_close(x.grad, x.detach().cos() + x.detach().exp())
        assert len(captures) == 1
    assert tracing() == ["miss", "hit", "hit", "hit"]


def test_a_backward_graph_that_is_gone_is_compiled_again(folder, captures):
    fn = lambda x: (x.sin() * x).sum()
    for k in range(2):
        x = torch.randn(7, requires_grad=True)
        y = compiled(fn)(x)
        if k:
            (backward,) = [g.key for g in statistics.graphs if g.kind == "backward"]
            (folder.path / f"{backward}.graph").unlink()
        with torch.no_grad():  # the state of the forward pass is what counts
            y.backward(retain_graph=True)
            y.backward()
        torch.testing.assert_close(x.grad, 2 * (x.detach().cos() * x.detach() + x.detach().sin()))
    assert len(captures) == 1 and tracing() == ["miss", "hit"]


def other_values(name, now):
    """What a switch may be set to instead."""
    if isinstance(now, bool):
        return [not now]
    if isinstance(now, (list, tuple)) and all(isinstance(x, bool) for x in now):
        return [type(now)(not x for x in now)]
    other = {"default dtype": torch.float64, "float32 matmul precision": "high", "sdp priority": [2, 1, 0, 3, 4]}
    return [other[name]] if name in other else []


SETTABLE = [
    x.name for x in global_switches.switches.or_missing() if x.name != "deterministic algorithms"
]  # PyTorch checks that one


@pytest.mark.thinned(8)
@pytest.mark.parametrize("switch", SETTABLE)
def test_switches_that_change_between_forward_and_backward(folder, captures, switch, monkeypatch):
    """The backward graph that has to be compiled is that of the forward graph, and the switch stays what the user made it."""
    (found,) = [x for x in global_switches.switches.or_missing() if x.name == switch]
    was = found.get()
    try:
        for value in other_values(switch, was):
            found.set(value)
    except RuntimeError as reason:
        pytest.skip(str(reason))
    finally:
        found.set(was)
    fn = lambda x, w: (functional.scaled_dot_product_attention(x, x, x) @ w).sin().sum()
    for k in range(2):
        x, w = torch.randn(1, 2, 8, 16, requires_grad=True), torch.randn(16, 3)
        y = compiled(fn)(x, w)
        if k:
            (backward,) = [g.key for g in statistics.graphs if g.kind == "backward"]
            (folder.path / f"{backward}.graph").unlink()
            monkeypatch.setenv("MLIRC_ANYTHING", "1")  # the environment is a part of every key
        try:
            for value in other_values(switch, was) if k else ():
                found.set(value)
                now = found.get()
                y.backward()
                assert found.get() == now
            if x.grad is None:
                y.backward()
        finally:
            found.set(was)
        expected = torch.autograd.grad(fn(x, w), x)[0]
        torch.testing.assert_close(x.grad, expected)
    assert tracing() == ["miss", "hit"] and len(captures) == 1


def test_settings_of_aot_autograd_that_change_before_the_backward_pass(folder, captures):
    fn = lambda x: (x.sin() * x).exp().sum()
    for k in range(2):
        x = torch.randn(7, requires_grad=True)
        y = compiled(fn)(x)
        if k:
            (backward,) = [g.key for g in statistics.graphs if g.kind == "backward"]
            (folder.path / f"{backward}.graph").unlink()
        with functorch_config.patch(ban_recompute_not_in_allowlist=False, activation_memory_budget=0.0):
            y.backward()
        torch.testing.assert_close(x.grad, torch.autograd.grad(fn(x), x)[0])
    assert tracing() == ["miss", "hit"]


def test_nothing_is_traced_for_gradients_that_nobody_took_before(folder, captures):
    """The entry has the backward graph, so that what the forward graph saved fits it, and it is not traced in another way."""

    def fn(x):
        return (x.sin() * x).sum(), x.exp(), (x * 3).cos()

    def gradient(call, use):
        (x,) = inputs((7,))
        sum(call(x)[k].sum() * (k + 1) for k in use).backward()
        return x.grad

    gradient(compiled(fn), [0])
    for use in ([1], [0, 2], [0, 1, 2]):
        torch.testing.assert_close(gradient(compiled(fn), use), gradient(fn, use))
    assert tracing() == ["miss", "hit", "hit", "hit"] and len(captures) == 1


def test_a_backward_graph_comes_back_as_it_was(folder, monkeypatch):
    """With its names, source lines, constants, memory that tensors share; and its code is found by its text."""
    seen = []
    write = graph_data.to_bytes
    monkeypatch.setattr(
        graph_data,
        "to_bytes",
        lambda gm, given: (seen.append((copy.deepcopy(gm.graph), gm, given)), write(gm, given))[1],
    )

    def fn(x, w):
        first, second = functional.gelu(x @ w).chunk(2, 1)
        return (first.masked_fill(second > 0, -math.inf).exp() * second.t().reshape(4, 3)).to(torch.float64)

    x, w = inputs((4, 5), (5, 6))
    compiled(fn)(x, w).sum().backward()
    ((graph, gm, given),) = seen
    again, inputs_again = graph_data.from_bytes(write(gm, given), given[0].fake_mode)
    assert graph_text.graph_text(again, []) == graph_text.graph_text(torch.fx.GraphModule(gm, graph), [])
    assert [n.name for n in again.graph.nodes] == [n.name for n in graph.nodes]
    assert [(x.shape, x.stride(), x.dtype) for x in inputs_again] == [(x.shape, x.stride(), x.dtype) for x in given]


def test_compiled_autograd_takes_the_backward_graph(folder, captures):
    fn = lambda x: (x.sin() * x).sum()
    for k in range(2):
        x = torch.randn(7, requires_grad=True)
        y = compiled(fn)(x)
        with torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager")) if k else nullcontext():
            y.backward()
        torch.testing.assert_close(x.grad, x.detach().cos() * x.detach() + x.detach().sin())
    assert tracing() == ["miss", "hit"] and len(captures) == 1


def test_random_numbers_are_those_of_the_seed(folder):
    def fn(x):
        return functional.dropout(x, 0.4) * torch.rand_like(x), x.sum()

    found = []
    for call in (fn, compiled(fn), None):
        call = call or compiled(fn)
        torch.manual_seed(3)
        (x,) = inputs((64,))
        torch.manual_seed(4)
        y, _ = call(x)
        y.sum().backward()
        found.append([y, x.grad, torch.rand(1)])
    torch.testing.assert_close(found[1:], [found[0]] * 2)
    assert tracing() == ["miss", "hit"]


# ---- not found


def test_what_is_in_the_key(folder):
    def fn(x):
        return (x @ x).relu()

    (x,) = inputs((4, 4))

    def call(x=x, **options):
        y = compiled(fn, **options)(x)
        if y.requires_grad:
            y.sum().backward()
        (last,) = tracing()
        return last

    def autocast():
        with torch.autocast("cpu", torch.bfloat16):
            return call()

    def no_grad():
        with torch.no_grad():
            return call()

    def deterministic():
        torch.use_deterministic_algorithms(True)
        try:
            return call()
        finally:
            torch.use_deterministic_algorithms(False)

    ways = [
        call,
        lambda: call(pipeline="strict"),
        lambda: call(x.detach()),
        lambda: call(x.double()),
        autocast,
        no_grad,
    ]
    ways += [lambda: call(x.t()), deterministic]
    assert [way() for way in ways] == ["miss"] * len(ways)
    assert [way() for way in ways] == ["hit"] * len(ways)


@torch.library.custom_op("kept::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


twice.register_fake(torch.empty_like)


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        return 2 * ctx.saved_tensors[0] * gradient


def test_what_has_no_text_is_traced_each_time_and_says_so(folder):
    from torch.utils.checkpoint import checkpoint

    (x,) = inputs((4,))
    cases = [
        lambda x: twice(x.detach()) + x,
        Square.apply,
        lambda x: checkpoint(lambda x: x.sin().exp(), x, use_reentrant=False),
        lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]),
    ]
    for case in cases:
        check(lambda x, case=case: (case(x), x.cos()), x)
        states = tracing()
        assert all(state.startswith("off: ") for state in states) and len(states) == 2, states
    torch._dynamo.reset()
    dynamic = torch.compile(lambda x: (x * 2).relu(), backend="mlirc", options=STRICT, dynamic=True)
    torch.testing.assert_close(dynamic(x), (x * 2).relu())
    assert tracing() == ["off: an input of type SymInt"]
    with torch._functorch.config.patch(enable_autograd_cache=False):
        compiled(lambda x: x + 1)(x)
    assert tracing() == ["off: AOTAutograd's cache is switched off"]
    assert not list(folder.path.glob("*.trace"))


def test_nothing_is_shared_with_other_backends(folder, monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path / "torch"))
    fn = lambda x: (x.exp() + 1).sum()
    counters["aot_autograd"].clear()
    for which in ("mlirc", "aot_eager", "mlirc"):
        x = torch.randn(6, requires_grad=True)
        compiled(fn, which)(x).backward()
        torch.testing.assert_close(x.grad, x.detach().exp())
    assert tracing() == ["miss", "hit"]
    assert not [name for name in counters["aot_autograd"] if "cache" in name]
    assert not [path for path in (tmp_path / "torch").rglob("*") if path.is_file()]


# ---- damaged


def test_a_damaged_entry_is_reported_and_made_anew(folder):
    fn = lambda x: (x.exp() + 1).sum()

    def call():
        x = torch.randn(6, requires_grad=True)
        compiled(fn)(x).backward()
        torch.testing.assert_close(x.grad, x.detach().exp())

    call()
    (path,) = folder.path.glob("*.trace")
    good = path.read_bytes()
    entry = unpack(good, path.stem)
    other = lambda **data: pack([path.stem], CacheEntry(entry.data | data))
    bad = [
        good[:-9],
        other(metadata=["object", "getattr", {}]),
        other(metadata=["type", "int", 3, 4][:1]),
        other(forward=3),
    ]
    for content in bad:
        path.write_bytes(content)
        with pytest.warns(UserWarning, match="and makes it anew"):
            call()
        cache_folder.warn.cache_clear()
        assert path.read_bytes() == good
    (folder.path / f"{entry.data['forward'][0]}.graph").unlink()
    call()
    call()
    assert tracing() == ["miss"] * (len(bad) + 2) + ["hit"]


def test_metadata_is_data():
    data = [
        torch.float16,
        torch.Size([2, 3]),
        (1, [True, None]),
        {4: {1, 2}},
        torch.contiguous_format,
        torch.Tensor,
        int,
    ]
    back = trace_metadata.from_data(json.loads(json.dumps(trace_metadata.to_data(data))))
    assert back == data and type(back[1]) is torch.Size
    for odd in (len, torch.ones(1), 1.5j, NoText):
        with pytest.raises(NoText):
            trace_metadata.to_data([odd])
    for wrong in (["enum", "OutputType", "x"], ["dtype", "load"], ["type", "Module"], ["object", "OutputType", {}]):
        with pytest.raises((AttributeError, KeyError, TypeError, ValueError)):
            trace_metadata.from_data(wrong)


def test_explain_shows_it(folder):
    with torch.no_grad():
        for expected in ("miss", "hit"):
            found = mlirc.explain(lambda x: x.exp() + 1)(torch.randn(8))
            assert found.data["graphs"][0]["tracing"] == expected and f"tracing: {expected}" in str(found)
