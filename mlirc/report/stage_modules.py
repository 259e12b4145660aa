"""The IR that a capture kept after each stage: as text, and as modules, which are parsed once. Needs an entered context to parse."""

import re
from functools import cached_property
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.execution.captures import DumpedGraph

MOST_SHOWN = 1 << 22  # characters of a stage's text
_ALIAS = re.compile(r" loc\(#loc\d*\)")


class StageModules:
    """`texts` by stage, in order, without locations."""

    def __init__(self, graph: DumpedGraph):
        self.files = graph.stages
        self.modules: dict[str, Any] = {}

    def module(self, stage: str) -> ir.Module | None:
        """Raises TextError. What changes it takes a clone."""
        from mlirc.lowering.files.text import parse_module

        if stage not in self.files:
            return None
        if stage not in self.modules:
            path = self.files[stage]
            self.modules[stage] = parse_module(path.read_bytes(), str(path))
        return self.modules[stage]

    @cached_property
    def texts(self) -> dict[str, str]:
        """The text of each stage's module, without kernels' code in `lower`, which code_data.py shows."""
        found = {}
        for stage, path in self.files.items():
            text = without_locations(path.read_text(errors="replace"))
            if stage == "lower":
                text = functions_of_ours(text)
            found[stage] = (
                text
                if len(text) <= MOST_SHOWN
                else text[:MOST_SHOWN] + f"\n... {len(text)} characters in {path.name}\n"
            )
        return found


def without_locations(text: str) -> str:
    """Lines as MLIR prints them without debug information."""
    kept = "\n".join(line for line in text.split("\n") if not line.startswith(("#loc", "//")))
    lines = map(strip, _ALIAS.sub("", kept).split("\n"))
    return "\n".join(lines).strip() + "\n"


def strip(line: str) -> str:
    at = line.find(" loc(")
    while at >= 0:
        end, depth, quoted = at + 5, 1, False
        while end < len(line) and depth:
            c = line[end]
            quoted ^= c == '"'
            depth += (not quoted) * ((c == "(") - (c == ")"))
            end += 1
        line = line[:at] + line[end:]
        at = line.find(" loc(")
    return line


def functions_of_ours(text: str) -> str:
    """A lowered module without its kernels."""
    kept, inside = [], False
    for line in text.split("\n"):
        if line.startswith(("  func.func", "  llvm.func")):
            inside = "@kernel_" in line or line.startswith("  llvm.func")
        if not inside:
            kept.append(line)
        if line == "  }":
            inside = False
    return "\n".join(kept)
