"""What a notebook displays of a capture: a graph with all its views, the IR after a stage, a kernel, a difference; by the page's own scripts.

graph = read_capture("dumped").graphs[0]
graph                                          # a cell that ends so shows its views
graph.stage("fuse")
graph.stage("simplify").diff(graph.stage("fuse"))
graph.kernel("add_softmax")
"""

import html
from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core.context import context
from mlirc.execution.captures import CaptureError, DumpedGraph
from mlirc.lowering.module.counted import counted
from mlirc.lowering.module.nearest import unknown
from mlirc.report.html_page import html_page
from mlirc.report.stage_modules import StageModules

HEIGHT, LOW, HIGH = 620, 120, 560  # pixels of a graph; the least and the most of a text
LINE = 18


def framed(data: dict[str, Any], title: str, height: int) -> str:
    """A page in a frame of its own, which shares nothing with the notebook."""
    page = html.escape(html_page(data, title), quote=True)
    return (
        f'<iframe sandbox="allow-scripts" srcdoc="{page}" width="100%" height="{height}" '
        f'style="border:1px solid #8884" title="{html.escape(title)}"></iframe>'
    )


def graph_html(graph: DumpedGraph) -> str:
    from mlirc.report.report_data import Budget, Budgets, graph_data

    with context():
        data = graph_data(graph, None, Budgets(Budget(1.0), Budget(1.0)))
    return framed({"folder": "", "run": {}, "frames": [], "graphs": [data], "bare": True}, graph.name, HEIGHT)


@dataclass(frozen=True, repr=False)
class TextView:
    """Lines with numbers, or with signs: [sign, line]."""

    title: str
    facts: tuple[tuple[str, Any], ...]
    lines: tuple[Any, ...]

    def _repr_html_(self) -> str:
        only = {"title": self.title, "facts": self.facts, "lines": self.lines}
        height = min(HIGH, max(LOW, 60 + LINE * (len(self.lines) + len(self.facts))))
        return framed({"only": only}, self.title, height)

    def __repr__(self) -> str:
        return f"<{self.title}, {counted(len(self.lines), 'line')}>"

    def __str__(self) -> str:
        return "\n".join(x if isinstance(x, str) else f"{x[0].strip('|') or ' '} {x[1]}" for x in self.lines)


@dataclass(frozen=True, repr=False)
class StageView:
    """The IR of a captured graph after a stage."""

    graph: DumpedGraph
    name: str

    def __post_init__(self) -> None:
        if self.name not in self.graph.stages:
            raise CaptureError(f"{self.graph.name}: {unknown('stage', self.name, list(self.graph.stages))}")

    @property
    def text(self) -> str:
        return StageModules(self.graph).texts[self.name]

    def diff(self, after: "StageView") -> TextView:
        """What is new, gone, and reads other values in another stage."""
        from mlirc.lowering.module.op_text import functions_of
        from mlirc.report.op_changes import folded_changes, op_changes

        with context():
            old, new = (functions_of(StageModules(x.graph).module(x.name)) for x in (self, after))
        lines: list[Any] = []
        for name in dict.fromkeys([*old, *new]):
            lines += folded_changes(op_changes(old.get(name, []), new.get(name, [])))
        return TextView(f"{self.graph.name}: {self.name} → {after.name}", (), tuple(lines))

    def _repr_html_(self) -> str:
        return TextView(f"{self.graph.name}: {self.name}", (), tuple(self.text.split("\n")))._repr_html_()

    def __repr__(self) -> str:
        return f"<{self.graph.name}: {self.name}, {counted(len(self.text.splitlines()), 'line')}>"

    def __str__(self) -> str:
        return self.text


def kernel_view(graph: DumpedGraph, name: str) -> TextView:
    """A kernel's facts and code, by its name in the report or that of its function. Raises CaptureError."""
    from mlirc.report.code_data import code_data

    kernels = (graph.record.get("report") or {}).get("kernels") or []
    told = next((k for k in kernels if k.get("name") == name), None)
    code = code_data(StageModules(graph))
    found = next((c for c in code if name in (c["label"], c["name"])), None)
    if told is None and found is None:
        raise CaptureError(f"{graph.name}: {unknown('kernel', name, [k['name'] for k in kernels])}")
    told = told or next((k for k in kernels if found is not None and k.get("name") == found["label"]), {})
    facts = [(key, told[key]) for key in ("launches", "read", "written", "flops") if key in told]
    facts += [("ops", " ".join(told["ops"])), ("lines", ", ".join(told["lines"]))] if told else []
    lines = tuple(found["text"].split("\n")) if found is not None else ()
    return TextView(f"{graph.name}: {name}", tuple(facts), lines)
