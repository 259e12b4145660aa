"""hoist-parameters: what depends on parameters alone is computed when they change, not in every call."""

from dataclasses import dataclass
from typing import Any

from mlirc.dialects.bindings import func, ir
from mlirc.dialects.symbols import print_list
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.passes.generate_products import parameter_arguments
from mlirc.lowering.source_lines import source_line

HOISTED = ("mlirc.panels",)  # worth the memory that keeping the result takes


@dataclass(frozen=True)
class HoistParameters:
    """Move the packing of parameters to a function of its own, whose results become arguments of the graph.

    before:  func.func @graph(%x, %w {mlirc.parameter}) { %p = "mlirc.panels"(%w) ... }
    after:   func.func @graph(%x, %w, %p {mlirc.prepared}) { ... }
             func.func @prepare(%w) attributes {mlirc.parameters = "1"} { %p = "mlirc.panels"(%w)  return %p }

    The caller runs @prepare on the arguments that `mlirc.parameters` counts, at the first call and whenever one of them
    has changed, and appends its results to the arguments of @graph. A parameter that the graph assigns to stays (WRITTEN).
    """

    name = "hoist-parameters"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        fixed = parameter_arguments(function)
        fixed -= {root(op.operands[0]) for op in block.operations if op.operation.name == "mlirc.assign"}
        hoisted = []
        for op in block.operations:
            if op.operation.name in HOISTED:
                taken = all(root(x) in fixed for x in op.operands)
                rule = "PARAMETER" if taken else "WRITTEN"
                ledger.record(self.name, "hoist", op.operation.name, rule, taken, source_line(op.location))
                hoisted += [op] * taken
        if hoisted:
            move(function, hoisted)


def root(x: ir.Value) -> ir.Value:
    """The value that `x` is a view of."""
    while not isinstance(x.owner, ir.Block) and x.owner.operation.name == "mlirc.view":
        x = x.owner.operands[0]
    return x


def move(function: Any, hoisted: list[Any]) -> None:
    """Make @prepare of these ops and the views below them; their results become arguments of `function`."""
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)
    used = list(dict.fromkeys(root(x) for op in hoisted for x in op.operands))
    results = [op.results[0].type for op in hoisted]
    with ir.InsertionPoint.after(function.operation), function.location:
        prepare = func.FuncOp("prepare", ([x.type for x in used], results))
    prepare.attributes["mlirc.parameters"] = ir.StringAttr.get(print_list(arguments.index(x) for x in used))
    prepare.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get(f"g{k}") for k in range(len(results))])
    body = prepare.add_entry_block([x.location for x in used])
    moved = dict(zip(used, body.arguments, strict=True))
    with ir.InsertionPoint(body), function.location:
        func.ReturnOp([clone(op.results[0], moved, body) for op in hoisted])
    attributes = list(function.attributes["arg_attrs"])
    for op in hoisted:
        prepared = block.add_argument(op.results[0].type, op.location)
        attributes.append(ir.DictAttr.get({"mlirc.prepared": ir.UnitAttr.get()}))
        op.results[0].replace_all_uses_with(prepared)
        op.operation.erase()
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    result_types = function.attributes["function_type"].value.results
    function_type = ir.FunctionType.get([x.type for x in block.arguments], result_types)
    function.attributes["function_type"] = ir.TypeAttr.get(function_type)


def clone(x: ir.Value, moved: dict[ir.Value, ir.Value], body: ir.Block) -> ir.Value:
    """`x` computed again in @prepare, from its arguments."""
    if x not in moved:
        operands = [clone(y, moved, body) for y in x.owner.operands]
        copy = x.owner.operation.clone(ip=ir.InsertionPoint(body))
        for k, operand in enumerate(operands):
            copy.operands[k] = operand
        moved[x] = copy.results[0]
    return moved[x]
