"""Where each kernel and call of a graph stands in a drawing: rows by how far from the inputs, edges downwards."""

from collections.abc import Container
from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS, region_functions
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import OPS, attribute_value
from mlirc.lowering.module.source_lines import source_lines
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.report.stage_modules import StageModules

HIDDEN = ("mlirc.view", "mlirc.size", "mlirc.constant", "mlirc.iota")  # edges go through views; the others are no work
PLUMBING = ("constant", "cast", "size", "read", "yield", "index", "write")
WIDE, LINE, PAD, GAP = 7.2, 16, 10, 22  # of a character, a line of text, a box's border, the space between boxes
MOST_LINES = 8
KINDS = {
    "mlircx.kernel": "kernel",
    "mlircx.call": "library",
    "mlircx.aten": "aten",
    "mlircx.aten_effect": "aten",
    "func.return": "end",
    **dict.fromkeys(REGION_OPS, "kernel"),
}


def drawn_graph(stages: StageModules, generated: Container[tuple[str, frozenset[str]]]) -> dict[str, Any] | None:
    """The graph after the stage `fuse`, or after the last stage before it that there is. Ops that are one of the `generated`, by name and source
    lines, become kernels as they are lowered."""
    stage = next((s for s in ("fuse", "simplify", "import") if s in stages.files), None)
    module = stages.module(stage) if stage else None
    if module is None:
        return None
    function = next(f for f in functions(module) if f.name.value == "graph")
    nodes, edges = _nodes(function, "library" if stage == "fuse" else "op")
    for node in nodes:
        if node["k"] == "library" and (node["t"], frozenset(node["l"])) in generated:
            node["k"] = "kernel"
    return {"stage": stage, "nodes": placed(nodes, edges), "edges": edges}


def _nodes(function: Any, other: str) -> tuple[list[dict[str, Any]], list[list[int]]]:
    block = function.regions[0].blocks[0]
    nodes: list[dict[str, Any]] = []
    edges: dict[tuple[int, int], None] = {}
    maker: dict[ir.Value, int] = {}
    named = list(function.arg_attrs) if len(block.arguments) else []
    for k, x in enumerate(block.arguments):
        if "mlirc.parameter" not in named[k] and isinstance(x.type, ir.RankedTensorType):
            maker[x] = len(nodes)
            nodes.append({"t": f"arg{k}", "k": "input", "o": [], "l": [], "s": [str(x.type)]})
    for op in block.operations:
        name = op.operation.name
        if name in HIDDEN:
            held = [maker[x] for x in op.operands if x in maker]
            for result in op.results:
                if held:
                    maker[result] = held[0]
            continue
        number = len(nodes)
        for x in op.operands:
            if x in maker:
                edges[maker[x], number] = None
        nodes.append(
            {
                "t": title_of(op),
                "k": KINDS.get(name, other),
                "o": ops_in(op) if name == "mlircx.kernel" else regions_in(op),
                "l": source_lines(op.location),
                "s": [str(r.type) for r in op.results],
            }
        )
        for result in op.results:
            maker[result] = number
        if name == "mlirc.assign" and op.operands[0] in maker:
            maker[op.operands[0]] = number
    return nodes, [list(edge) for edge in edges]


def title_of(op: Any) -> str:
    for name in ("label", "callee", "op"):
        if name in op.attributes and isinstance(op.attributes[name], ir.StringAttr):
            return attribute_value(op.attributes[name])
    return op.operation.name.removeprefix("func.").removeprefix("mlirc.")


def ops_in(op: Any) -> list[str]:
    names = [x.operation.name.removeprefix("mlirc.") for x in op.regions[0].blocks[0].operations]
    return [name for name in names if name in ("reduce", "scan") or (name in OPS and name not in PLUMBING)]


def regions_in(op: Any) -> list[str]:
    """What the functions of its regions consist of, in order: "@body: mul_add"."""
    return [
        f"@{function.name.value}: {title_of(inside)}"
        for function in region_functions(op)
        for inside in function.regions[0].blocks[0].operations
        if inside.operation.name not in (*HIDDEN, "func.return", "mlirc.assign")
    ]


def placed(nodes: list[dict[str, Any]], edges: list[list[int]]) -> list[dict[str, Any]]:
    """Gives each node x, y, w and h. Edges lead from earlier nodes to later ones."""
    before: list[list[int]] = [[] for _ in nodes]
    for a, b in edges:
        before[b].append(a)
    row = [0] * len(nodes)
    for k in range(len(nodes)):
        row[k] = 1 + max((row[a] for a in before[k]), default=-1)
    after: list[list[int]] = [[] for _ in nodes]
    for a, b in edges:
        after[a].append(b)
    for k in range(len(nodes) - 1, -1, -1):  # inputs stand close to their first reader
        if not before[k] and after[k]:
            row[k] = min(row[b] for b in after[k]) - 1
    rows: dict[int, list[int]] = {}
    for k, r in enumerate(row):
        rows.setdefault(r, []).append(k)
    y = 0.0
    for r in sorted(rows):
        members = rows[r]
        for k in members:
            node = nodes[k]
            lines = min(len(node["o"]), MOST_LINES) + (len(node["o"]) > MOST_LINES)
            texts = [node["t"][:44], *node["o"][:MOST_LINES]]
            node["w"] = round(max(map(len, texts)) * WIDE + 2 * PAD)
            node["h"] = (1 + lines) * LINE + 2 * PAD - 4
        wish = {k: _centre(nodes, before[k]) for k in members}
        members.sort(key=lambda k: (wish[k], k))
        x = -float("inf")
        for k in members:
            nodes[k]["x"] = round(max(wish[k] - nodes[k]["w"] / 2, x))
            nodes[k]["y"] = round(y)
            x = nodes[k]["x"] + nodes[k]["w"] + GAP
        drift = sum(nodes[k]["x"] + nodes[k]["w"] / 2 - wish[k] for k in members) / len(members)
        for k in members:
            nodes[k]["x"] = round(nodes[k]["x"] - drift)
        y += max(nodes[k]["h"] for k in members) + 2 * GAP
    return nodes


def _centre(nodes: list[dict[str, Any]], before: list[int]) -> float:
    places = [nodes[a]["x"] + nodes[a]["w"] / 2 for a in before if "x" in nodes[a]]
    return sum(places) / len(places) if places else 0.0
