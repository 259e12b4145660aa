"""Updates in place by results that a tensor's dtype cannot hold: eager raises, and so does a compiled function."""

import itertools
import operator

import pytest
import torch
from torch.fx import Graph, GraphModule
from torch.utils.checkpoint import checkpoint

from mlirc.frontend.fallback.refused_updates import REFUSED, is_update, refused_update

PROGRAMS = {
    "a number": (torch.int64, lambda a: a.mul_(2.5)),
    "a tensor": (torch.float32, lambda a: a.add_(torch.ones(4, dtype=torch.complex64))),
    "after another": (torch.bool, lambda a: operator.imul(a.logical_not_(), torch.full((4,), 2))),
    "of no operand": (torch.int64, lambda a: a.logit_()),
    "a list": (torch.int64, lambda a: torch._foreach_mul_([a], 2.5)),  # type: ignore[reportPrivateImportUsage]
    "into": (torch.bool, lambda a: torch.mul(a, torch.ones(4), out=a)),
    "of a computed tensor": (torch.int64, lambda a: (a + 1).mul_(2.5)),
}
"""Updates of a tensor of this dtype and 4 elements."""


@pytest.mark.thinned(7)
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_programs(name, dynamic):
    dtype, program = PROGRAMS[name]

    def f(a):
        b = a.add_(1) if a.dtype != torch.bool else a
        program(b)
        return a

    expected, found = torch.arange(4).to(dtype), torch.arange(4).to(dtype)
    with pytest.raises(RuntimeError, match=REFUSED):
        f(expected)
    with pytest.raises(RuntimeError):
        torch.compile(f, backend="mlirc", dynamic=dynamic)(found)
    if name != "into":  # Dynamo itself raises
        torch.testing.assert_close(found, expected)


def test_a_function_of_an_operator():
    def update(a, b):
        return a.mul_(b)

    @torch.compile(backend="mlirc")
    def f(a, b):
        return checkpoint(update, a, b, use_reentrant=False)

    with pytest.raises(RuntimeError, match=REFUSED):
        f(torch.ones(3, dtype=torch.int64), torch.ones(3, requires_grad=True))


@pytest.mark.parametrize("extreme", [max, min])
def test_the_larger_of_an_integer_and_a_float_is_the_one_or_the_other(extreme):
    """Dynamo's is a float, by which eager would not multiply integers."""

    def f(a, n):
        return a.mul_(extreme(n, 2.5))

    run = torch.compile(f, backend="mlirc", dynamic=True)
    for n in (2, 3, 7, 1):
        expected, found = torch.arange(4), torch.arange(4)
        if extreme(n, 2.5) == 2.5:
            with pytest.raises(RuntimeError, match=REFUSED):
                run(found, n)
        else:
            assert torch.equal(run(found, n), f(expected, n))


def test_what_is_allowed_is_compiled():
    def f(a, i):
        a.mul_(i).add_(2.5).mul_(a.double())
        i.copy_(a * 1.5).mul_(2).bitwise_or_(i > 3)
        return a

    found = torch.compile(f, backend="mlirc", options={"fallback": "error"})(torch.ones(4), torch.arange(4))
    torch.testing.assert_close(found, f(torch.ones(4), torch.arange(4)))


TERNARY = ("addcdiv_", "addcmul_", "clamp_")
DTYPES = (torch.bool, torch.int32, torch.float16, torch.float32, torch.complex64)


def test_every_update():
    """Each elementwise update by tensors of each kind."""
    names = sorted({x for x in dir(torch.Tensor) if x.endswith("_") and not x.startswith("_")})
    told = {True: 0, False: 0}
    for name, dtype, others in itertools.product(names, DTYPES, (0, 1, 2)):
        if (others == 2) != (name in TERNARY):
            continue
        for kind in DTYPES if others else DTYPES[:1]:
            told[check(name, dtype, others, kind)] += 1
    assert min(told.values()) > 100, told


def check(name, dtype, others, kind):
    graph = Graph()
    operands = []
    for k in range(1 + others):
        node = graph.placeholder(f"x{k}")
        node.meta["example_value"] = torch.ones(3, dtype=kind if k else dtype)
        operands.append(node)
    node = graph.call_method(name, tuple(operands))
    graph.output(node)
    if not is_update(node):
        return False
    values = [x.meta["example_value"].clone() for x in operands]
    try:
        getattr(values[0], name)(*values[1:])
        raised = False
    except Exception as error:
        raised = REFUSED in str(error)
    found = refused_update(GraphModule({}, graph))
    assert (found is not None) == raised, (name, dtype, others, kind, found)
    return raised
