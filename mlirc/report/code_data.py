"""The code of each kernel: functions of the lowered module as MLIR, Triton's Python for a GPU, and what both become."""

import re
from collections.abc import Sequence
from typing import Any

from mlirc.report.stage_modules import StageModules, without_locations

MOST = 1 << 23  # characters of all kernels together
_BEGIN = re.compile(r'^  (?:func|llvm)\.func\b[^@\n]*@"?(kernel_\d+)([^(\s"]*)"?\(', re.MULTILINE)
_TRITON = re.compile(r'^  "?mlirc\.triton"?.*$', re.MULTILINE)
_RUN = re.compile(r'^.*\bkernel = "kernel_\w+".*$', re.MULTILINE)
_STRING = re.compile(r'(\w+) = "((?:[^"\\]|\\.)*)"')


def code_data(stages: StageModules, native: Sequence[tuple[str, str, str]] = ()) -> list[dict[str, Any]]:
    """`native` are names, languages and texts of machine code (native_code.py)."""
    if "lower" not in stages.files:
        return []
    text, left = stages.files["lower"].read_text(errors="replace"), MOST
    runs = [dict(_STRING.findall(match[0])) for match in _RUN.finditer(text)]
    labels = {run["kernel"]: run.get("label") or run.get("callee", "") for run in runs}
    found = []
    for name, language, part in [*_triton(text), *_kernels(text), *native]:
        if len(part) > left:
            part = f"... {len(part)} characters in {stages.files['lower'].name}\n"
        left -= len(part)
        found.append({"name": name, "label": labels.get(name, ""), "language": language, "text": part})
    return found


def _kernels(text: str) -> list[tuple[str, str, str]]:
    """The kernels of a lowered module's text, each with all of its functions, the called one first. A function ends with the line
    that closes it at its depth."""
    parts: dict[str, list[tuple[int, str]]] = {}
    for match in _BEGIN.finditer(text):
        line_end = text.find("\n", match.start())
        if (
            not text[match.start() : line_end].split(" loc(")[0].rstrip().endswith("{")
            and "{" not in text[match.end() : line_end]
        ):
            continue  # a declaration
        end = text.find("\n  }", match.start())
        part = text[match.start() : end + 4 if end >= 0 else len(text)]
        order = ["", "_body"].index(match[2]) if match[2] in ("", "_body") else 2
        parts.setdefault(match[1], []).append((order, "\n".join(line[2:] for line in part.split("\n"))))
    ordered = sorted(parts.items(), key=lambda item: int(item[0].removeprefix("kernel_")))
    return [
        (name, "mlir", "\n".join(without_locations(part) for _, part in sorted(found, key=lambda x: x[0])).rstrip())
        for name, found in ordered
    ]


def _triton(text: str) -> list[tuple[str, str, str]]:
    found = []
    for match in _TRITON.finditer(text):
        named = dict(_STRING.findall(match[0]))
        if "source" in named:
            found.append((named.get("sym_name", "kernel"), "python", unescaped(named["source"])))
    return found


def unescaped(text: str) -> str:
    """A string as MLIR prints it."""
    return re.sub(r"\\([0-9A-Fa-f]{2}|.)", lambda m: chr(int(m[1], 16)) if len(m[1]) == 2 else m[1], text)
