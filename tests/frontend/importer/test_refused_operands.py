"""A dimension that a tensor has not raises in a compiled graph what eager raises, whatever the meta function says. So does an integer division by
a size that is 0; by a size that is at least 1 a kernel divides."""

import itertools
import logging
import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

import mlirc
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS
from mlirc.dialects.ops.elementwise import division
from mlirc.frontend import statistics
from mlirc.frontend.importer.refused_operands import DIVISIONS, dimensions, refused

aten = torch.ops.aten

NUMBERS = {"int": 1, "SymInt": 1, "number": 1, "bool": False, "float": 0.5, "Scalar": 1, "List[int]": [1], "str": "sum"}


def calls(op: Any) -> Iterator[tuple]:
    """Calls with dimensions beyond both ends."""
    named = {name for _, name in dimensions(op)}
    for shape in ((), (3,), (2, 3)):
        for d in (-len(shape) - 3, len(shape) + 1):
            args = []
            for argument in op._schema.arguments:
                kind = str(argument.type)
                if argument.name in named:
                    args.append([d] if "List" in kind else d)
                elif kind in ("Tensor", "List[Tensor]"):
                    x = torch.zeros(shape, dtype=torch.int64) if "index" in argument.name else torch.ones(shape)
                    args.append([x, x] if "List" in kind else x)
                elif argument.kwarg_only or argument.has_default_value():
                    break
                else:
                    args.append(NUMBERS.get(kind))
            yield tuple(args)


def raised(op: Any, args: tuple) -> str | None:
    try:
        op(*args)
    except Exception as error:
        error = getattr(error, "inner_exception", None) or error
        return {"TorchRuntimeError": "RuntimeError"}.get(type(error).__name__, type(error).__name__)
    return None


def refuses(op: Any, args: tuple) -> bool:
    """Whether the call raises an error that names the dimension."""
    try:
        op(*args)
    except IndexError as error:
        return "dim" in str(error).lower()
    except Exception:
        pass
    return False


def unseen() -> Iterator[tuple[Any, tuple]]:
    """Calls whose dimension eager refuses, and fake tensors take."""
    with context():  # loads the rules
        pass
    for op in sorted((op for op in IMPORTS if isinstance(op, torch._ops.OpOverload)), key=str):
        if not dimensions(op) or op.is_view or op._schema.is_mutable or not str(op).startswith("aten."):
            continue
        for args in calls(op):
            mode = FakeTensorMode()
            if refuses(op, args) and raised(op, tree_map_only(torch.Tensor, mode.from_tensor, args)) is None:
                yield op, args


def test_what_eager_refuses_is_refused():
    logging.disable(logging.CRITICAL)  # of fake tensors that refuse
    found = list(unseen())
    logging.disable(logging.NOTSET)
    assert {torch.ops.aten.cummin.default, torch.ops.aten.cummax.default} <= {op for op, _ in found}
    for op, group in itertools.groupby(found, lambda one: one[0]):
        _, args = next(group)
        torch._dynamo.reset()
        compiled = torch.compile(op, backend="mlirc", options={"fallback": "error"})
        with torch.no_grad():
            assert raised(compiled, args) == "IndexError", (op, args)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("d", [-3, 2])
def test_dimensions_that_are_there_stay_compiled(d, dynamic):
    x = torch.randn(4, 5)
    uses = {
        "stack": lambda x: torch.stack([x, x], d),
        "sum": lambda x: x.exp().sum(d),
        "cumsum": lambda x: x.cumsum(d),
        "scalar": lambda x: x.sum().cummax(-1)[0] if d == -1 else x,
    }
    for name, use in uses.items():
        torch._dynamo.reset()
        if raised(use, (x,)):
            continue
        compiled = torch.compile(use, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
        torch.testing.assert_close(compiled(x), use(x), msg=name)


@pytest.mark.parametrize("dynamic", [False, True])
def test_layouts(dynamic):
    """Rows and channels last are kernels of ours; another layout raises, as in eager."""

    def norm(x):
        return aten.native_group_norm(x * 2, None, None, x.size(0), 4, x.size(2) * x.size(3), 2, 1e-5)[0]

    torch._dynamo.reset()
    compiled = torch.compile(norm, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    x = torch.randn(2, 4, 3, 3)
    for given in (x, x.contiguous(memory_format=torch.channels_last)):
        torch.testing.assert_close(compiled(given), norm(given))
    refused = torch.compile(norm, backend="mlirc", dynamic=dynamic)
    for f in (norm, refused):
        with pytest.raises(RuntimeError, match="is_contiguous"):
            f(torch.randn(4, 2, 3, 3).transpose(0, 1))


TAKE_DIMENSIONS = {
    "select": lambda x, d: x.select(d, 0),
    "slice": lambda x, d: x.narrow(d, 0, 1),
    "unbind": lambda x, d: x.unbind(d)[0],
    "split": lambda x, d: x.split_with_sizes([1, x.shape[d] - 1], d)[1],
    "unfold": lambda x, d: x.unfold(d, 2, 1),
    "diagonal": lambda x, d: x[None].diagonal(0, 0, d % x.dim() + 1),
    "index_select": lambda x, d: x.index_select(d, torch.tensor([0])),
    "gather": lambda x, d: x.gather(d, torch.zeros([1] * x.dim(), dtype=torch.int64)),
    "stack": lambda x, d: torch.stack([x, x], d),
    "unsqueeze": lambda x, d: x.unsqueeze(d),
    "amax": lambda x, d: x.amax(d),
    "max": lambda x, d: x.max(d)[0],
    "median": lambda x, d: x.median(d)[0],
    "sort": lambda x, d: x.sort(d)[0],
    "logsumexp": lambda x, d: x.logsumexp(d),
    "softmax": lambda x, d: x.softmax(d),
    "var": lambda x, d: x.var(d),
    "prod": lambda x, d: x.prod(d),
    "cumsum": lambda x, d: x.cumsum(d),
    "cumprod": lambda x, d: x.cumprod(d),
    "cummax": lambda x, d: x.cummax(d)[0],
    "norm": lambda x, d: x.norm(2, d),
    "flip": lambda x, d: x.flip(d),
    "roll": lambda x, d: x.roll(1, d),
}


@pytest.mark.parametrize("name", TAKE_DIMENSIONS)
def test_what_eager_computes_is_not_refused(name):
    """Forward and backward: some gradients have fewer dimensions than what they are the gradient of."""
    for d in range(-2, 2):

        def both(x):
            x = x.detach().requires_grad_()
            y = TAKE_DIMENSIONS[name](x, d)  # noqa: B023
            return torch.autograd.grad(y, x, torch.ones_like(y))

        graph = make_fx(both, tracing_mode="fake")(torch.rand(2, 3)).graph
        assert [node for node in graph.nodes if refused(node)] == [], d


def test_gradients_of_elements_are_kernels():
    """Each in its last dimension, which their gradients have not."""
    x = torch.randn(5, 3, requires_grad=True)
    for graph in mlirc.explain(lambda x: x[..., 0] * x.unbind(1)[2], options={"cache": False})(x).data["graphs"]:
        assert not graph["aten"]


DIVIDENDS = torch.tensor([-(2**63), -(2**40), -7, -6, -1, 0, 1, 5, 6, 7, 2**40, 2**63 - 1])


def each_way(x, n):
    return x % n, x // n, x.fmod(n), x.div(n, rounding_mode="trunc"), x.div(n, rounding_mode="floor")


def compile_anew(function, **options):
    torch._dynamo.reset()
    statistics.reset()
    return torch.compile(function, backend="mlirc", options={"fallback": "error", "cache": False}, **options)


def operators_called():
    return {name for graph in statistics.graphs for name in graph.aten}


@pytest.mark.parametrize("dtype", (torch.int64, torch.int32, torch.uint8))
def test_by_sizes(dtype):
    def f(x, y):
        rows, columns = y.shape
        return *each_way(x, rows), *each_way(x, rows * columns + 1), *each_way(x, columns // 2 + 1)

    g, x = compile_anew(f, dynamic=True), DIVIDENDS.to(dtype)
    for shape in ((5, 3), (2, 7), (300, 4)):
        y = torch.ones(shape)
        for found, expected in zip(g(x, y), f(x, y), strict=True):
            assert found.dtype == expected.dtype and torch.equal(found, expected)
    assert bool(operators_called()) == (dtype != torch.int64)  # 2**32 as an int32 is 0


@pytest.mark.parametrize("shift", (-5, -2))
def test_by_what_may_be_zero_or_less(shift):
    def f(x, y):
        return each_way(x, y.shape[0] + shift)

    g = compile_anew(f, dynamic=True)
    for n in (7, 6, 3):
        for found, expected in zip(g(DIVIDENDS, torch.ones(n)), f(DIVIDENDS, torch.ones(n)), strict=True):
            assert torch.equal(found, expected)
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        g(DIVIDENDS, torch.ones(-shift))
    assert "aten.remainder.Scalar" in operators_called()


def test_by_an_int_of_the_caller():
    g = compile_anew(lambda x, n: x % n, dynamic=True)
    for n in (7, -3, 12):
        assert torch.equal(g(DIVIDENDS, n), DIVIDENDS % n)
    with pytest.raises((RuntimeError, ZeroDivisionError)):
        g(DIVIDENDS, 0)


def test_floats_by_what_may_be_zero():
    def f(x, y):
        return each_way(x, y.shape[0] - 5)

    g, x = compile_anew(f, dynamic=True), torch.tensor([-2.5, 0.0, 7.25])
    for n in (7, 5, 3):
        for found, expected in zip(g(x, torch.ones(n)), f(x, torch.ones(n)), strict=True):
            assert torch.equal(found.nan_to_num(99), expected.nan_to_num(99))
    assert not operators_called()


def test_a_table_read_at_a_remainder():
    """As LSH attention does: places modulo the length."""

    def f(table):
        return table[(torch.arange(3 * table.shape[0]) * 7) % table.shape[0]].sum(-1)

    g = compile_anew(f, dynamic=True)
    for n in (5, 9):
        table = torch.randn(n, 4)
        torch.testing.assert_close(g(table), f(table))
    assert not operators_called()


def test_all_divisions_are_listed():
    rules = (division.remainder, division.fmod, division.floor_divide, division.div)
    assert {overload for overload, rule in IMPORTS.items() if rule in rules} == set(DIVISIONS)


def _transposed(x, stride, dilation, more):
    images, filters = x.expand(1, 1, 3, 3), torch.ones(1, 1, 2, 2)
    return torch.nn.functional.conv_transpose2d(images, filters, None, stride, 0, more, 1, dilation)


NUMBERS_THAT_EAGER_REFUSES = {
    "smooth_l1_loss": (lambda x, n: torch.nn.functional.smooth_l1_loss(x, 2 * x, beta=n), (1.0, -0.5, math.nan, -1)),
    "mvlgamma": (lambda x, n: torch.mvlgamma(x + 9, n), (2, 0)),
    "output padding": (lambda x, n: _transposed(x, 2, 1, n), (1, 2, 3)),
    "output padding below the dilation": (lambda x, n: _transposed(x, 1, 3, n), (2, 3)),
    "output paddings": (lambda x, n: _transposed(x, (4, 2), 1, (3, n)), (1, 2)),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", NUMBERS_THAT_EAGER_REFUSES)
def test_numbers(name, dynamic):
    """The first number is one that eager takes."""
    f, (taken, *refused_ones) = NUMBERS_THAT_EAGER_REFUSES[name]
    x = torch.rand(())
    g = compile_anew(lambda x, n: f(x, n), dynamic=dynamic)
    torch.testing.assert_close(g(x, taken), f(x, taken))
    for n in refused_ones:
        with pytest.raises(RuntimeError) as expected:
            f(x, n)
        with pytest.raises(RuntimeError) as found:
            g(x, n)
        assert str(expected.value).splitlines()[0] in str(found.value)
