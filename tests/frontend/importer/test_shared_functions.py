"""torch.compiler.nested_compile_region: layers that are compiled once, as a function that each of them invokes."""

import copy
import time

import pytest
import torch
from click.testing import CliRunner
from torch import nn
from torch.nn import functional as F

from mlirc.cli import main
from mlirc.frontend import statistics

region = torch.compiler.nested_compile_region
OPTIONS = {"fallback": "error"}


class Layer(nn.Module):
    def __init__(self, width=16, heads=2):
        super().__init__()
        self.heads = heads
        self.norm, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        heads = self.qkv(self.norm(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Marked(Layer):
    @region
    def forward(self, x):
        return super().forward(x)


class Small(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


class SmallMarked(Small):
    @region
    def forward(self, x):
        return super().forward(x)


class Model(nn.Module):
    def __init__(self, kind, count):
        super().__init__()
        self.embedding = nn.Embedding(10, 16)
        self.layers = nn.ModuleList(kind() for _ in range(count))

    def forward(self, tokens):
        x = self.embedding(tokens)
        for layer in self.layers:
            x = layer(x)
        return x


def models(count, kinds=(Marked, Layer)):
    torch.manual_seed(0)
    marked, plain = (Model(kind, count) for kind in kinds)
    plain.load_state_dict(marked.state_dict())
    return marked, plain, torch.randint(10, (2, 6))


def step(run, model, tokens):
    """The result, and the gradients."""
    model.zero_grad()
    made = run(tokens)
    made.square().sum().backward()
    return [made.detach(), *(x.grad for x in model.parameters())]


def shared(graph):
    return [(entry.subject, entry.numbers["calls"]) for entry in graph.ledger if entry.rule == "SHARED"]


def near(found, exact, eager):
    """At most twice as far from float64 as eager, by the worst tensor."""
    far = lambda made: max(float((a - b).norm() / b.norm()) for a, b in zip(made, exact, strict=True))
    assert far(found) <= 2 * far(eager) < 1e-4


@pytest.fixture(autouse=True)
def anew(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    torch._dynamo.reset()
    statistics.reset()


@pytest.mark.parametrize("beside", [False, pytest.param(True, marks=pytest.mark.full)])
def test_many_equal_layers_are_compiled_once(beside):
    """In a step of training: as many kernels are made as for 2 layers. `beside`: what it takes without the mark is printed too."""
    layers = 24 if beside else 8
    marked, plain, tokens = models(layers, (SmallMarked, Small))
    two, _, _ = models(2, (SmallMarked, Small))
    step(torch.compile(two, backend="mlirc", fullgraph=True, options=OPTIONS), two, tokens)
    of_two = [[(kernel.name, kernel.launches) for kernel in graph.kernels] for graph in statistics.graphs]
    eager = step(plain, plain, tokens)
    exact = step(wide := copy.deepcopy(plain).double(), wide, tokens)
    for name, model in ({"marked": marked} | ({"plain": plain} if beside else {})).items():
        torch._dynamo.reset()
        statistics.reset()
        start = time.process_time()
        found = step(torch.compile(model, backend="mlirc", fullgraph=True, options=OPTIONS), model, tokens)
        whole = time.process_time() - start
        ours = sum(sum(graph.seconds.values()) for graph in statistics.graphs)
        print(f"{name}: {whole:.2f} s of processor time; our steps {ours:.2f} s")
        if name == "marked":
            assert [shared(graph) for graph in statistics.graphs] == [[("region_0", layers)]] * 2
            kernels = [[(kernel.name, kernel.launches) for kernel in graph.kernels] for graph in statistics.graphs]
            assert kernels == of_two
        near(found, exact, eager)


@pytest.mark.parametrize("training", [False, True])
def test_eagers_results_and_both_caches(training):
    marked, plain, tokens = models(3)
    kinds = ["forward", "backward"] if training else ["inference"]
    for kept in ("miss", "hit"):
        torch._dynamo.reset()
        statistics.reset()
        run = torch.compile(marked, backend="mlirc", fullgraph=True, options=OPTIONS)
        if training:
            found, eager = step(run, marked, tokens), step(plain, plain, tokens)
            exact = step(wide := copy.deepcopy(plain).double(), wide, tokens)
        else:
            with torch.no_grad():
                found, eager, exact = [run(tokens)], [plain(tokens)], [copy.deepcopy(plain).double()(tokens)]
        near(found, exact, eager)
        assert [graph.kind for graph in statistics.graphs] == kinds
        assert {graph.cache for graph in statistics.graphs} == {kept}
        assert statistics.graphs[0].tracing == kept
        assert [shared(graph) for graph in statistics.graphs] == [[("region_0", 3)]] * len(kinds)


def test_no_result_of_a_layer_is_copied():
    """A forward graph saves its operands and its views of what it computed as they are."""
    marked, _, tokens = models(3)
    torch.compile(marked, backend="mlirc", fullgraph=True, options=OPTIONS)(tokens)
    (forward,) = statistics.graphs
    assert not [kernel.name for kernel in forward.kernels if "copy" in kernel.name]


@pytest.mark.parametrize("dynamic", [False, True])
def test_each_form_runs_from_its_file(dynamic, tmp_path):
    @region
    def layer(x, w, scale):
        return (x @ w).relu() * scale + x.shape[0], x.exp().t()

    def fn(x, w, v):
        for _ in range(3):
            x, y = layer(x, w, v)
        return x, y, layer(x[:2].cos(), w, v)[0]

    options = OPTIONS | {"dump": str(tmp_path)}
    x, w, v = torch.randn(6, 4), torch.randn(4, 4), torch.randn(4)
    compiled = torch.compile(fn, backend="mlirc", dynamic=dynamic, options=options)
    for n in (6, 5):
        torch.testing.assert_close(compiled(x[:n], w, v), fn(x[:n], w, v))
    first = min(tmp_path.glob("*_inference_0_import.mlir"))
    assert "func.func @region_0" in first.read_text()
    done = CliRunner().invoke(main, ["run", str(first), "--check-each-pass"])
    assert done.exit_code == 0, done.output
    last = min(tmp_path.glob("*_4_lower.mlir"))
    done = CliRunner().invoke(main, ["run", str(last)])
    assert done.exit_code == 0, done.output


def inner_calls(x, w):
    @region
    def inner(x):
        return x.sin() * 2

    @region
    def outer(x, w):
        return inner(x @ w) + inner(x)

    return outer(outer(x, w), w) + inner(x)


def library_calls(x, w):
    """ATen calls, which are native or made from Python, hold handles within the function."""

    @region
    def layer(x):
        return torch.linalg.inv(x @ x.t() + 9 * torch.eye(4)).sort(-1)[0], x.cumsum(0)

    a, b = layer(x)
    return layer(a + b)


def loops(x, w):
    from torch._higher_order_ops import while_loop

    @region
    def layer(x):
        return (x * 2).tanh()

    return while_loop(lambda n, x: n < 3, lambda n, x: (n + 1, layer(layer(x))), (torch.tensor(0), layer(x)))


@pytest.mark.parametrize("fn", [inner_calls, library_calls, loops])
def test_what_a_region_may_hold(fn):
    x, w = torch.randn(4, 4), torch.randn(4, 4)
    with torch.no_grad():
        compiled = torch.compile(fn, backend="mlirc", options=OPTIONS)
        for sign in (1, -1):
            torch.testing.assert_close(compiled(sign * x, w), torch.compile(fn, backend="eager")(sign * x, w))


def test_an_error_within_a_region_is_eagers():
    @region
    def layer(x, index):
        return x[index].sin() + x[index].sort()[0]

    def fn(x, index):
        return layer(layer(x, index), index)

    x, bad = torch.randn(4), torch.tensor([0, 1, 2, 9])
    compiled = torch.compile(fn, backend="mlirc", options=OPTIONS)
    torch.testing.assert_close(compiled(x, bad % 4), fn(x, bad % 4))
    for _ in range(3):
        with pytest.raises(IndexError, match="out of bounds"):
            compiled(x, bad)
    torch.testing.assert_close(compiled(x, bad % 4), fn(x, bad % 4))


def test_results_of_two_calls_do_not_share_memory():
    @region
    def layer(x):
        return x.sin()

    def fn(x):
        return layer(x), layer(x + 1)

    with torch.no_grad():
        a, b = torch.compile(fn, backend="mlirc", options=OPTIONS)(torch.zeros(4))
        a.fill_(7)
    torch.testing.assert_close(b, torch.ones(4).sin())


def test_random_numbers_are_eagers_and_the_ledger_says_that_each_call_is_compiled():
    @region
    def layer(x):
        return torch.special.i0(torch.empty_like(x).exponential_()) + x

    def fn(x):
        return layer(layer(x))

    x = torch.randn(4, 4)
    with torch.no_grad():
        torch.manual_seed(0)
        want = fn(x)
        torch.manual_seed(0)
        torch.testing.assert_close(torch.compile(fn, backend="mlirc", options=OPTIONS)(x), want)


def test_views_of_inputs_beside_a_shared_function():
    """Which results are views of inputs is asked of the graph, not of a function that it calls."""
    equal = torch.compiler.nested_compile_region(lambda x: x.sin() * x + 1)

    def f(x, y):
        return x.t(), equal(y) + equal(y * 2), x.view(-1), y[0]

    compiled = torch.compile(f, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad():
        for x, y in ((torch.randn(3, 3), torch.randn(3, 3)), (torch.randn(1, 3), torch.randn(4))):
            got, expected = compiled(x, y), f(x, y)
            torch.testing.assert_close(got, expected)
            assert [z.stride() for z in got] == [z.stride() for z in expected]
            assert [z.data_ptr() == x.data_ptr() for z in got] == [z.data_ptr() == x.data_ptr() for z in expected]
            got[0].t_()  # each result is an object of its own
            assert got[2].shape == expected[2].shape and x.dim() == 2
