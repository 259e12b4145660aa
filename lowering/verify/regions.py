"""Verifies ops with regions: their functions take what the op's operands and results are, and overwrite what they may."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.dialects.control_flow.region_ops import INVOKE, NAMES, TRUTH, RegionCall, read_call, region_functions
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.core.memory_ops import arenas
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_info import TensorInfo
from mlirc.dialects.core.tensor_types import info_of, type_of
from mlirc.lowering.module.rules import StageError, expect, text_attribute
from mlirc.lowering.verify.memory import MemoryVerifier

Verify = Callable[[Any], tuple[Int, ...]]


def verify_regions(op: Any) -> None:
    """Raises StageError where the op's operands, results and functions do not fit each other."""
    name = op.operation.name
    planned = "inputs" in op.attributes
    if planned:
        count = attribute_value(op.attributes["inputs"])
        nested = attribute_value(op.attributes["arenas"]) if "arenas" in op.attributes else 1
        numbers = type(count) is int and type(nested) is int and count >= 0 < nested
        fits = numbers and count + nested <= len(op.operands) and not list(op.results)
        wrong = f"{count} inputs and {nested} arenas among {len(op.operands)} operands"
        expect(fits, op, wrong, "results and arenas come after inputs")
    for attribute in ("carried", "scanned"):
        value = attribute_value(op.attributes[attribute]) if attribute in op.attributes else 0
        expect(type(value) is int and value >= 0, op, f"{attribute} = {value}", "a number of operands")
    for value in (*op.operands, *op.results):
        tensor = isinstance(value.type, ir.RankedTensorType)
        expect(tensor, op, f"a {value.type} among its values", "numbers are tensors of no dimension")
        info = info_of(value)
        expect(info.layout == "strided", op, f"a {info.layout} tensor", "strided ones")
    call = read_call(op)
    if name == INVOKE:
        verify_invoke(op, call)
        return
    given, results = ([info_of(x) for x in values] for values in (call.given, call.results))
    expect(call.carried + call.scanned <= len(given), op, "fewer operands than carried", "give where each begins")
    if name == "mlircx.cond":
        expect(bool(given) and given[0] == TRUTH, op, "its first operand is no 0-d bool on the CPU", "copy it there")
        expect(call.carried == call.scanned == 0, op, "a branch that carries values", "give them as operands")
    else:
        carried = given[: call.carried]
        same = carried == results[: call.carried]
        expect(same, op, "a carried value begins as what it is not later", "make types and strides equal")
        spread = any(
            0 not in info.shape and (info.may_overlap or not info.is_dense) for info in results[: call.carried]
        )
        expect(not spread, op, "a carried value has gaps, or shares memory", "copy it first")
    if name == "mlircx.while_loop":
        expect(len(results) == call.carried, op, f"{len(results)} results", f"it carries {call.carried}")
    if name == "mlircx.scan_loop":
        text_attribute(op, "length")
        lengths = given[call.carried : call.carried + call.scanned] + results[call.carried :]
        expect(all(info.rank for info in lengths), op, "a scanned tensor without dimensions", "give it a first one")
        for info in lengths:
            expect(info.shape[0] == call.length, op, f"a length of {info.shape[0]}", f"its own is {call.length}")
    verify_functions(op, call)


def verify_invoke(op: Any, call: RegionCall) -> None:
    """Raises StageError where an invoke names no function before it, or one that takes other arguments."""
    expect(call.carried == call.scanned == 0, op, "an invoke that carries values", "give them as operands")
    text_attribute(op, "callee")
    try:
        (function,) = region_functions(op)
    except ValueError as error:
        raise StageError(op, str(error), "put it there") from error
    verify_function(op, function, call.arguments()[0])


def verify_functions(op: Any, call: RegionCall) -> None:
    """Raises StageError where a region is not one function of the name and arguments that the op gives it (region_ops.NAMES)."""
    names = NAMES[op.operation.name]
    expect(len(op.regions) == len(names), op, f"{len(op.regions)} regions", f"one for each of {', '.join(names)}")
    for region, name, wanted in zip(op.regions, names, call.arguments(), strict=True):
        blocks = list(region.blocks)
        expect(len(blocks) == 1 and len(blocks[0].arguments) == 0, op, "a region of other than one block", "one")
        functions = list(blocks[0].operations)
        only = len(functions) == 1 and functions[0].operation.name == "func.func" and functions[0].name.value == name
        expect(only, op, f"a region that is not one function @{name}", "its code is that function's")
        verify_function(op, functions[0], wanted)


def verify_function(op: Any, function: Any, wanted: list[TensorInfo]) -> None:
    """Raises StageError where a function takes other arguments than `wanted`, has several blocks, or returns values."""
    name, body = function.name.value, function.regions[0].blocks
    expect(len(body) == 1, op, f"@{name} has {len(body)} blocks", "one")
    have = [x.type for x in body[0].arguments]
    fits = have == [type_of(info) for info in wanted]
    expect(fits, op, f"@{name} takes {', '.join(map(str, have))}", f"{', '.join(str(type_of(i)) for i in wanted)}")
    last = list(body[0].operations)[-1] if len(body[0].operations) else None
    ends = last is not None and last.operation.name == "func.return" and len(last.operands) == 0
    expect(ends, op, f"@{name} returns values", "assign them to arguments")


def verify_arena(op: Any, memory: MemoryVerifier) -> None:
    """Raises StageError where the last operands are not, device by device, as large as the arenas of the regions' functions."""
    call = read_call(op)
    if not call.arenas:
        return
    bytes_: dict[str, Int] = {}
    for info in map(info_of, call.arenas):
        expect(info.dtype == torch.uint8 and info.rank == 1 and info.is_dense, op, "its arena is no bytes", "a slot")
        expect(info.device not in bytes_, op, f"two arenas on {info.device}", "one")
        bytes_[info.device] = info.shape[0]
    for function in region_functions(op):
        for device, size in arenas(function).items():
            there = bytes_.get(device, 0)
            wrong = f"@{function.name.value} has an arena of {size} bytes on {device}, where there are {there}"
            memory.nonnegative(op, there - size, wrong, "make the last operand larger")


def may_write(op: Any) -> list[list[bool]]:
    """For each region's function, and each of its arguments, whether it may overwrite that argument.

    Those are the results, which stand last; in a loop's @body the carried values, which stand first, and a scan's stacked results, last; in
    @condition the 0-d bool, last (region_ops.py has each function's arguments).
    """
    call = read_call(op)
    counts = [len(arguments) for arguments in call.arguments()]

    def writable(count: int, first: int, last: int) -> list[bool]:
        return [k < first or k >= count - last for k in range(count)]

    match op.operation.name:
        case "mlircx.while_loop":
            condition, body = counts
            return [writable(condition, 0, 1), writable(body, call.carried, 0)]
        case "mlircx.scan_loop":
            return [writable(counts[0], call.carried, len(call.results) - call.carried)]
        case _:  # a branch, or an invoke
            return [writable(count, 0, len(call.results)) for count in counts]
