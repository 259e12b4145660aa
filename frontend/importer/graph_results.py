"""The results of an imported graph: what it returns, and what a caller makes of that (Imported.outputs)."""

from typing import Any

import torch
from torch.fx import Node

from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.dialect import attribute_value, create
from mlirc.dialects.core.graph_builder import GraphBuilder
from mlirc.dialects.core.symbols import Expr
from mlirc.frontend.importer import views
from mlirc.frontend.importer.sizes import is_sparse, tensor_info
from mlirc.frontend.torch_compat.fake_tensors import storage_id


def return_results(importer: Any, function: Any) -> None:
    """Builds the return, and says what each FX output is, and which results may share memory."""
    results: Any = importer.gm.graph.output_node().args[0]
    operands: list[ir.Value] = []
    groups: list[str] = []
    position_of: dict[Node, int] = {}
    group_of_storage: dict[int, str] = {}
    builder = GraphBuilder()
    for item in results:
        value = importer.argument_value(item)
        if not isinstance(item, Node) or not isinstance(value, (ir.Value, Expr)):
            importer.imported.outputs.append(("value", value))
            continue
        if item not in position_of:
            fake = item.meta.get("val")
            if isinstance(value, Expr):
                value = create("size", [], [ir.IntegerType.get_signless(64)], {"expr": str(value)}).out
                groups.append("size")
            elif isinstance(fake, torch.Tensor):
                value = importer.with_type(value, tensor_info(fake))
                key = storage_of(item)
                argument = viewed_argument(value, importer.argument_of_storage.get(key))
                fresh = f"g{len(group_of_storage)}"
                groups.append(f"arg{argument}" if argument is not None else group_of_storage.setdefault(key, fresh))
            else:
                value = builder.cast(value, torch.float64)
                groups.append(f"float{len(groups)}")
            position_of[item] = len(operands)
            operands.append(value)
        kinds = {torch.SymFloat: "item", torch.SymBool: "truth"}
        kind = kinds.get(type(item.meta.get("val")), "result")
        importer.imported.outputs.append((kind, position_of[item]))
    func.ReturnOp(operands)
    inputs = [argument.type for argument in function.arguments]
    function_type = ir.FunctionType.get(inputs, [v.type for v in operands])
    function.attributes["function_type"] = ir.TypeAttr.get(function_type)
    function.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get(g) for g in groups])


def viewed_argument(value: ir.Value, otherwise: int | None) -> int | None:
    """The number of the argument that `value` is, or is a view of, also through ATen calls. Where arguments share memory it is one of them."""
    if otherwise is None:
        return None
    while not isinstance(value.owner, ir.Block):
        op = value.owner
        alias = 0 if op.name == "mlirc.view" else -1
        if op.name == "mlircx.aten":
            alias = symbols.parse_list(attribute_value(op.attributes["aliases"]))[ir.OpResult(value).result_number]
        if alias == -1:
            return otherwise
        value = op.operands[alias]
    return ir.BlockArgument(value).arg_number


def storage_of(node: Node) -> int:
    """The storage of the node that this node's result is a view of. The node's own fake tensor may have an older storage,
    where a pass of PyTorch's has replaced the viewed node."""
    while (behind := views.viewed(node)) is not None:
        node = behind
    return id(node) if is_sparse(node.meta["val"]) else storage_id(node.meta["val"])
