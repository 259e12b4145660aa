"""Cuts a module's @graph down: results left out, values that become arguments, ops and arguments that go, in any form."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.dialect import attribute_value
from mlirc.execution.modules import graph_of, interpret, prepare_of
from mlirc.lowering.analysis.effects import EFFECTS
from mlirc.lowering.pipeline.rewrites import Rewrite, describe

WITH_EFFECTS = ("func.return", "mlirc.assign", "mlirc.release", "mlircx.launch", "mlircx.call", "mlircx.run", *EFFECTS)


PLACES = ("mlirc.slot", "mlirc.allocate")
LAUNCHES = ("mlircx.launch", "mlircx.call")


class Values:
    """What each result of an op held when the module was interpreted, by the op's position and the result's number."""

    def __init__(self, module: ir.Module, inputs: Sequence[Any]):
        self.held: dict[tuple[int, int], Any] = {}
        self.read: dict[int, list[Any]] = {}  # of launches: what each operand held before
        self.place = {op.operation: k for k, op in enumerate(graph_of(module).regions[0].blocks[0].operations)}
        interpret(module, inputs, self)

    def before(self, op: Any, operands: Sequence[Any]) -> None:
        if op.operation.name in LAUNCHES:
            held = [x.clone() if hasattr(x, "clone") else x for x in operands]
            self.read[self.place[op.operation]] = held

    def after(self, op: Any, values: Sequence[Any], held: Sequence[Any]) -> None:
        for value, x in zip(values, held, strict=True):
            if not isinstance(value.owner, ir.Block) and value.owner == op.operation:
                key = (self.place[op.operation], ir.OpResult(value).result_number)
                self.held[key] = x.clone() if hasattr(x, "clone") else x


def ops_of(text: str) -> int:
    """How many ops @graph has, its return among them."""
    with context():
        module = ir.Module.parse(text)
        return len(graph_of(module).regions[0].blocks[0].operations)


def results_of(text: str) -> int:
    with context():
        module = ir.Module.parse(text)
        return len(list(graph_of(module).regions[0].blocks[0].operations)[-1].operands)


def launches_of(text: str, first: Rewrite | None) -> list[int]:
    """The positions of launches and calls in @graph, those that a rewrite says that it is of before the others."""
    with context():
        module = ir.Module.parse(text)
        ops = list(graph_of(module).regions[0].blocks[0].operations)
        found = {k: describe(op) for k, op in enumerate(ops) if op.operation.name in LAUNCHES}
    return sorted(found, key=lambda k: first is None or found[k] != first.subject)


def without_prepare(text: str, inputs: Sequence[Any]) -> tuple[str, list[Any]]:
    """What @prepare computes of parameters as plain arguments."""
    with context():
        module = ir.Module.parse(text)
        prepare = prepare_of(module)
        if prepare is None:
            return text, list(inputs)
        from mlirc.dialects.interpreter import interpreter

        made = interpreter.run(prepare[0], [inputs[k] for k in prepare[1]])
        prepare[0].operation.erase()
        graph = graph_of(module)
        graph.attributes["arg_attrs"] = ir.ArrayAttr.get(
            [ir.DictAttr.get({a.name: a.attr for a in one if a.name != "mlirc.frozen"}) for one in graph.arg_attrs]
        )
        return module.operation.get_asm(enable_debug_info=True), [*inputs, *made]


def with_results(text: str, inputs: Sequence[Any], remaining: Iterable[int]) -> tuple[str, list[Any]]:
    """The module with some of its results."""
    with context():
        module = ir.Module.parse(text)
        graph = graph_of(module)
        end = list(graph.regions[0].blocks[0].operations)[-1]
        remaining = list(remaining)
        with ir.InsertionPoint(end), end.location:
            func.ReturnOp([end.operands[k] for k in remaining])
        end.operation.erase()
        if "mlirc.results" in graph.attributes:
            groups = list(graph.attributes["mlirc.results"])
            graph.attributes["mlirc.results"] = ir.ArrayAttr.get([groups[k] for k in remaining])
        if "res_attrs" in graph.attributes:
            del graph.attributes["res_attrs"]
        return cleaned(module, inputs)


def returning_operand(text: str, inputs: Sequence[Any], result: int, operand: int) -> tuple[str, list[Any]] | None:
    """The module that returns an operand of the op that makes a result, in place of it; None where there is none."""
    with context():
        module = ir.Module.parse(text)
        graph = graph_of(module)
        end = list(graph.regions[0].blocks[0].operations)[-1]
        maker = end.operands[result].owner
        if isinstance(maker, ir.Block) or operand >= len(maker.operands):
            return None
        end.operation.operands[result] = maker.operands[operand]
        return cleaned(module, inputs)


def alone(text: str, inputs: Sequence[Any], position: int) -> tuple[str, list[Any]] | None:
    """A module of one launch or call of a planned module: its operands are arguments, its outputs are results. None for any other op."""
    with context():
        module = ir.Module.parse(text)
        graph = graph_of(module)
        block = graph.regions[0].blocks[0]
        ops = list(block.operations)
        op = ops[position]
        if op.operation.name not in LAUNCHES:
            return None
        values, given, attributes = Values(module, inputs), list(inputs), list(graph.arg_attrs)
        count = attribute_value(op.attributes["inputs"])
        for k in range(count):
            x = op.operands[k]
            if isinstance(x.owner, ir.Block):
                continue
            op.operation.operands[k] = block.add_argument(x.type, op.location)
            given.append(values.read[position][k])
            attributes.append(ir.DictAttr.get({}))
        made = []
        for k in range(count, len(op.operands)):
            with ir.InsertionPoint(op), op.location:
                place = ir.Operation.create("mlirc.allocate", results=[op.operands[k].type])
            op.operation.operands[k] = place.results[0]
            made.append(place.results[0])
        with ir.InsertionPoint(ops[-1]), op.location:
            func.ReturnOp(made)
        for other in reversed([o for k, o in enumerate(ops) if k != position]):
            other.operation.erase()
        graph.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        groups = [ir.StringAttr.get(f"g{k}") for k in range(len(made))]
        graph.attributes["mlirc.results"] = ir.ArrayAttr.get(groups)
        return cleaned(module, given)


def without_ops(text: str, inputs: Sequence[Any], values: Values, gone: Sequence[int]) -> tuple[str, list[Any]]:
    """The module without some of its ops; what they gave becomes arguments, which hold what it held."""
    with context():
        module, given = ir.Module.parse(text), list(inputs)
        graph = graph_of(module)
        block = graph.regions[0].blocks[0]
        ops = list(block.operations)
        attributes = list(graph.arg_attrs)
        gone = [k for k in gone if ops[k].operation.name not in PLACES]
        for k in gone:
            for n, result in enumerate(ops[k].results):
                if next(iter(result.uses), None) is not None:
                    result.replace_all_uses_with(block.add_argument(result.type, ops[k].location))
                    given.append(values.held[k, n])
                    attributes.append(ir.DictAttr.get({}))
        graph.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
        for k in reversed(gone):
            ops[k].operation.erase()
        return cleaned(module, given)


def cleaned(module: ir.Module, inputs: Sequence[Any]) -> tuple[str, list[Any]]:
    """Ops and arguments that nothing uses go; the function's type is what it is. Needs an entered context."""
    graph = graph_of(module)
    block = graph.regions[0].blocks[0]
    for op in reversed(list(block.operations)):
        if op.operation.name not in WITH_EFFECTS and all(next(iter(r.uses), None) is None for r in op.results):
            op.operation.erase()
    groups = (
        [attribute_value(x) for x in graph.attributes["mlirc.results"]] if "mlirc.results" in graph.attributes else []
    )
    named = {int(g[3:]) for g in groups if g.startswith("arg")}
    attributes, given = list(graph.arg_attrs), list(inputs)
    place = list(range(len(given)))
    for k in reversed(range(len(block.arguments))):
        x = block.arguments[k]
        if next(iter(x.uses), None) is None and k not in named and "mlirc.symbol" not in attributes[k]:
            block.erase_argument(k)
            del attributes[k], given[k], place[k]
    graph.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    if groups:
        moved = [f"arg{place.index(int(g[3:]))}" if g.startswith("arg") else g for g in groups]
        graph.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get(g) for g in moved])
    end = list(block.operations)[-1]
    type_ = ir.FunctionType.get([x.type for x in block.arguments], [x.type for x in end.operands])
    graph.attributes["function_type"] = ir.TypeAttr.get(type_)
    return module.operation.get_asm(enable_debug_info=True), given


# ---- sizes

_TENSOR = re.compile(r"tensor<((?:\d+x)+)")


def sizes_of(text: str) -> list[int]:
    """The sizes of dimensions that might be smaller, the largest first."""
    found = {int(n) for dims in _TENSOR.findall(text) for n in dims.rstrip("x").split("x")}
    return sorted((n for n in found if n > 2), reverse=True)


def with_size(text: str, inputs: Sequence[Any], old: int, new: int) -> tuple[str, list[Any]] | None:
    """The module with each size `old` replaced by `new`, in types and index expressions, and the inputs cut to their first elements. None where
    that does not parse."""
    changed = re.sub(rf"(?<![\w.%#:+-]){old}(?=x[\da-z]|[,\" )\]/*+-])", str(new), text)
    changed = re.sub(rf"(?<=\dx){old}(?=x[\da-z])", str(new), changed)
    changed = re.sub(rf"(?<=\dx){old}(?=x[\da-z])", str(new), changed)
    if changed == text:
        return None
    with context():
        try:
            module = ir.Module.parse(changed)
        except ir.MLIRError:
            return None
        return changed, cut(module, inputs)


def cut(module: ir.Module, inputs: Sequence[Any]) -> list[Any]:
    """Inputs of the sizes that the module's arguments have."""
    import torch

    from mlirc.dialects.core.tensor_types import info_of
    from mlirc.execution.inputs import with_strides

    made = []
    for argument, x in zip(graph_of(module).regions[0].blocks[0].arguments, inputs, strict=True):
        if isinstance(x, torch.Tensor) and isinstance(argument.type, ir.RankedTensorType):
            info = info_of(argument)
            stride = [n for n in info.stride if isinstance(n, int)]
            static = len(stride) == info.rank and all(isinstance(n, int) for n in info.shape)
            if static and tuple(x.shape) != tuple(info.shape):
                x = with_strides(x[tuple(slice(0, n) for n in info.shape)], stride)
        made.append(x)
    return made
