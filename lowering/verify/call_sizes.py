"""Checks that the sizes of a library call's operands agree: for all values of the symbols, or before each run.

The calls' own rules (verify/stage.py, attention/call.py, convolution/call.py, depthwise_call.py) compare what is written down.
Here is what they take on trust, as the sizes of a traced graph are tied by PyTorch's guards.
"""

from collections.abc import Iterator
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.cpu.attention.call import AttentionProblem, read_attention, read_gradients
from mlirc.lowering.cpu.convolution.call import KINDS, SpatialAxis, numbers, read_convolution
from mlirc.lowering.cpu.convolution.depthwise_call import read_depthwise
from mlirc.lowering.module.rules import callee_of, expect
from mlirc.lowering.verify.memory import MemoryVerifier

Tie = tuple[str, Int, Int]  # what it is, and two sizes that are equal


def verify_call_sizes(op: Any, memory: MemoryVerifier) -> None:
    """Raises StageError where sizes differ, or are not known before the run."""
    for what, x, y in ties(op):
        if x != y:
            for goal in (x - y, y - x):
                memory.nonnegative(op, goal, f"{what}: {x} and {y}", "make them equal")


def ties(op: Any) -> Iterator[Tie]:
    name = callee_of(op)
    if name == "attention":
        yield from of_attention(op, read_attention(op))
    elif name == "attention_backward":
        yield from of_attention(op, read_gradients(op).call)
    elif name in KINDS:
        yield from of_convolution(op, name)
    elif name == "depthwise_weight_gradient":
        c = read_depthwise(op)
        yield from of_windows(c.rows, 0)
        yield from of_windows(c.columns, 0)


def of_attention(op: Any, a: AttentionProblem) -> Iterator[Tie]:
    yield "keys and values", a.k.shape[2], a.v.shape[2]
    if a.mask:
        dtypes = a.mask.dtype in (a.q.dtype, torch.float32) or a.mask.dtype.itemsize == 1
        expect(dtypes, op, f"a mask of {a.mask.dtype} for {a.q.dtype}", "booleans, float32, or the query's dtype")


def of_convolution(op: Any, name: str) -> Iterator[Tie]:
    c = read_convolution(op)
    more = numbers(op, "more") if c.kind == "input" else (0, 0)
    for axis, end in zip((c.rows, c.columns), more, strict=True):
        yield from of_windows(axis, end)
    values = [info_of(x) for x in (*op.operands, *op.results)]
    dtypes = {x.dtype for x in values}
    expect(len(dtypes) == 1, op, "operands and result of several dtypes", "cast them")
    beside = values[2:-1]
    if c.adds:
        other = beside.pop(0)
        expect(other.shape == c.out.shape, op, f"adds {list(other.shape)} to {list(c.out.shape)}", "as large")
        strides = other.stride == c.out.stride  # it is read by the result's addresses
        expect(strides, op, f"adds what lies by {list(other.stride)} to {list(c.out.stride)}", "copy it first")
    for factor in beside:
        dense = factor.rank == 1 and factor.stride == (1,)
        expect(dense, op, f"a factor by strides {list(factor.stride)}", "one after the other")
        wanted = (c.out.shape[1],)
        expect(factor.shape == wanted, op, f"a factor {list(factor.shape)}", f"one for each of {wanted[0]} filters")


def of_windows(axis: SpatialAxis, end: int) -> Iterator[Tie]:
    reach = (axis.size - 1) * axis.spread + 2 * axis.padding - axis.dilation * (axis.taps - 1)
    yield "windows", axis.count, symbols.floordiv(reach, axis.stride) + 1 + end
