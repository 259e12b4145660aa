"""A module in float64: each floating-point type becomes f64, so that the interpreter gives what is nearly the exact answer.

Buffers of the memory form get memory of their own, as slots have no room for wider elements.
"""

import re
from collections.abc import Iterator
from typing import Any

import torch

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.memory_ops import set_arenas
from mlirc.dialects.core.tensor_types import change_types, element_type, info_of, type_of
from mlirc.dialects.interpreter.gpu_operators import never_draws

WIDER = {
    torch.float32: torch.float64,
    torch.float16: torch.float64,
    torch.bfloat16: torch.float64,
    torch.complex64: torch.complex128,
    torch.complex32: torch.complex128,
}
_DTYPE = re.compile(r'(\{"dtype": ")(?:float32|float16|bfloat16)("\})')


def in_float64(module: ir.Module) -> ir.Module | None:
    """A copy of the module with float64 for other floating-point types; None where bits would mean something else, or where random numbers
    are drawn into memory that is there. An operator that draws keeps its dtypes, between casts: in others it draws other numbers."""
    with context():
        copy = ir.Module.parse(module.operation.get_asm(enable_debug_info=True))
        ops = list(_operations(copy.operation))
        draws = [draws_random_numbers(op) for op in ops]
        kept = [(op, [x.type for x in op.operands]) for op, one in zip(ops, draws, strict=True) if one]
        if not all(writes_nothing(op) for op, _ in kept):
            return None
        for op, one in zip(ops, draws, strict=True):
            if "bitcast" in op.operation.name or "philox" in op.operation.name:
                return None
            if not one:
                _widen(op)
        for op, types in kept:
            _put_between_casts(op, types)
        return copy


def draws_random_numbers(op: Any) -> bool:
    if not op.operation.name.startswith("mlircx.aten"):
        return False
    from mlirc.dialects.core import aten_arguments

    operator = aten_arguments.resolve(attribute_value(op.attributes["op"]))
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    return not never_draws(operator, *aten_arguments.parse(attribute_value(op.attributes["args"])))


def writes_nothing(op: Any) -> bool:
    """Whether the results of an ATen call are new tensors, and its operands are left as they are."""
    from mlirc.dialects.core import aten_arguments

    if "aliases" not in op.attributes or "inputs" in op.attributes:
        return False
    aliases = symbols.parse_list(attribute_value(op.attributes["aliases"]))
    schema = aten_arguments.resolve(attribute_value(op.attributes["op"]))._schema
    return all(str(k) == "-1" for k in aliases) and not schema.is_mutable


def _put_between_casts(op: Any, types: list[Any]) -> None:
    """Leaves an op in its own types, where values around it have become wider. `types` are those of its operands before."""
    for k, (x, own) in enumerate(zip(list(op.operands), types, strict=True)):
        if x.type != own:
            with ir.InsertionPoint(op), op.location:
                op.operation.operands[k] = create("cast", [x], [own]).results[0]
    for x in op.results:
        if _wider(x.type) != x.type:
            with ir.InsertionPoint.after(op.operation), op.location:
                wide = create("cast", [x], [_wider(x.type)])
            x.replace_all_uses_except(wide.results[0], wide.operation)


def _operations(op: Any) -> Iterator[Any]:
    """All ops within functions of ours: the code of kernels stays, which the interpreter does not read."""
    for region in op.regions:
        for block in region.blocks:
            for inside in block.operations:
                name = inside.operation.name
                code = name == "func.func" and inside.name.value.startswith("kernel_")
                if not code and name not in ("llvm.func", "mlirc.triton"):
                    yield from _operations(inside)
                    yield inside


def _widen(op: Any) -> None:
    change_types(op, _wider)
    if op.operation.name == "func.func" and "mlirc.arena" in op.attributes:
        set_arenas(op, {"cpu": 0})
    elif op.operation.name.startswith("mlircx.aten"):
        args = _DTYPE.sub(r"\1float64\2", attribute_value(op.attributes["args"]))
        op.attributes["args"] = ir.StringAttr.get(args)
    elif op.operation.name == "mlirc.slot":
        with ir.InsertionPoint(op), op.location:
            made = create("allocate", [], [op.results[0].type])
        op.results[0].replace_all_uses_with(made.results[0])
        op.operation.erase()


def _wider(type_: Any) -> Any:
    if isinstance(type_, ir.RankedTensorType):
        info = info_of(type_)
        return type_of(info.with_dtype(WIDER[info.dtype])) if info.dtype in WIDER else type_
    for narrow, wide in WIDER.items():
        if type_ == element_type(narrow):
            return element_type(wide)
    return type_


def widened(value: Any) -> Any:
    """An input of a module for the module in float64."""
    if not isinstance(value, torch.Tensor) or value.dtype not in WIDER:
        return value
    memory = torch.empty_strided(value.shape, value.stride(), dtype=WIDER[value.dtype])
    if any(s == 0 and n > 1 for n, s in zip(value.shape, value.stride(), strict=True)):
        base = value.as_strided(
            [1 if s == 0 else n for n, s in zip(value.shape, value.stride(), strict=True)], value.stride()
        )
        return base.to(WIDER[value.dtype]).expand(value.shape) if 0 not in value.shape else memory
    return memory.copy_(value)
