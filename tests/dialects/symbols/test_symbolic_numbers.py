"""Every ATen overload that takes a number, with an int and a float that only a call says: compiled as the number itself would be, or ATen's."""

import warnings

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS, load_ops
from mlirc.dialects.interpreter.interpreter import run
from mlirc.frontend.importer.importer import import_graph
from tests.compare_stages import fake, flat
from tests.dialects.test_special_scalars import LEFT, NUMBER

load_ops()
SYMBOLIC = (*NUMBER, "SymInt", "Optional[SymInt]")
GIVEN = {"int": 0, "bool": False, "Optional[Tensor]": None, "List[int]": [1], "List[SymInt]": [1]}
DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.uint8)
NUMBERS = {"an int": lambda t: t.shape[0], "a float": lambda t: t.shape[0] * 0.5}


def takes_symbols(op) -> bool:
    return any(str(a.type) in SYMBOLIC for a in op._schema.arguments) and not LEFT.match(str(op))


OVERLOADS = sorted((op for op in IMPORTS if isinstance(op, torch._ops.OpOverload) and takes_symbols(op)), key=str)


def call(op, x, number):
    """The operator with this number for each number that it takes, and this tensor for each tensor."""
    given = {}
    for a in op._schema.arguments:
        kind = str(a.type)
        if kind in SYMBOLIC or kind == "Tensor":
            given[a.name] = x if kind == "Tensor" else number
        elif not a.has_default_value():
            given[a.name] = GIVEN[kind]
    positional = [given.pop(a.name) for a in op._schema.arguments if a.name in given and not a.kwarg_only]
    return op(*positional, **given)


def traced(function, x, t):
    """Its graph, with `t` of a symbolic size; None where eager or PyTorch's tracing refuses the call."""
    try:
        function(x, t)
        mode = FakeTensorMode(shape_env=ShapeEnv())
        return make_fx(function, tracing_mode="real")(fake(mode, x, False), fake(mode, t, True))
    except (RuntimeError, TypeError, ValueError, IndexError, KeyError, AssertionError):
        return None


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("op", OVERLOADS, ids=str)
@pytest.mark.thinned(60)
def test_numbers_of_a_call(op, kind):
    warnings.simplefilter("ignore")

    def function(x, t):
        return flat(call(op, x, NUMBERS[kind](t)))

    t = torch.zeros(3)
    for dtype in DTYPES:
        x = torch.tensor([[1, 0], [3, 2], [5, 1]]).to(dtype)
        graph = traced(function, x, t)
        if graph is None:
            continue
        with context():
            imported = import_graph(graph)
            if imported.aten:  # called with the number itself, which Python computes before the graph runs
                continue
            found = run(imported.module.body.operations[0], [x, t], imported.objects)
        for ours, expected in zip(found, function(x, t), strict=True):
            assert ours.dtype == expected.dtype and ours.shape == expected.shape
            if not expected.dtype.is_floating_point:
                assert torch.equal(ours, expected), dtype
            limit = 1e-2 if dtype is torch.bfloat16 else 1e-5
            torch.testing.assert_close(ours, expected, equal_nan=True, rtol=limit, atol=limit)
