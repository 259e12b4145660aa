"""The code of each kernel: functions of the lowered module as MLIR, Triton's Python for a GPU."""

import re
from typing import Any

from mlirc.report.stage_modules import StageModules, without_locations

MOST = 1 << 23  # characters of all kernels together
_BEGIN = re.compile(r"^  func\.func (?:private )?@(kernel_\w+|\w+)\(", re.MULTILINE)
_TRITON = re.compile(r'^  "?mlirc\.triton"?.*$', re.MULTILINE)
_STRING = re.compile(r'(\w+) = "((?:[^"\\]|\\.)*)"')


def code_data(stages: StageModules) -> list[dict[str, Any]]:
    if "lower" not in stages.files:
        return []
    text, left = stages.files["lower"].read_text(errors="replace"), MOST
    found = []
    for name, language, part in [*_triton(text), *_kernels(text)]:
        if len(part) > left:
            part = f"... {len(part)} characters in {stages.files['lower'].name}\n"
        left -= len(part)
        found.append({"name": name, "language": language, "text": part})
    return found


def _kernels(text: str) -> list[tuple[str, str, str]]:
    """A function ends with a line that closes it at its own depth."""
    found = []
    for match in _BEGIN.finditer(text):
        if match[1] in ("graph", "prepare"):
            continue
        end = text.find("\n  }", match.start())
        part = text[match.start() : end + 4 if end >= 0 else len(text)]
        found.append((match[1], "mlir", without_locations(part)))
    return found


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
