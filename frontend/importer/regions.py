"""Imports operators that take functions, `cond`, `while_loop`, `scan` and `map`, as ops with regions (control_flow/region_ops.py).

    while_loop(condition, body, (n, x), (c,))   ->   "mlircx.while_loop"(%n, %x, %c) ({ func.func @condition ... }, { func.func @body ... })

The graph of each function is imported as @graph is, with its results assigned to arguments. What a region cannot hold raises NotOurs with
the reason: then the operator is called, and its functions run in eager.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.control_flow.region_ops import NAMES, TRUTH, arguments_of
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.frontend.importer.bodies import constants_of, is_shared_region, whole_or_nothing
from mlirc.frontend.importer.locations import location_of
from mlirc.frontend.importer.shared_functions import draws_nothing
from mlirc.frontend.importer.sizes import size, tensor_info


def import_regions(importer: Any, node: Node, args: Sequence[Any]) -> tuple[ir.Value | None, ...]:
    """The results of a call of one of OPERATORS, whose arguments are `args`. Raises NotOurs."""
    target: Any = node.target
    with whole_or_nothing(importer):
        return OPERATORS[target.name()](_Call(importer, node, args))


class _Call:
    """One call of an operator that takes functions, being imported."""

    def __init__(self, importer: Any, node: Node, args: Sequence[Any]):
        self.importer, self.node, self.args = importer, node, args
        self.promised: list[Any] = list(node.meta["val"])
        self.symbols = {name for x in importer.known_sizes for name in symbols.free_symbols(x)}

    def tensors(self, values: Sequence[Any], what: str) -> list[ir.Value]:
        for x in values:
            if not isinstance(x, ir.Value):
                raise NotOurs(f"{what} is a {type(x).__name__}, and no tensor")
            self.look_at(info_of(x))
        return list(values)

    def look_at(self, info: TensorInfo) -> None:
        if info.layout != "strided":
            raise NotOurs(f"a tensor is {info.layout}")
        unknown = {n for x in (*info.shape, *info.stride) for n in symbols.free_symbols(x)} - self.symbols
        if unknown:
            raise NotOurs(f"a size depends on what the functions compute ({', '.join(sorted(unknown))})")

    def results(self, first: int = 0) -> list[TensorInfo | None]:
        """What is promised from result `first` on, row-major; None for a result that is not there."""
        infos: list[TensorInfo | None] = []
        for fake in self.promised[first:]:
            if fake is not None and not isinstance(fake, torch.Tensor):
                raise NotOurs(f"a result is a {type(fake).__name__}, and no tensor")
            infos.append(None if fake is None else replace(tensor_info(fake), stride=None))
            if infos[-1] is not None:
                self.look_at(infos[-1])
        return infos

    def build(
        self,
        functions: Sequence[GraphModule],
        kind: str,
        operands: Sequence[ir.Value],
        others: Sequence[Any],
        results: Sequence[TensorInfo | None],
        takes: Callable[[str, list[ir.Value]], tuple[list[ir.Value], list[ir.Value]]],
        **attributes: Any,
    ) -> tuple[ir.Value | None, ...]:
        """The op. `others` are what functions only read, numbers among them.

        takes    for a region's name and the arguments of its function: what its graph takes before `others`, and what its
                 results are assigned to
        """
        tensors = [x for x in others if isinstance(x, ir.Value)]
        self.tensors(tensors, "an operand")
        held = [x for gm in functions for x in constants_of(gm)]
        fixed = [self.importer.nested_constants[id(x)] for x in held]
        given = [*operands, *tensors, *fixed]
        there = [info for info in results if info is not None]
        name = f"mlircx.{kind}"
        op = create(kind, given, list(map(type_of, there)), attributes, regions=len(functions))
        counts = (attributes.get("carried", 0), attributes.get("scanned", 0))
        infos = arguments_of(name, *counts, [info_of(x) for x in given], there)
        for region, gm, label, wanted in zip(op.regions, functions, NAMES[name], infos, strict=True):
            block = region.blocks.append()
            with ir.InsertionPoint(block):
                function = func.FuncOp(label, ([type_of(info) for info in wanted], []))
            arguments = list(function.add_entry_block().arguments)
            first, assigned = takes(label, arguments)
            before = len(operands) - (kind == "cond")
            inner = iter(arguments[before : before + len(tensors)])
            taken = [*first, *(next(inner) if isinstance(x, ir.Value) else x for x in others)]
            constants = arguments[before + len(tensors) : before + len(tensors) + len(fixed)]
            known = dict(zip(map(id, held), constants, strict=True))
            with ir.InsertionPoint(function.entry_block):
                self.function(gm, taken, assigned, known, [info is not None for info in results])
        made = iter(op.results)
        return tuple(None if info is None else next(made) for info in results)

    def function(
        self, gm: GraphModule, taken: Sequence[Any], assigned: list[ir.Value], known: dict[int, ir.Value], present: list
    ) -> None:
        """The ops of a function's graph, at the insertion point, and what assigns its results."""
        inner = self.importer.within(gm, known)
        for node, x in zip(gm.graph.find_nodes(op="placeholder"), taken, strict=True):
            value = node.meta.get("val")
            if isinstance(value, torch.SymInt):
                x = size(value)
                unknown = symbols.free_symbols(x) - self.symbols if isinstance(x, Expr) else set()
                if unknown:
                    raise NotOurs(f"a size depends on what the functions compute ({', '.join(sorted(unknown))})")
            elif isinstance(value, torch.Tensor) and isinstance(x, ir.Value):
                self.same_sizes(tensor_info(value), info_of(x), "an argument")
                with location_of(node):
                    x = inner.with_type(x, tensor_info(value))
            elif isinstance(x, ir.Value):
                raise NotOurs(f"an argument is a {type(value).__name__}, and no tensor")
            inner.values[node] = x
        for node in gm.graph.nodes:
            if node.op == "call_function" and changes(node):
                raise NotOurs(f"a function calls {node.target}, which has effects")
            for fake in flat(node.meta.get("val")):
                if isinstance(fake, torch.Tensor):
                    self.look_at(tensor_info(fake))
                elif isinstance(fake, (torch.SymFloat, torch.SymBool)):
                    raise NotOurs(f"a function computes with a {type(fake).__name__}")
        inner.nodes()
        output = gm.graph.output_node()
        items = flat(output.args[0])
        if len(items) == len(present) and len(assigned) < len(items):
            if any((item is not None) != there for item, there in zip(items, present, strict=True)):
                raise NotOurs("a function gives None where another gives a tensor")
            items = [item for item in items if item is not None]
        with location_of(output):
            values = []
            for item, place in zip(items, assigned, strict=True):
                value = inner.argument_value(item)
                if not isinstance(value, ir.Value):
                    raise NotOurs(f"a function gives a {type(value).__name__}, and no tensor")
                info = info_of(place)
                value = on_host(value) if info == TRUTH else value
                self.same_sizes(info_of(value), info, "a result")
                if info_of(value).device != info.device:
                    raise NotOurs(f"a result is on {info_of(value).device} where one on {info.device} is due")
                values.append((place, value))
            for place, value in values:
                create("assign", [place, value], [])
            func.ReturnOp([])

    def same_sizes(self, have: TensorInfo, wanted: TensorInfo, what: str) -> None:
        if (have.dtype, have.shape) != (wanted.dtype, wanted.shape):
            raise NotOurs(f"{what} is {have.dtype} {list(have.shape)} where {wanted.dtype} {list(wanted.shape)} is due")


def while_loop(call: _Call) -> tuple[ir.Value | None, ...]:
    condition, body, carried, others = call.args
    call.tensors(carried, "a carried value")
    starts, infos = begun(call, carried)

    def takes(name: str, arguments: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        first = arguments[: len(starts)]
        return first, arguments[-1:] if name == "condition" else first

    return call.build([condition, body], "while_loop", starts, others, infos, takes, carried=len(starts))


def begun(call: _Call, carried: Sequence[ir.Value]) -> tuple[list[ir.Value], list[TensorInfo]]:
    """Where carried values begin, row-major."""
    infos = [replace(info_of(x), stride=None) for x in carried]
    return [call.importer.with_type(x, info) for x, info in zip(carried, infos, strict=True)], infos


def cond(call: _Call) -> tuple[ir.Value | None, ...]:
    truth, true, false, operands = call.args
    if not isinstance(truth, ir.Value) or replace(info_of(truth), device="cpu") != TRUTH:
        raise NotOurs("its condition is no 0-d tensor of a bool")
    truth = on_host(truth)
    infos = call.results()
    count = sum(info is not None for info in infos)

    def takes(name: str, arguments: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        return [], arguments[len(arguments) - count :]

    return call.build([true, false], "cond", [truth], operands, infos, takes)


def on_host(truth: ir.Value) -> ir.Value:
    """What a host program can branch on: the value, or where it is on a GPU, a copy of it."""
    return truth if info_of(truth).device == "cpu" else create("copy", [truth], [type_of(TRUTH)]).out


def scan(call: _Call) -> tuple[ir.Value | None, ...]:
    body, carried, scanned, others = call.args
    return scanned_by(call, body, carried, scanned, others)


def map_impl(call: _Call) -> tuple[ir.Value | None, ...]:
    body, scanned, others = call.args
    return scanned_by(call, body, [], scanned, others)


def scanned_by(
    call: _Call, body: GraphModule, carried: Sequence[Any], scanned: Sequence[Any], others: Sequence[Any]
) -> tuple[ir.Value | None, ...]:
    call.tensors([*carried, *scanned], "a carried or scanned value")
    starts, infos = begun(call, carried)
    stacked = call.results(len(starts))
    if not scanned or None in stacked:
        raise NotOurs("nothing is scanned" if not scanned else "a stacked result is None")
    length: Int = info_of(scanned[0]).shape[0]
    lengths = [info_of(x).shape[0] for x in scanned] + [info.shape[0] for info in stacked if info is not None]
    if any(n != length for n in lengths):
        raise NotOurs(f"lengths differ: {', '.join(map(str, lengths))}")
    first = len(starts) + len(scanned)

    def takes(name: str, arguments: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        last = arguments[len(arguments) - len(stacked) :] if stacked else []
        return arguments[:first], [*arguments[: len(starts)], *last]

    counts = {"carried": len(starts), "scanned": len(scanned), "length": str(length)}
    return call.build([body], "scan_loop", [*starts, *scanned], others, [*infos, *stacked], takes, **counts)


OPERATORS: dict[str, Callable[[_Call], tuple[ir.Value | None, ...]]] = {
    "while_loop": while_loop,
    "cond": cond,
    "scan": scan,
    "map_impl": map_impl,
}
"""How each operator is imported, by its name."""


def changes(node: Node) -> bool:
    """Whether a call changes something, or draws random numbers."""
    target: Any = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return target.name() not in OPERATORS and not is_shared_region(target)
    if not isinstance(target, torch._ops.OpOverload):
        return False
    random = torch.Tag.nondeterministic_seeded in target.tags and not draws_nothing(node)
    return target._schema.is_mutable or random or not target._schema.returns


def flat(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple)) else [value]
