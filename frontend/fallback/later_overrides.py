"""Operators that somebody overrides after a graph was compiled: the graph's calls run in eager from then on, until that is taken back.

A call costs nothing: registering a kernel in Python, or removing one, notifies each live graph (library_changes.py).
"""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any
from weakref import WeakSet

from mlirc.codegen.aten.overridden_kernels import overridden_by_name
from mlirc.frontend.torch_compat.library_changes import on_change, overrides

_graphs: "WeakSet[Any]" = WeakSet()


class LaterOverrides:
    """Tracks which of some ATen operators, by name ("aten::silu"), are overridden after this object is made."""

    def __init__(self, operators: Iterable[str]):
        self.operators = frozenset(x for x in operators if x.startswith("aten::"))
        self._known = overrides()

    def tell(self, graph: Callable) -> None:
        """Calls graph.look() after each change."""
        if self.operators:
            _listen()
            _graphs.add(graph)

    def found(self) -> str:
        """Which one is overridden that was not, as a sentence, or ""."""
        added = (entry.split("/") for entry in overrides() - self._known)
        names = {f"aten::{entry[1]}" for entry in added if entry[0] == "aten" and entry[-1] != "Meta"}
        why = overridden_by_name(sorted(names & self.operators))
        return f"somebody has overridden {why}" if why else ""


@cache
def _listen() -> None:
    on_change(_look)


def _look() -> None:
    for graph in list(_graphs):
        graph.look()
