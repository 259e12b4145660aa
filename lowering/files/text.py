"""Reads a module from an untrusted file: refuses text that would crash MLIR's parser or Python.

MLIR's parser descends a level for each bracket, and takes its stack with it; so do the readers of size expressions. The
text is looked through once for how deep brackets nest, outside of strings and comments.
"""

import re
from codecs import BOM_UTF8
from itertools import accumulate
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import Mlirc
from mlirc.lowering.module.errors import diagnostic_text
from mlirc.lowering.module.nearest import nearest
from mlirc.lowering.module.source_lines import source_line, typed

DEEPEST = 100  # brackets within brackets; what passes of ours leave has fewer than 20
LONGEST_NUMBER = 1000  # digits
LONGEST_STRING = 1 << 20  # characters
LARGEST_ALIAS = 10_000  # attributes or types that a name stands for
LARGEST = 1 << 29  # bytes of a file

# a string, a comment, a number, an arrow or a comparison, a bracket
_TOKEN = re.compile(
    rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*|(?<!\w)\d[\w.]*|->|[<>=!]=|[][(){}<>]|(?:-\s*){50,}', re.DOTALL
)
_SKIPPED = re.compile(
    rb'"[^"\\\n]*(?:\\.[^"\\\n]*)*"|//[^\n]*|->|[<>=!]=', re.DOTALL
)  # of these, what holds no bracket
_LONG = re.compile(rb"(?<!\w)\d[\w.]{%d}|(?:-\s*){50}" % LONGEST_NUMBER)
_ESCAPE = re.compile(rb"\\([0-9A-Fa-f]{2})")
_OPEN, _CLOSE = b"([{<", b")]}>"
_NO_BRACKETS = bytes(set(range(256)) - set(_OPEN + _CLOSE))
_STEPS = bytes.maketrans(_OPEN + _CLOSE, b"\x01" * 4 + b"\xff" * 4)  # 1 and -1
_ALIAS = re.compile(rb"^[ \t]*([#!][\w.$-]+)[ \t]*=", re.MULTILINE)  # #loc3 = loc(...)
_NAME = re.compile(rb"[#!][A-Za-z_][\w.$-]*")


class TextError(ValueError):
    """A text that is no module; the message is one line."""


def parse_module(text: bytes, name: str = "-") -> Any:
    """The module in a file's bytes, which may begin with a byte-order mark of UTF-8. Raises TextError. Needs an entered context."""
    marked = text.startswith(BOM_UTF8)
    text = text.removeprefix(BOM_UTF8)
    if wrong := refusal(text):
        raise TextError(f"{name}: {wrong}")
    try:
        return (
            ir.Module.parse(text.decode()) if name == "-" or marked else ir.Module.parseFile(name)
        )  # which puts its name in locations, and takes no mark
    except ir.MLIRError as error:
        for diagnostic in error.error_diagnostics:
            where = source_line(typed(diagnostic.location))
            where = f"{name}:{where[2:]}" if where.startswith("-:") else where
            where = where if where.startswith(f"{name}:") else f"{name}: {where}"  # an op has the user's source line
            message = diagnostic_text(diagnostic)
            raise TextError(f"{where}: {message}{_nearest_op(message)}") from error
        raise TextError(f"{name}: {error}") from error


def _nearest_op(message: str) -> str:
    """The op that a file probably means by one that there is not."""
    wrong = re.search(r"unregistered operation '(mlircx?\.[^']*)'", message)
    return nearest(wrong[1], [getattr(cls, "OPERATION_NAME", "") for cls in Mlirc.operations]) if wrong else ""


def refusal(text: bytes) -> str:
    """Why the text is not given to MLIR's parser, or ""."""
    if len(text) > LARGEST:
        return f"{len(text)} bytes; a module has at most {LARGEST}"
    try:
        text.decode()
    except UnicodeDecodeError as error:
        return f"byte {error.start} is not UTF-8"
    if b"\0" in text:
        return f"byte {text.index(0)} is 0"
    return deep_alias(text) if _is_plain(text) else _wrong_token(text) or deep_alias(text)


def _is_plain(text: bytes) -> bool:
    """Whether no token of the text is wrong, by a look at all of them at once; where it is False, some may be."""
    if any(len(x) > LONGEST_STRING or (b"\\" in x and not _is_utf8(x)) for x in _SKIPPED.findall(text)):
        return False
    rest = _SKIPPED.sub(b"~", text)
    steps = memoryview(rest.translate(_STEPS, _NO_BRACKETS)).cast("b")
    depths = list(accumulate(steps, initial=0))
    return max(depths) <= DEEPEST and min(depths) >= 0 and not _LONG.search(rest)


def _wrong_token(text: bytes) -> str:
    """What is wrong with the first token that is, or ""."""
    depth = 0
    for match in _TOKEN.finditer(text):
        token = match[0]
        first = token[:1]
        if first == b'"':
            if len(token) > LONGEST_STRING:
                return f"line {line_of(text, match)}: a string of {len(token)} characters; at most {LONGEST_STRING}"
            if not _is_utf8(token):
                return f"line {line_of(text, match)}: a string that is not UTF-8"
        elif token in (b"->", b"==", b"!=", b"<=", b">=") or first == b"/":
            continue
        elif first == b"-":
            return f"line {line_of(text, match)}: a row of {token.count(b'-')} signs"
        elif first.isdigit():
            if len(token) > LONGEST_NUMBER:
                return f"line {line_of(text, match)}: a number of {len(token)} digits; at most {LONGEST_NUMBER}"
        elif token in _OPEN:
            depth += 1
            if depth > DEEPEST:
                return f"line {line_of(text, match)}: brackets nest deeper than {DEEPEST}"
        else:
            depth = max(depth - 1, 0)
    return ""


def _is_utf8(string: bytes) -> bool:
    """Whether a string is, its escapes read."""
    try:
        _ESCAPE.sub(lambda m: bytes([int(m[1], 16)]), string).decode()
    except UnicodeDecodeError:
        return False
    return True


def deep_alias(text: bytes) -> str:
    """Whether names stand for what nests as deep, or is larger than any module written out; "" if not."""
    found = list(_ALIAS.finditer(text))
    depths: dict[bytes, int] = {}
    sizes: dict[bytes, int] = {}
    for match, following in zip(found, [*found[1:], None], strict=False):
        end = following.start() if following else text.find(b"\n", match.end())
        used = [n for n in _NAME.findall(text[match.end() : end if end >= 0 else len(text)]) if n in depths]
        depths[match[1]] = 1 + max((depths[n] for n in used), default=0)
        # a location that is used is printed by its name again
        sizes[match[1]] = 1 if match[1].startswith(b"#loc") else 1 + sum(sizes[n] for n in used)
        if depths[match[1]] > DEEPEST or sizes[match[1]] > LARGEST_ALIAS:
            return f"line {line_of(text, match)}: {match[1].decode()} nests deeper than {DEEPEST}, or is too large"
    return ""


def line_of(text: bytes, match: re.Match) -> int:
    return text.count(b"\n", 0, match.start()) + 1
