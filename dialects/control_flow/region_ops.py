"""Ops that run functions, the same at every level. `mlircx.while_loop`, `mlircx.cond` and `mlircx.scan_loop` hold functions in regions;
`mlircx.invoke` names one.

Each region holds one `func.func`. It uses no value from outside, so passes, verifiers and the interpreter treat it as they treat @graph.
It has no results. It overwrites some of its arguments, as a graph does that mutates its inputs:

    %r:2 = "mlircx.while_loop"(%n, %x, %c) ({
      func.func @condition(%n: tensor<i64>, %x: tensor<8xf32>, %c: tensor<8xf32>, %goes_on: tensor<i1>) { ... assign(%goes_on, %0) }
    }, {
      func.func @body(%n: tensor<i64>, %x: tensor<8xf32>, %c: tensor<8xf32>) { ... assign(%n, %1)  assign(%x, %2) }
    }) {carried = 2 : i64} : (...) -> (tensor<i64>, tensor<8xf32>)

Functions that several calls share stand in the module, before those that call them, so that none calls itself:

    func.func @region_0(%x: tensor<8xf32>, %w: tensor<8x8xf32>, %y: tensor<8xf32>) { ... assign(%y, %1) }
    func.func @graph(...) { %a = "mlircx.invoke"(%x, %w0) {callee = "region_0"}   %b = "mlircx.invoke"(%a, %w1) {callee = "region_0"} ... }

At graph and kernel level the results are values. At memory level the op has no results: `inputs` says how many operands it reads, and it
writes the others. These are the buffers of the results, and buffers of bytes, the arenas of the regions' functions: the CPU's, and one for each
GPU on which a function has one; `arenas` is their number, 1 where it is absent.

What a host program branches on is on the CPU: the first operand of a cond, and what @condition overwrites. One on a GPU is copied first.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import ListOp, attribute_value
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass


class WhileLoop(ListOp, name="while_loop", regions=2):
    """Runs @body as long as @condition says so. The first `carried` operands are where the results begin; all others are only read.

    @condition   (results, other operands, a 0-d bool, which it overwrites)
    @body        (results, which it overwrites, other operands)
    """


class Cond(ListOp, name="cond", regions=2):
    """Runs @true where the first operand, a 0-d bool, holds, else @false: (other operands, results, which it overwrites)."""


class ScanLoop(ListOp, name="scan_loop", regions=1):
    """Runs @body for each index of the first dimension of some operands, 0 to `length` - 1, a size expression.

    operands   `carried` values, `scanned` tensors of that length, and others, which are only read
    results    the carried values after the last index, and tensors of that length, which are stacked of what each index gives
    @body      (carried, which it overwrites, parts of the scanned, others, parts of the stacked, which it overwrites)
    """


class Invoke(ListOp, name="invoke"):
    """Runs the function `callee` of the module: (operands, results, which it overwrites)."""


INVOKE = "mlircx.invoke"
SHARED_NAME = "region_"  # how the names of functions begin that are invoked
REGION_OPS = frozenset(("mlircx.while_loop", "mlircx.cond", "mlircx.scan_loop", INVOKE))
NAMES = {
    INVOKE: (),
    "mlircx.while_loop": ("condition", "body"),
    "mlircx.cond": ("true", "false"),
    "mlircx.scan_loop": ("body",),
}
"""The functions of an op's regions, in order."""

TRUTH = TensorInfo(torch.bool, ())


def region_functions(op: Any) -> list[Any]:
    """The functions of an op's regions, or the one that it names; [] of an op that is none of these. Raises ValueError where there is no
    function of that name before the one that the op is in."""
    if op.operation.name not in REGION_OPS:
        return []
    if op.operation.name == INVOKE:
        return [callee(op)]
    return [function for region in op.regions for function in region.blocks[0].operations]


def held_functions(op: Any) -> list[Any]:
    """The functions of an op's regions, or the one that it names, as far as they are there: the op need not be verified."""
    try:
        found = region_functions(op)
    except (ValueError, IndexError, KeyError):  # a verifier says what is wrong
        return []
    return [
        function for function in found if function.operation.name == "func.func" and len(function.regions[0].blocks)
    ]


def nested_functions(function: Any) -> Iterator[Any]:
    """The functions within a function and those that it names, each once and after those within it.

    The module need not be verified: what is no function, or is missing, is left out.
    """
    invoked: set[str] = set()

    def within(outer: Any) -> Iterator[Any]:
        for op in [op for block in outer.regions[0].blocks for op in block.operations]:
            if op.operation.name not in REGION_OPS:
                continue
            for inner in held_functions(op):
                if op.operation.name == INVOKE:
                    if inner.name.value in invoked:
                        continue
                    invoked.add(inner.name.value)
                yield from within(inner)
                yield inner

    yield from within(function)


def callee(op: Any) -> Any:
    """The function that an invoke names, one of those before the function that the op is in. Raises ValueError."""
    name, at = attribute_value(op.attributes["callee"]), op.operation
    if not name.startswith(SHARED_NAME):
        raise ValueError(f"@{name} is no function to invoke: their names begin with {SHARED_NAME}")
    while at.parent is not None and at.parent.parent is not None:
        at = at.parent.operation
    for other in module_body(op).operations:
        if other.operation == at:
            break
        if other.operation.name == "func.func" and other.name.value == name and other.regions[0].blocks:
            return other
    raise ValueError(f"there is no function @{name} before the one that invokes it")


def is_shared(function: Any) -> bool:
    """Whether a function is one that `mlircx.invoke` names."""
    return function.name.value.startswith(SHARED_NAME)


def module_body(op: Any) -> Any:
    """The block of the module that the op is in."""
    op = op.operation
    while op.parent is not None:
        op = op.parent.operation
    return op.regions[0].blocks[0]


@dataclass(frozen=True)
class RegionCall:
    """The operands and results of an op with regions, at any level, by their roles. `arenas` are those of the regions' functions, none
    before the memory level."""

    op: Any
    carried: int
    scanned: int
    given: list[ir.Value]
    results: list[ir.Value]
    arenas: list[ir.Value]

    @property
    def length(self) -> Int:
        """How often a scan's body runs."""
        return symbols.parse(attribute_value(self.op.attributes["length"]))

    def arguments(self) -> list[list[TensorInfo]]:
        """The arguments of each region's function."""
        return arguments_of(
            self.op.operation.name,
            self.carried,
            self.scanned,
            [info_of(x) for x in self.given],
            [info_of(x) for x in self.results],
        )

    def sources(self) -> list[list[ir.Value | None]]:
        """What each argument of each region's function is a value of, or a part of at one index; None for the 0-d bool of @condition."""
        name, given, results, carried = self.op.operation.name, self.given, self.results, self.carried
        if name == INVOKE:
            return [[*given, *results]]
        if name == "mlircx.cond":
            return [[*given[1:], *results]] * 2
        loop = [*results[:carried], *given[carried:]]
        return [[*loop, None], loop] if name == "mlircx.while_loop" else [[*loop, *results[carried:]]]


def read_call(op: Any) -> RegionCall:
    carried, scanned = (
        attribute_value(op.attributes[name]) if name in op.attributes else 0 for name in ("carried", "scanned")
    )
    operands, results = list(op.operands), list(op.results)
    if "inputs" not in op.attributes:
        return RegionCall(op, carried, scanned, operands, results, [])
    count = attribute_value(op.attributes["inputs"])
    last = len(operands) - (attribute_value(op.attributes["arenas"]) if "arenas" in op.attributes else 1)
    return RegionCall(op, carried, scanned, operands[:count], operands[count:last], operands[last:])


def arguments_of(
    name: str, carried: int, scanned: int, given: Sequence[TensorInfo], results: Sequence[TensorInfo]
) -> list[list[TensorInfo]]:
    """The arguments of each region's function, for an op with these operands and results."""
    if name == INVOKE:
        return [[*given, *results]]
    if name == "mlircx.cond":
        return [[*given[1:], *results]] * 2
    loop = [*results[:carried], *given[carried:]]
    if name == "mlircx.while_loop":
        return [[*loop, TRUTH], loop]
    parts = map(part, given[carried : carried + scanned])
    return [[*results[:carried], *parts, *given[carried + scanned :], *map(part, results[carried:])]]


def part(info: TensorInfo) -> TensorInfo:
    """The tensor at one index of the first dimension."""
    return replace(info, shape=info.shape[1:], stride=info.stride[1:])
