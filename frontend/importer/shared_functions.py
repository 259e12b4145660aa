"""Imports calls of a region that is compiled once (`nested_compile_region`): one function of the module, which each call invokes.

    invoke_subgraph(body, "name", x, w0)       ->   func.func @region_0(%x, %w, %y) { ... assign(%y, %1) }
    invoke_subgraph(body, "name", y, w1)            %0 = "mlircx.invoke"(%x, %w0) {callee = "region_0"}   %1 = "mlircx.invoke"(%0, %w1) ...

Calls share a function where their operands and results have the same types and numbers. A body that no function can hold (NotOurs:
random numbers, sizes that depend on data) is imported where it is called, as the graph around it is.
"""

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.dialects.control_flow.region_ops import SHARED_NAME
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import create
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.symbols import Expr, Int
from mlirc.dialects.core.tensor_types import TensorInfo, info_of, type_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.importer.bodies import attribute, constants_of, is_shared_region, whole_or_nothing
from mlirc.frontend.importer.locations import location_of
from mlirc.frontend.importer.sizes import depends_on_data, size, tensor_info
from mlirc.lowering.module.source_lines import source_line


@dataclass
class SharedRegion:
    """A region as the graph calls it with operands of the same types: how often, and its function, or why it has none."""

    name: str
    line: str
    function: "SharedFunction | None" = None
    why: str = ""
    calls: int = 0


def invoked(importer: Any, node: Node, args: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a call of a region, whose arguments are `args`."""
    body, name, *given = args
    key = (id(body), *(info_of(x) if isinstance(x, ir.Value) else x for x in given), *map(result_key, node.meta["val"]))
    region = importer.shared.get(key)
    if region is None:
        region = SharedRegion(str(name), source_line(location_of(node)))
        try:
            with whole_or_nothing(importer):
                region.function = SharedFunction(importer, body, given, node)
        except NotOurs as error:
            region.why = str(error)
        importer.shared[key] = region
    region.calls += 1
    return in_place(importer, body, given) if region.function is None else region.function.call(importer, node, given)


def result_key(fake: Any) -> Any:
    return tensor_info(fake) if isinstance(fake, torch.Tensor) else str(fake)


def in_place(importer: Any, body: GraphModule, given: Sequence[Any]) -> tuple[Any, ...]:
    """The results of a body whose ops stand where it is called. Views of each other become tensors of their own, as promised."""
    inner = importer.within(body, {id(x): importer.nested_constants[id(x)] for x in constants_of(body)})
    for placeholder, x in zip(body.graph.find_nodes(op="placeholder"), given, strict=True):
        fake = placeholder.meta.get("val")
        inner.values[placeholder] = importer.with_type(x, tensor_info(fake)) if isinstance(fake, torch.Tensor) else x
    inner.nodes()
    made = [inner.argument_value(x) for x in results_of(body)]
    return tuple(create("copy", [x], [x.type]).out if is_view(x) else x for x in made)


def is_view(x: Any) -> bool:
    return isinstance(x, ir.Value) and (isinstance(x.owner, ir.Block) or x.owner.name == "mlirc.view")


def results_of(body: GraphModule) -> list[Any]:
    items = body.graph.output_node().args[0]
    return list(items) if isinstance(items, (list, tuple)) else [items]


class SharedFunction:
    """A function @region_N of the module, made of a body. Raises NotOurs for one that no function can hold."""

    def __init__(self, importer: Any, body: GraphModule, given: Sequence[Any], node: Node):
        placeholders: list[Node] = body.graph.find_nodes(op="placeholder")
        constants = constants_of(body)
        self.constants = list(map(id, constants))
        self.operands = [k for k, x in enumerate(given) if isinstance(x, ir.Value)]
        self.types = [argument_info(placeholders[k], info_of(given[k])) for k in self.operands]
        self.types += [tensor_info(x) for x in constants]
        self.results = [result_info(fake) for fake in node.meta["val"]]
        self.sizes = [size(fake) if isinstance(fake, torch.SymInt) else None for fake in node.meta["val"]]
        made = [info for info in self.results if info is not None]
        if any(info.layout != "strided" for info in (*self.types, *made)):
            raise NotOurs("a tensor is not strided")
        look_at(body, {str(n) for info in self.types for n in info.shape if isinstance(n, Expr)}, given)
        self.name = free_name(importer.imported.module)
        with ir.InsertionPoint(outermost_function()), location_of(node):
            function = func.FuncOp(self.name, ([type_of(info) for info in (*self.types, *made)], []))
        try:
            self.fill(importer, body, function, placeholders, given)
        except Exception:
            function.operation.erase()
            raise

    def fill(
        self, importer: Any, body: GraphModule, function: Any, placeholders: Sequence[Node], given: Sequence[Any]
    ) -> None:
        block = function.add_entry_block()
        arguments = list(block.arguments)
        known = dict(zip(self.constants, arguments[len(self.operands) :], strict=False))
        inner = importer.within(body, known)
        tensors = iter(arguments)
        for placeholder, x in zip(placeholders, given, strict=True):
            inner.values[placeholder] = next(tensors) if isinstance(x, ir.Value) else x
        with ir.InsertionPoint(block), location_of(body.graph.output_node()):
            inner.nodes()
            places, values = iter(arguments[len(self.types) :]), []
            for item, info in zip(results_of(body), self.results, strict=True):
                if info is None:
                    continue
                value = inner.argument_value(item)
                if not isinstance(value, ir.Value):
                    raise NotOurs(f"a result is a {type(value).__name__}, and no tensor")
                have = info_of(value)
                if (have.dtype, have.shape, have.device) != (info.dtype, info.shape, info.device):
                    raise NotOurs(f"a result is {have} where {info} is due")
                values.append((next(places), value))
            for place, value in values:
                create("assign", [place, value], [])
            func.ReturnOp([])

    def call(self, importer: Any, node: Node, given: Sequence[Any]) -> tuple[Any, ...]:
        operands = [given[k] for k in self.operands] + [importer.nested_constants[x] for x in self.constants]
        operands = [importer.with_type(x, info) for x, info in zip(operands, self.types, strict=True)]
        made = [type_of(info) for info in self.results if info is not None]
        results = iter(create("invoke", operands, made, {"callee": self.name}).operation.results)
        return tuple(next(results) if info is not None else n for info, n in zip(self.results, self.sizes, strict=True))


def free_name(module: ir.Module) -> str:
    taken = {op.name.value for op in module.body.operations}
    return next(name for name in map(f"{SHARED_NAME}{{}}".format, count()) if name not in taken)


def outermost_function() -> ir.Operation:
    """The function of the module that the insertion point is in."""
    op = ir.InsertionPoint.current.block.owner.operation
    while op.parent is not None and op.parent.parent is not None:
        op = op.parent.operation
    return op


def argument_info(placeholder: Node, have: TensorInfo) -> TensorInfo:
    fake = placeholder.meta.get("val")
    if not isinstance(fake, torch.Tensor):
        raise NotOurs(f"an argument is a {type(fake).__name__}, and no tensor")
    info = tensor_info(fake)
    if (info.dtype, info.shape, info.device) != (have.dtype, have.shape, have.device):
        raise NotOurs(f"an argument is {have} where {info} is due")
    return info


def result_info(fake: Any) -> TensorInfo | None:
    """What a result is, with the strides that are promised where it has no gaps."""
    if fake is None or isinstance(fake, torch.SymInt):
        return None
    if not isinstance(fake, torch.Tensor):
        raise NotOurs(f"a result is a {type(fake).__name__}, and no tensor")
    info = tensor_info(fake)
    return info if info.is_dense and not info.may_overlap else replace(info, stride=None)


def look_at(body: GraphModule, bound: set[str], given: Sequence[Any]) -> None:
    """Raises NotOurs for what a function cannot hold; `bound` are the sizes of its arguments."""
    if depends_on_data(body):
        raise NotOurs("a size depends on data")
    for node in body.graph.nodes:
        if node.op == "call_function" and has_effects(node):
            raise NotOurs(f"it calls {node.target}, which has effects")
        if node.op == "get_attr" and isinstance(attribute(body, node), GraphModule):
            inner = attribute(body, node)
            if all(is_shared_region(user.target) for user in node.users):
                look_at(inner, bound, ())
        for fake in node.meta["val"] if isinstance(node.meta.get("val"), (list, tuple)) else [node.meta.get("val")]:
            if isinstance(fake, (torch.SymFloat, torch.SymBool)):
                raise NotOurs(f"it computes with a {type(fake).__name__}")
            numbers: list[Int] = []
            if isinstance(fake, torch.SymInt):
                numbers = [size(fake)]
            elif isinstance(fake, torch.Tensor):
                info = tensor_info(fake)
                numbers = [*info.shape, *info.stride]
            unknown = {name for n in numbers for name in symbols.free_symbols(n)} - bound
            if unknown:
                raise NotOurs(f"no argument has the size {', '.join(sorted(unknown))}")


def has_effects(node: Node) -> bool:
    target: Any = node.target
    if isinstance(target, torch._ops.HigherOrderOperator):
        return not is_shared_region(target)
    if not isinstance(target, torch._ops.OpOverload):
        return False
    random = torch.Tag.nondeterministic_seeded in target.tags and not draws_nothing(node)
    return target._schema.is_mutable or random or not target._schema.returns


def draws_nothing(node: Node) -> bool:
    """Whether it is attention without dropout, which PyTorch counts among random operators."""
    names = [argument.name for argument in node.target._schema.arguments]  # type: ignore[union-attr]
    if not str(node.target).startswith("aten._scaled_dot_product") or "dropout_p" not in names:
        return False
    position = names.index("dropout_p")
    given = node.args[position] if position < len(node.args) else node.kwargs.get("dropout_p", 0.0)
    return isinstance(given, (int, float)) and given == 0
