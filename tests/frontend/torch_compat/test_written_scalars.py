"""Writes to float64 tensors without dimensions, which Dynamo drops under `aot_eager`, are kept."""

import itertools

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend
from torch.utils._pytree import tree_leaves

from mlirc.codegen.abi import reach
from mlirc.frontend.torch_compat.dynamo import written_scalars
from tests import sampling

WRITES = {
    "a product": lambda v, x: v.mul_(2),
    "a function": lambda v, x: torch.neg(v, out=v),
    "an element": lambda v, x: v.copy_(x[0]),
    "a number": lambda v, x: v.fill_(3),
    "an index": lambda v, x: v.__setitem__((), 5),
    "two writes": lambda v, x: v.add_(1).mul_(2),
    "by itself": lambda v, x: v.add_(v),
}
RESULTS = {
    "nothing": lambda v, x: None,
    "the scalar": lambda v, x: v,
    "another": lambda v, x: x.chunk(2),
    "both": lambda v, x: x * v,
}
SCALARS = {
    "alone": lambda: torch.tensor(1.5, dtype=torch.float64),
    "an element": lambda: torch.arange(3, dtype=torch.float64)[1],
    "float32": lambda: torch.tensor(1.5),
    "an integer": lambda: torch.tensor(3),
}


def check(function, *make, backend="mlirc", options=None, **how):
    """Compares arguments and results with eager's, in two calls."""
    expected, found = [one() for one in make], [one() for one in make]
    if backend == "mlirc":
        options = {"fallback": "error", **(options or {})}
    compiled = torch.compile(function, backend=backend, options=options, **how)
    for _ in range(2):
        wanted, got = function(*expected), compiled(*found)
        for e, f in zip(tree_leaves((wanted, expected)), tree_leaves((got, found)), strict=True):
            torch.testing.assert_close(f, e, rtol=0, atol=0)


def numbers():
    return torch.arange(4, dtype=torch.float64)


@pytest.mark.parametrize("dynamic", [None, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("scalar", SCALARS)
def test_a_write_is_kept(scalar, dynamic):
    """Each write with each result. By default a scalar has every write with one of the results, and with another where sizes are symbols."""
    first = (list(SCALARS).index(scalar) + 2 * bool(dynamic)) % 4
    pairs = [*itertools.product(WRITES.values(), RESULTS.values())]
    for write, result in sampling.some(pairs[first:] + pairs[:first], 4):

        def function(v, x, write=write, result=result):
            write(v, x)
            return result(v, x)

        torch._dynamo.reset()
        check(function, SCALARS[scalar], numbers, dynamic=dynamic)


def test_a_write_behind_a_graph_break():
    def function(b, c, k):
        v = b[0]
        b.add_(1)
        torch._dynamo.graph_break()
        v.mul_(2)
        return c.chunk(k), v

    check(function, numbers, numbers, lambda: 3)


def read(v, x):
    return x + v


def write(v, x):
    v.mul_(2)
    return x.sin()


def test_after_another_backend_compiled_a_function_with_a_scalar():
    """The other backend leaves the name of the scalar's symbol, by which Dynamo drops the write before mlirc is called."""
    torch._dynamo.reset()
    torch.compile(read, backend="aot_eager")(SCALARS["alone"](), numbers())
    assert written_scalars.specialized_floats()
    check(write, SCALARS["alone"], numbers)


def test_beside_a_python_float_that_becomes_a_constant():
    def function(v, x, scale):
        v.mul_(2)
        return torch.nn.functional.interpolate(x.view(1, 1, -1), scale_factor=scale, recompute_scale_factor=True)

    for scale in (2.0, 1.5, 2.5):
        check(function, SCALARS["alone"], numbers, lambda scale=scale: scale, dynamic=True)


@pytest.mark.parametrize(
    "result",
    [
        lambda v, x: x * v.item(),
        lambda v, x: x.new_ones(int(v.item()) + 3),
        lambda v, x: x[: int(v.item())] + v,
    ],
)
def test_a_scalar_that_is_written_and_read_as_a_number(result):
    def function(v, x):
        v.mul_(2)
        return result(v, x)

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        check(function, SCALARS["alone"], numbers, options={"fallback": "eager"})


def test_what_fails_and_runs_in_eager_keeps_its_writes(monkeypatch):
    from mlirc.frontend.driver import driver

    def fail(*given):
        raise ValueError("on purpose")

    monkeypatch.setattr(driver, "compile_captured", fail)
    with pytest.warns(UserWarning, match="on purpose"):
        check(write, SCALARS["alone"], numbers, options={"fallback": "eager"})


def test_a_function_with_a_scalar_is_traced_once():
    counter = CompileCounterWithBackend("mlirc")
    torch.compile(read, backend=counter)(SCALARS["alone"](), numbers())
    assert counter.frame_count == 1
    assert not written_scalars.specialized_floats()


def test_without_the_set_the_write_is_lost_as_under_aot_eager(monkeypatch):
    """Where this fails, PyTorch keeps the write itself, and there is nothing left to mend."""
    monkeypatch.setenv(reach.VARIABLE, "specialized-floats")
    written_scalars.specialized_floats.forget()
    try:
        for name in ("mlirc", "aot_eager"):
            torch._dynamo.reset()
            with pytest.raises(AssertionError):
                check(write, SCALARS["alone"], numbers, backend=name)
    finally:
        monkeypatch.undo()
        written_scalars.specialized_floats.forget()
