"""`mlirc opt --emit dot`: the graph of a function for Graphviz, kernels as boxes with what they compute."""

from typing import Any

COLOURS = {"mlircx.kernel": "#dbeafe", "mlircx.launch": "#dbeafe", "mlircx.run": "#dbeafe", "mlircx.aten": "#fee2e2"}
LIBRARY = "#fef3c7"


def drawn(module: Any) -> str:
    """Needs an entered context."""
    from mlirc.lowering.pipeline.pass_manager import functions

    lines = ["digraph module {", "  node [shape=box, style=filled, fillcolor=white, fontname=monospace];"]
    for function in functions(module):
        lines += _function(function)
    return "\n".join([*lines, "}\n"])


def _function(function: Any) -> list[str]:
    from mlirc.dialects.core.dialect import attribute_value
    from mlirc.lowering.module.source_lines import source_line

    name = function.name.value
    lines = [f'  subgraph "cluster_{name}" {{', f'    label="@{name}";']
    maker: dict[Any, str] = {}  # what last wrote a value
    edges = []
    for k, argument in enumerate(function.regions[0].blocks[0].arguments):
        maker[argument] = f"{name}_arg{k}"
        lines.append(f'    {maker[argument]} [label="%arg{k}\\n{_quoted(argument.type)}", shape=ellipse];')
    for k, op in enumerate(function.regions[0].blocks[0].operations):
        node, kind = f"{name}_{k}", op.operation.name
        texts = [attribute_value(op.attributes[n]) for n in ("label", "callee", "op") if n in op.attributes]
        title = f"{kind} {' '.join(texts)}".strip()
        where = source_line(op.location)
        told = [title, *(str(r.type) for r in op.results), *([where] if where != "unknown line" else [])]
        colour = COLOURS.get(kind, LIBRARY if kind == "mlircx.call" else "white")
        text = "\\n".join(map(_quoted, told))
        lines.append(f'    {node} [label="{text}", fillcolor="{colour}"];')
        edges += [f"    {maker[x]} -> {node};" for x in dict.fromkeys(op.operands) if x in maker]
        for result in op.results:
            maker[result] = node
        if "inputs" in op.attributes:
            for output in list(op.operands)[attribute_value(op.attributes["inputs"]) :]:
                maker[output] = node
    return [*lines, *dict.fromkeys(edges), "  }"]


def _quoted(text: Any) -> str:
    return str(text).replace("\\", "\\\\").replace('"', "'")
