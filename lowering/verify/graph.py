"""Checks a graph-level op by what it means: its kernel form or its expansion is built from its operands' types and attributes.

An op's class says in one place what it computes (dialects/ops/). Here that is made once more beside the module, of
arguments with the operands' types; the kernel's reads and writes must stay within the operands and the results that are
written down, and an expansion must have their types. So an op of anybody's is verified without a rule of its own.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlirc.dialects.core import composites
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, Composite, Elementwise, attribute_value
from mlirc.dialects.core.graph_builder import broadcast_shape
from mlirc.dialects.core.kernel_builder import KernelBuilder
from mlirc.dialects.core.kernel_forms import form_of
from mlirc.dialects.core.symbols import Int
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES, TensorInfo, info_of, type_of
from mlirc.lowering.module.rules import StageError, expect, rules_of
from mlirc.lowering.verify.memory import MemoryVerifier

Verify = Callable[[Any], None]
KEPT = 20_000  # ops that were found right
_right: set[tuple] = set()


def verify_meaning(op: Any, memory: MemoryVerifier, verify: Verify) -> None:
    """Raises StageError where results or attributes do not fit the operands. `verify` checks each op that it is made of."""
    cls = OPS.get(op.operation.name.removeprefix("mlirc."))
    if cls is None or (form_of(cls) is None and not issubclass(cls, Composite)):
        return
    infos = [info_of(x) for x in op.operands]
    key = (
        op.operation.name,
        tuple((name, op.operation.attributes[name]) for name in op.operation.attributes),
        tuple(x.type for x in op.operands),
        tuple(x.type for x in op.results),
        memory.facts,
        memory.demand and frozenset(memory.bound),
    )
    if key in _right:
        return
    before = memory.facts
    if "dim" in op.attributes:
        dim, rank = attribute_value(op.attributes["dim"]), infos[0].rank
        fits = type(dim) is int and 0 <= dim < max(rank, 1)  # a 0-d tensor counts as one of rank 1
        expect(fits, op, f"dimension {dim} of {rank}", "count from 0, and below the operand's rank")
    if issubclass(cls, Elementwise):
        verify_elementwise(op, cls, infos)
    holder = ir.Operation.create("mlircx.kernel", regions=1, ip=False)
    device = next((i.device for i in map(info_of, op.results)), "cpu")
    # a number may be on another device until scalars-to-device copies it; a copy may lead from one device to another
    moves = op.operation.name == "mlirc.copy"
    types = [
        type_of(replace(i, device=device)) if moves or not i.rank else x.type
        for i, x in zip(infos, op.operands, strict=True)
    ]
    block = ir.Block.create_at_start(holder.regions[0], types, [op.location] * len(infos))
    with ir.InsertionPoint(block), op.location:
        copied = ir.Operation.create(
            op.operation.name,
            results=[x.type for x in op.results],
            operands=list(block.arguments),
            attributes={name: op.attributes[name] for name in op.attributes},
        )
        with rules_of(op):
            values = build(cls, copied.opview)
    expect(
        len(values) == len(op.results), op, f"{len(op.results)} results where it gives {len(values)}", "see its class"
    )
    for k, (value, result) in enumerate(zip(values, op.results, strict=True)):
        have, made = info_of(result), info_of(value)
        same = (have.dtype, have.shape) == (made.dtype, made.shape)
        expect(same, op, f"result {k} is {have.dtype} {have.shape}", f"it gives {made.dtype} {made.shape}")
    for made in list(block.operations):
        if made.operation == copied:
            continue
        try:
            verify(made)
        except StageError as error:
            detail = str(error).partition("): ")[2] or str(error)
            raise StageError(
                op, f"{op.operation.name.removeprefix('mlirc.')} of {shapes(infos)}: {detail}", "see its class"
            ) from error
    if len(_right) < KEPT and before == memory.facts:  # it left no obligations
        _right.add(key)


def build(cls: type, op: Any) -> list[ir.Value]:
    """The values that the op's form or expansion gives for its results, at the insertion point."""
    form = form_of(cls)
    return list(form(KernelBuilder, op)) if form is not None else composites.expand(op)


def shapes(infos: list[TensorInfo]) -> str:
    return ", ".join(str(list(info.shape)) for info in infos)


def verify_elementwise(op: Any, cls: Any, infos: list[TensorInfo]) -> None:
    """What can be said in fewer words than by the kernel."""
    out = info_of(op.results[0])
    given: list[tuple[Int, ...]] = [info.shape for info in infos]
    try:
        shape = broadcast_shape(given)
    except ValueError as error:
        raise StageError(op, str(error), "make their sizes equal, or 1") from error
    expect(
        shape == out.shape,
        op,
        f"{shapes(infos)} gives {list(shape)}, not {list(out.shape)}",
        "correct the result's type",
    )
    for info in (*infos, out):
        expect(info.dtype in KERNEL_DTYPES, op, f"kernels do not compute with {info.dtype}", "call ATen")
