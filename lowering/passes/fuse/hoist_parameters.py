"""hoist-parameters: computes what depends on parameters alone when a parameter changes, not in each call."""

from typing import Any

from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.symbols import known_nonnegative, print_list
from mlirc.dialects.core.tensor_info import symbols_sum
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.analysis.provenance import may_hoist, sources_of, view_root
from mlirc.lowering.pipeline.ledger import Ledger

PANELS = ("mlirc.panels", "mlirc.pair_panels")
ROWS = (
    "mlirc.gather",
    "mlirc.index",
    "mlirc.index2",
    "mlirc.index3",
    "mlirc.reindex",
)  # read as much of each operand as they give
PACKED = (*PANELS, "mlirc.pad", "mlircx.aten")  # worth the memory that keeping the result takes, whatever its size


@dataclass(frozen=True)
class HoistParameters:
    """Move the packing of parameters to a function of its own, whose results become arguments of the graph.

    before:  func.func @graph(%x, %w {mlirc.parameter}) { %p = "mlirc.panels"(%w) ... }
    after:   func.func @graph(%x, %w, %p {mlirc.frozen}) { ... }
             func.func @prepare(%w) attributes {mlirc.parameters = "1"} { %p = "mlirc.panels"(%w)  return %p }

    Ops that lead to a hoisted value move with it. A value is hoisted if it takes no more memory than the parameters that it comes from. Views
    stay, because they cost nothing. A value stays, too, if computing it reads less memory than its parameters have (rows of a table), because
    finding out whether they changed reads all of them.

    The caller runs @prepare on the arguments that `mlirc.parameters` counts, at the first call and whenever one of them
    has changed, and appends its results to the arguments of @graph. A parameter that the graph assigns to stays (WRITTEN).
    """

    name = "hoist-parameters"
    takes = "graph"

    def run(self, function: Any, ledger: Ledger) -> None:
        block = function.regions[0].blocks[0]
        sources = sources_of(function)
        candidates = dict.fromkeys(reversed(hoisted_values(block, sources)))
        hoisted = [x for x in candidates if ledger.allows(self.name, x.owner)]
        for op in block.operations:
            if op.operation.name in PANELS:
                taken = op.results[0] in hoisted
                rule = "PARAMETER" if taken else "WRITTEN"
                ledger.record(self.name, "hoist", op.operation.name, rule, taken, op)
        if hoisted:
            move(function, hoisted, sources)


def hoisted_values(block: Any, sources: dict[ir.Value, frozenset]) -> list[ir.Value]:
    """The results of @prepare, last first: values that depend on parameters alone, have a reader that does not, and are worth their memory. Other
    values stay, and count as readers of their operands."""
    used: set[ir.Value] = set()
    hoisted = []
    for op in reversed(list(block.operations)):
        if op.operation.name == "func.return":
            continue  # what the graph returns is the caller's to write to
        if op.results and op.results[0] in sources:
            value, name = op.results[0], op.operation.name
            if value not in used or not sources[value]:
                continue
            if (name in PACKED or fits(value, sources[value])) and is_costly(value, sources[value]):
                hoisted.append(value)
                continue
        used.update(map(view_root, op.operands))
    return hoisted


def fits(x: ir.Value, parameters: frozenset) -> bool:
    """Whether `x` takes no more memory than the parameters that it comes from."""
    return known_nonnegative(symbols_sum(map(bytes_of, parameters)) - bytes_of(x))


def is_costly(x: ir.Value, parameters: frozenset) -> bool:
    """Whether computing `x` reads and writes at least as much memory as its parameters take (codegen/runtime/fingerprint.py)."""
    values, reached = [x], {x}
    traffic = []
    for y in values:
        if y in parameters:
            continue
        op = y.owner
        size = bytes_of(y)
        if op.operation.name != "mlirc.view":
            traffic.append(size)
            traffic += [size if op.operation.name in ROWS else bytes_of(operand) for operand in op.operands]
        values += [z for z in op.operands if z not in reached]
        reached.update(op.operands)
    return known_nonnegative(symbols_sum(traffic) - symbols_sum(map(bytes_of, parameters)))


def bytes_of(x: ir.Value) -> Any:
    info = info_of(x)
    return info.numel * info.dtype.itemsize


def move(function: Any, hoisted: list[ir.Value], sources: dict[ir.Value, frozenset]) -> None:
    """Makes @prepare of these values and the ops that lead to them, and makes them arguments of `function`."""
    block = function.regions[0].blocks[0]
    arguments = list(block.arguments)
    parameters = frozenset().union(*(sources[x] for x in hoisted))
    positions = [k for k, x in enumerate(arguments) if x in parameters]
    used = [arguments[k] for k in positions]
    results = [x.type for x in hoisted]
    with ir.InsertionPoint.after(function.operation), function.location:
        prepare = func.FuncOp("prepare", ([x.type for x in used], results))
    prepare.attributes["mlirc.parameters"] = ir.StringAttr.get(print_list(positions))
    prepare.attributes["mlirc.results"] = ir.ArrayAttr.get([ir.StringAttr.get(f"g{k}") for k in range(len(results))])
    body = prepare.add_entry_block([x.location for x in used])
    moved = dict(zip(used, body.arguments, strict=True))
    with ir.InsertionPoint(body), function.location:
        func.ReturnOp([clone(x, moved, body) for x in hoisted])
    attributes = list(function.attributes["arg_attrs"])
    for x in hoisted:
        frozen = block.add_argument(x.type, x.owner.location)
        attributes.append(ir.DictAttr.get({"mlirc.frozen": ir.UnitAttr.get()}))
        x.replace_all_uses_with(frozen)
    for op in reversed(list(block.operations)):
        if op.results and op.results[0] in sources and next(iter(op.results[0].uses), None) is None and may_hoist(op):
            op.operation.erase()
    function.attributes["arg_attrs"] = ir.ArrayAttr.get(attributes)
    result_types = function.attributes["function_type"].value.results
    function_type = ir.FunctionType.get([x.type for x in block.arguments], result_types)
    function.attributes["function_type"] = ir.TypeAttr.get(function_type)


def clone(x: ir.Value, moved: dict[ir.Value, ir.Value], body: ir.Block) -> ir.Value:
    """Clones the ops that compute `x` into @prepare, on its arguments, and returns the value there."""
    if x not in moved:
        operands = [clone(y, moved, body) for y in x.owner.operands]
        copy = x.owner.operation.clone(ip=ir.InsertionPoint(body))
        for k, operand in enumerate(operands):
            copy.operands[k] = operand
        moved[x] = copy.results[0]
    return moved[x]
