"""The text of a module's functions, op by op: what a diff compares.

MLIR numbers values anew at each printing (%0, %1, ...), so that an op which nobody changed may print otherwise. OpText has the
op without those numbers beside it.
"""

import re
from collections.abc import Mapping
from functools import lru_cache

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.lazy_dataclass import dataclass

_VALUE = re.compile(r"%[\w$.-]+(?:#\d+)?")
_DEFINES = re.compile(r"^\s*(%[\w$.-]+)(?::\d+)? = ", re.MULTILINE)
_BLOCK = re.compile(r"^\s*\^\w+\((.*)\):", re.MULTILINE)


@dataclass(frozen=True)
class OpText:
    """The text of an op with its regions. Two ops that differ in the numbers of values alone have the same key.

    text       as printed, without indentation
    key        the text with values renamed: those defined in the op are %0, %1, ... in order, each of all others is a bare %
    operands   the values that it reads and that are defined outside of it, in order
    results    the names of its results: "%3" for %3:2, which stands for %3#0 and %3#1
    """

    text: str
    key: str
    operands: tuple[str, ...]
    results: tuple[str, ...]


def functions_of(module: ir.Module) -> dict[str, list[OpText]]:
    """The ops of each function by the function's name, without those that kernels became. The first entry is the line `func.func ...`."""
    found = {}
    for op in module.operation.regions[0].blocks[0].operations:
        if op.operation.name == "func.func" and op.regions[0].blocks and not op.name.value.startswith("kernel_"):
            found[op.name.value] = ops_of(op.operation.get_asm())
    return found


def ops_of(function: str) -> list[OpText]:
    """The text of a function, split into its ops; an op in a region of another is part of that other."""
    lines = function.rstrip().split("\n")
    body = lines[1:-1]
    depth = len(body[0]) - len(body[0].lstrip()) if body else 0
    parts: list[list[str]] = []
    for line in body:
        begins = len(line) - len(line.lstrip()) == depth and not line.lstrip().startswith("}")
        if begins or not parts:
            parts.append([])
        parts[-1].append(line[depth:])
    return [_op(lines[0].strip()), *(_op("\n".join(part)) for part in parts)]


def same_operands(old: OpText, new: OpText, renamed: Mapping[str, str]) -> bool:
    """Whether both read the same values. `renamed` maps a name in the old text to the name of the same value in the new one."""
    before = [(renamed.get(name, ""), number) for name, _, number in (x.partition("#") for x in old.operands)]
    return before == [(name, number) for name, _, number in (x.partition("#") for x in new.operands)]  # %3#1: result 1


@lru_cache(maxsize=16384)  # most ops of a module stand there before a pass and after it
def _op(text: str) -> OpText:
    own: dict[str, str] = {}
    operands: list[str] = []
    defined = set(_DEFINES.findall(text))
    defined |= {name for arguments in _BLOCK.findall(text) for name in _VALUE.findall(arguments)}
    if text.startswith("func.func"):
        defined = set(_VALUE.findall(text))

    def named(match: re.Match) -> str:
        name, _, number = match[0].partition("#")
        if name in defined:
            return own.setdefault(name, f"%{len(own)}") + (f"#{number}" if number else "")
        operands.append(match[0])
        return "%"

    key = _VALUE.sub(named, text)
    first = _DEFINES.match(text)
    results = (first[1],) if first else ()
    if text.startswith("func.func"):
        results = tuple(dict.fromkeys(_VALUE.findall(text)))
    return OpText(text, key, tuple(operands), results)
