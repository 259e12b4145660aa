"""Every ATen overload that takes a number, with NaN, infinities, huge and negative numbers, booleans and complex ones, in every kind of dtype."""

import math
import re
import warnings
from contextlib import nullcontext

import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import IMPORTS, load_ops
from mlirc.dialects.interpreter.interpreter import run
from tests.compare_stages import flat, prepare
from tests.fuzz.compare import different

load_ops()
NUMBER = ("number", "Optional[number]", "float", "Optional[float]")
VALUES = (math.nan, math.inf, -math.inf, -0.0, 1e300, 2**62, -(2**62), 2**40, 300, True, 0, 0.5, -3, -1.0, 1 + 2j)
DTYPES = (torch.float32, torch.bfloat16, torch.int32, torch.uint8, torch.bool, torch.complex64)
GIVEN = {"Tensor": lambda x: x, "Optional[Tensor]": lambda x: None, "int": lambda x: 0, "bool": lambda x: False}
# Private operators do not check their operands: some crash. pow's meta function promises another dtype than it gives.
LEFT = re.compile(r"aten\._[a-z]|aten\.pow\.Tensor_Scalar")
# The rounding of half types shows where huge numbers meet others (docs/decisions.md, "Half types").
ROUNDED = (torch.bfloat16,)


def takes_numbers(op) -> bool:
    kinds = [str(a.type) for a in op._schema.arguments if not a.has_default_value() or str(a.type) in NUMBER]
    return (
        any(kind in NUMBER for kind in kinds)
        and all(kind in NUMBER or kind in GIVEN for kind in kinds)
        and "Tensor" in kinds
        and not LEFT.match(str(op))
    )


OVERLOADS = sorted((op for op in IMPORTS if isinstance(op, torch._ops.OpOverload) and takes_numbers(op)), key=str)


def call(op, x, value):
    """The operator with this number for each number that it takes."""
    given = {}
    for a in op._schema.arguments:
        kind = str(a.type)
        if kind in NUMBER or not a.has_default_value():
            given[a.name] = value if kind in NUMBER else GIVEN[kind](x)
    positional = [given.pop(a.name) for a in op._schema.arguments if a.name in given and not a.kwarg_only]
    return op(*positional, **given)


def accepted(op, x) -> list:
    """The numbers that eager and PyTorch's own tracing take."""
    values = []
    for value in VALUES:
        try:
            call(op, x, value)
            call(op, x.to("meta"), value)
        except (RuntimeError, TypeError, ValueError, IndexError, OverflowError, NotImplementedError):
            continue
        values.append(value)
    return values


# Of bounds that are NaN eager gives one gradient in vectors, as ours, and another in the rest of a row.
OF_TWO_ANSWERS = [
    getattr(torch.ops.aten, name).default
    for name in ("hardshrink_backward", "softshrink_backward", "hardtanh_backward", "logit_backward")
]


def refused(op, x) -> list:
    """The numbers that eager refuses, and PyTorch's own tracing takes."""
    return [value for value in VALUES if raises(op, x, value) and not raises(op, x.to("meta"), value)]


def raises(op, x, value) -> bool:
    try:
        call(op, x, value)
    except (
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
        ArithmeticError,
        AttributeError,
    ):  # the last of meta functions
        return True
    return False


@pytest.mark.thinned(15)
@pytest.mark.parametrize("op", OVERLOADS, ids=str)
def test_numbers_that_eager_refuses(op):
    """They are ATen's, which raises."""
    warnings.simplefilter("ignore")
    for dtype in (*DTYPES, torch.float16):
        x = torch.tensor([[1, 0], [3, 2], [5, 1]]).to(dtype)
        for value in refused(op, x):

            def function(x, value=value):
                with getattr(x, "fake_mode", nullcontext()):
                    return flat(call(op, x, value))

            with context():
                try:
                    _, imported = prepare(function, x)
                except (RuntimeError, TypeError, ValueError, ArithmeticError, AssertionError):
                    continue  # refused while it is traced or imported: the graph runs in eager
            assert imported.aten, (dtype, value)


@pytest.mark.thinned(15)
@pytest.mark.parametrize("op", OVERLOADS, ids=str)
def test_numbers(op):
    warnings.simplefilter("ignore")
    for dtype in DTYPES:
        x = torch.tensor([[1, 0], [3, 2], [5, 1]]).to(dtype)
        values = accepted(op, x)

        def function(x, values=values):
            with getattr(x, "fake_mode", nullcontext()):
                return [y for value in values for y in flat(call(op, x, value))]

        if not values:
            continue
        with context():
            top, imported = prepare(function, x)  # whatever it does not take is ATen's
            found = run(top, [x], imported.objects)
        in_vectors = function(x.repeat(32, 1)) if op in OF_TWO_ANSWERS else function(x)
        for ours, eager, other in zip(found, function(x), in_vectors, strict=True):
            assert ours.dtype == eager.dtype and ours.shape == eager.shape
            wrong = different(eager, ours, None)
            if op in OF_TWO_ANSWERS:
                wrong &= different(other[: len(eager)], ours, None)
            assert dtype in ROUNDED or not wrong.any(), (dtype, values, ours, eager)
