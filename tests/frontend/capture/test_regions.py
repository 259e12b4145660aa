"""cond, while_loop, scan and map as loops and branches of the compiled graph: eager's answers for each way that values go round."""

import time
from itertools import product

import pytest
import torch
from click.testing import CliRunner
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch._higher_order_ops.associative_scan import associative_scan_op
from torch._higher_order_ops.map import map as each
from torch.utils._pytree import tree_leaves

from mlirc.cli import main
from mlirc.frontend import statistics

ZERO = torch.tensor(0)


def times(count, body, *values):
    return while_loop(lambda n, *_: n < count, lambda n, *rest: (n + 1, *body(n, *rest)), (torch.tensor(0), *values))


def swapped(x, y):
    return times(3, lambda n, a, b: (b + 0, a.clone()), x, y)


def rotated(x, y):
    return times(4, lambda n, a, b, c: (b.clone(), c + 1, a.sin() + b), x, y, x * y)


def never(x, y):
    return times(0, lambda n, a: (a.exp() + y,), x)


def unchanged(x, y):
    """A carried value is returned as it came, an input of the graph."""
    return times(3, lambda n, a, b: (a.clone(), b + a), x, y)


def products(x, y):
    return times(5, lambda n, a: ((a @ y.t() @ y).tanh(),), x)


def transposed(x, y):
    return times(3, lambda n, a: ((a.t() + a.t().cumsum(0)).t(),), x.t())


def by_data(x, y):
    return while_loop(lambda a, b: (a.sum() < 50) & (b < 9), lambda a, b: (a.softmax(-1) + a.abs(), b + 1), (x, ZERO))


def whole_numbers(x, y):
    start = (x * 8).to(torch.int32)
    return while_loop(lambda a, b: (a < 1000).any(), lambda a, b: (a * 2 + 1, b ^ (a > 99)), (start.abs(), x > 0))


def not_a_number(x, y):
    return times(3, lambda n, a: (torch.maximum(a.log(), y).clamp(max=2.0),), x)


def within_loops(x, y):
    inner = lambda n, a: (times(2, lambda m, b: (b * 0.5 + n + m,), a)[1],)
    return times(3, inner, x)


def branches_within(x, y):
    return times(6, lambda n, a: (torch.cond(a.sum() > 3, torch.sin, lambda a: a + y, (a,)),), x)


def own_tensors(x, y):
    return times(3, lambda n, a: (a * torch.tensor([1.0, 2.0, 3.0, 4.0]) + torch.tensor(0.5),), x)


def library_calls(x, y):
    return times(3, lambda n, a: (a.sort(-1)[0] + n,), x)


def rows(x, y):
    """Indices that are computed, and a row that is written."""
    return times(
        3, lambda n, a: (torch.where(torch.arange(4)[:, None] == n, 7.0, a) + a.index_select(0, n.reshape(1)),), x
    )


def scanned(x, y):
    return scan(lambda c, x: (c * 0.9 + x.sin(), (c + x).tanh()), x[:, 0] * 0, x, dim=1, reverse=True)


def many_scanned(x, y):
    step = lambda c, x: ([c[0] + x[0], c[1] * x[1]], {"a": c[0] * x[1], "b": x[0] > 0})
    return scan(step, [x[0] * 0, y[0]], [x, y])


def mapped(x, y):
    return each(lambda a, b: (a[0] * b, (a[1] + b).exp()), (x, y * 2), y[0] + 1)


def chosen(x, y):
    return torch.cond(x.sum() > 0, lambda x, y: (x @ y.t(), y.clone()), lambda x, y: (x @ x.t(), x + y), (x, y))


LOOPS = [swapped, rotated, never, unchanged, products, transposed, by_data, whole_numbers, not_a_number]
LOOPS += [within_loops, branches_within, own_tensors, library_calls, rows]
ALL = [*LOOPS, scanned, many_scanned, mapped, chosen]
FAST = {swapped, rotated, transposed, own_tensors, branches_within, many_scanned}


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@pytest.fixture
def inputs():
    torch.manual_seed(0)
    return torch.randn(4, 4), torch.randn(4, 4)


@pytest.mark.parametrize(
    ("fn", "dynamic", "pipeline"),
    [
        pytest.param(*chosen, marks=() if chosen[0] in FAST and chosen[2] == "cpu" else pytest.mark.full)
        for chosen in product(ALL, (False, True), ("cpu", "strict"))
    ],
)
@pytest.mark.thinned(2)
def test_eagers_answer(fn, dynamic, pipeline, inputs):
    statistics.reset()
    options = {"fallback": "error", "pipeline": pipeline}
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=dynamic, options=options)
    for sign in (1, -1):
        given = [sign * x for x in inputs]
        want = tree_leaves(torch.compile(fn, backend="eager")(*given))
        kept = [x.clone() for x in given]
        torch.testing.assert_close(tree_leaves(compiled(*given)), want, equal_nan=True)
        torch.testing.assert_close(given, kept, rtol=0, atol=0)
    called = {name for graph in statistics.graphs for name in graph.aten}
    assert called == ({"aten.sort.default"} if fn is library_calls else set())


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", [(0, 0), (0, 4), (4, 0), (1, 0)])
def test_carried_tensors_without_elements(shape, inputs):
    """A transposed one has strides that no dense tensor of other sizes has."""
    options = {"fallback": "error"}
    for dynamic in (False, True):
        torch._dynamo.reset()
        x = torch.randn(shape)
        for given in (x, x.t().contiguous().t()):
            fn = lambda x: times(3, lambda n, a, b: (a.sort(0)[0] + n, b * 2), x.sort(0)[0], x)
            found = torch.compile(fn, backend="mlirc", dynamic=dynamic, options=options)(given)
            for have, want in zip(found, fn(given), strict=True):
                assert (have.shape, have.stride(), have.dtype) == (want.shape, want.stride(), want.dtype)


@pytest.mark.parametrize("dynamic", [False, pytest.param(True, marks=pytest.mark.full)])
def test_each_form_runs_from_its_file(dynamic, inputs, tmp_path):
    """As it is verified and interpreted after each pass, and as machine code."""

    def fn(x, y):
        (_, a), (b, c) = branches_within(x, y), scanned(x, y)
        return a + b, c, mapped(x, y)

    options = {"fallback": "error", "dump": str(tmp_path)}
    torch.compile(fn, backend="mlirc", dynamic=dynamic, options=options)(*inputs)
    (first,) = tmp_path.glob("*_inference_0_import.mlir")
    assert first.read_text().count("func.func @body") == 3
    done = CliRunner().invoke(main, ["run", str(first), "--check-each-pass"])
    assert done.exit_code == 0, done.output
    (last,) = tmp_path.glob("*_4_lower.mlir")
    done = CliRunner().invoke(main, ["run", str(last)])
    assert done.exit_code == 0, done.output


def random_body(generator, dtypes):
    """What gives the next values of some carried ones: others, exchanged or as they are, or computed of two."""
    draw = lambda n: int(torch.randint(n, (), generator=generator))
    operations = [torch.add, torch.mul, torch.maximum, torch.sub]
    plan = []
    for dtype in dtypes:
        alike = [k for k, other in enumerate(dtypes) if other == dtype]
        operation = None if draw(2) else operations[draw(len(operations))]
        plan.append((operation, alike[draw(len(alike))], draw(len(dtypes)), dtype))

    def body(values, other):
        made = []
        for operation, k, m, dtype in plan:
            x = values[k].clone() if operation is None else operation(values[k], values[m].to(dtype))
            made.append(x if operation is None else (x + other.to(dtype)).clamp(-99, 99))
        return tuple(made)

    return body


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(k, marks=pytest.mark.full) for k in range(2, 12))])
def test_random_bodies(seed):
    generator = torch.Generator().manual_seed(seed)
    dtypes = [torch.float32, torch.int64, torch.float32, torch.int32, torch.bfloat16, torch.float32][: 3 + seed % 4]
    values = [(torch.randn(3, 5, generator=generator) * 4).to(dtype) for dtype in dtypes]
    values[0][0, :2] = torch.tensor([float("nan"), float("inf")])
    other, body = torch.randn(5, generator=generator), random_body(generator, dtypes)
    count = seed % 5

    def fn(other, *values):
        return times(count, lambda n, *values: body(values, other), *values)[1:]

    want = values
    for _ in range(count):
        want = body(want, other)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=seed % 2 == 1, options={"fallback": "error"})
    torch.testing.assert_close(list(compiled(other, *values)), list(want), equal_nan=True)


def test_gradients_of_a_map(inputs):
    statistics.reset()
    x, y = (x.requires_grad_() for x in inputs)
    with torch.enable_grad():
        made = torch.compile(mapped, backend="mlirc", options={"fallback": "error"})(x, y)
        found = torch.autograd.grad(sum(z.sum() for z in made), (x, y))
        b = y[0] + 1
        each_row = [(a * b, (2 * c + b).exp()) for a, c in zip(x, y, strict=True)]
        want = torch.autograd.grad(sum(z.sum() for pair in each_row for z in pair), (x, y))
    torch.testing.assert_close(found, want)
    assert [graph.kind for graph in statistics.graphs] == ["forward", "backward"]
    assert not any(graph.aten for graph in statistics.graphs)


def linear(a, b):
    """Of y = a0 x + a1 and then b0 x + b1."""
    return [a[0] * b[0], a[1] * b[0] + b[1]]


@pytest.mark.parametrize("n", [7, *(pytest.param(n, marks=pytest.mark.full) for n in (1, 2, 3, 4, 5, 6, 16, 33))])
def test_an_associative_scan_whose_operator_is_in_the_graph(n):
    """As `combine_mode="pointwise"` has it, which takes tensors of a GPU alone. In eager the operator takes its steps from "generic"."""
    statistics.reset()
    x = torch.rand(n, 3)
    fn = lambda x: associative_scan_op(lambda a, b, c, d: linear((a, b), (c, d)), [x, x.sin()], ())
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=False, options={"fallback": "error"})
    want = associative_scan(linear, [x, x.sin()], 0, combine_mode="generic")
    torch.testing.assert_close(list(compiled(x)), list(want))
    assert not any(graph.aten for graph in statistics.graphs)


@pytest.mark.parametrize(
    ("n", "grad"), [(7, True), (4, False), *(pytest.param(n, True, marks=pytest.mark.full) for n in (1, 2, 4, 16))]
)
def test_an_associative_scan_of_what_is_not_row_major(n, grad):
    """The gradient is PyTorch's formula, and strides are those of the steps in eager."""
    x = torch.rand(3, n, 2).movedim(1, 0).requires_grad_(grad)

    def fn(x):
        first, second = associative_scan_op(lambda a, b, c, d: linear((a, b), (c, d)), [x.sin(), x * 2], ())
        return first, second.movedim(0, 1) + 1

    made = []
    with torch.set_grad_enabled(grad):
        for name in ("mlirc", "aot_eager"):
            torch.compiler.reset()
            statistics.reset()
            made.append([*torch.compile(fn, backend=name, fullgraph=True, dynamic=False)(x)])
            assert not any(graph.aten for graph in statistics.graphs)
            if grad:
                made[-1] += torch.autograd.grad(made[-1][0].cos().sum() + made[-1][1].sin().sum(), x)
    for got, want in zip(*made, strict=True):
        torch.testing.assert_close(got, want)
        assert got.stride() == want.stride()


def test_an_associative_scan_has_the_gradient_that_pytorch_has_a_formula_for():
    """Of an operator that is not associative it is another one than that of the steps."""
    statistics.reset()
    x = torch.rand(5, 3, requires_grad=True)
    fn = lambda x: associative_scan_op(lambda a, b: [a * b + a], [x], ())[0]
    with torch.enable_grad():
        found, want = (
            torch.autograd.grad(torch.compile(fn, backend=name, fullgraph=True)(x).sum(), x)
            for name in ("mlirc", "aot_eager")
        )
    torch.testing.assert_close(found, want)
    assert not any(graph.aten for graph in statistics.graphs)


def test_a_thousand_small_steps_are_20_times_as_fast_as_eager(inputs):
    x, y = inputs
    fn = lambda x, y: times(1000, lambda n, a: ((a * 0.99 + y).sin(),), x)[1]
    compiled, eager = torch.compile(fn, backend="mlirc", fullgraph=True), torch.compile(fn, backend="eager")
    torch.testing.assert_close(compiled(x, y), eager(x, y))

    def seconds(run):
        start = time.process_time()
        run(x, y)
        return time.process_time() - start

    ours, theirs = zip(*((seconds(compiled), seconds(eager)) for _ in range(5)), strict=True)
    assert 20 * min(ours) < min(theirs)


@pytest.fixture
def cache_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))


@pytest.mark.usefixtures("cache_folder")
def test_both_caches_keep_functions():
    """And tell functions apart that differ in a number."""
    x = torch.randn(4)

    def run(number):
        torch._dynamo.reset()
        statistics.reset()
        fn = lambda x: torch.cond(x.sum() > 0, lambda x: x * number, lambda x: x.cos() - number, (x,))
        compiled = torch.compile(fn, backend="mlirc", options={"fallback": "error"})
        for given in (x, -x):
            torch.testing.assert_close(compiled(given), fn(given))
        return [(graph.cache, graph.tracing) for graph in statistics.graphs]

    assert [run(2), run(2), run(3)] == [[("miss", "miss")], [("hit", "hit")], [("miss", "miss")]]


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.full
def test_a_loop_with_tensors_of_its_own_is_kept(inputs):
    for kept in ("miss", "hit"):
        torch._dynamo.reset()
        statistics.reset()
        compiled = torch.compile(own_tensors, backend="mlirc", options={"fallback": "error"})
        torch.testing.assert_close(compiled(*inputs), own_tensors(*inputs))
        assert [graph.cache for graph in statistics.graphs] == [kept]


REFUSED = {
    "random": (lambda a: a + torch.rand_like(a), "which has effects"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_region_holds_runs_in_eager_and_says_so(name, inputs):
    body, reason = REFUSED[name]
    statistics.reset()
    fn = lambda x: times(2, lambda n, a: (body(a),), x)
    compiled = torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    torch.manual_seed(1)
    want = fn(inputs[0])
    torch.manual_seed(1)
    torch.testing.assert_close(compiled(inputs[0]), want)
    assert reason in statistics.graphs[0].aten["higher_order.while_loop"][1]


def counted(x):
    """A Python integer is the counter, another is carried as it is, and one is set anew."""
    return while_loop(
        lambda i, j, k, x: i + j < 9, lambda i, j, k, x: (i + 2, j, 5, x * 1.5 + (i % 3) * k - j), (0, 2, 7, x)
    )[3]


def counted_down(x):
    return while_loop(lambda i, x: i > 0, lambda i, x: (i - 1, torch.where(x > i, x, x / 2 + i)), (6, x))[1]


def last_count(x):
    n, y = while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + i), (0, x))
    return y * n


def counted_in_half(x):
    return while_loop(lambda i, x: i < 5, lambda i, x: (i + 1, x + i), (0, x.half()))[1]


def doubled_count(x):
    return while_loop(lambda i, x: i < 99, lambda i, x: (i * 2 + 1, x + i), (0, x))[1]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(
    "loop, compiled",
    [(counted, True), (counted_down, True), (last_count, False), (counted_in_half, False), (doubled_count, False)],
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_loops_that_carry_python_integers(loop, compiled, dtype):
    """In the compiled graph where they are counters; right otherwise too."""
    x = (9 * torch.randn(3, 5)).to(dtype)
    torch._dynamo.reset()
    statistics.reset()
    result = torch.compile(loop, backend="mlirc", options={"fallback": "error", "cache": False})(x)
    torch.testing.assert_close(result, loop(x))
    called = [name for graph in statistics.graphs for name in graph.aten]
    assert ("higher_order.while_loop" not in called) == compiled
