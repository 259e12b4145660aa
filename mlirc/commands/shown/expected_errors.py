"""`mlirc opt --split-input-file` and `--verify-diagnostics`, as mlir-opt has them.

// expected-error@+1 {{unregistered operation}}      also @-1, @above, @below, and none for the same line
// -----                                              parts of a file, each a module of its own
"""

import re
from dataclasses import dataclass

from mlirc.commands.failure import Failure

_SPLIT = re.compile(r"^// -----[ \t]*\n", re.MULTILINE)
_EXPECTED = re.compile(r"expected-(\w+)(?:@([+-]\d+|above|below|\S+))?\s*\{\{(.*?)\}\}")


@dataclass(frozen=True)
class Part:
    """A module of a file; `line` is the first line's number less 1."""

    text: str
    line: int


def parts_of(text: str) -> list[Part]:
    """A file's parts, each padded so that its lines have the numbers that they have in the file."""
    found, line = [], 0
    for piece in _SPLIT.split(text):
        found.append(Part("\n" * line + piece, line))
        line += piece.count("\n") + 1
    return found


@dataclass(frozen=True)
class Expected:
    line: int
    text: str


def expected_errors(text: str, file: str) -> list[Expected]:
    """Raises Failure for an expectation of another kind, or one that is not understood."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        for kind, where, message in _EXPECTED.findall(line):
            if kind != "error":
                raise Failure(f"{file}:{number}: expected-{kind}: there are errors only, expected-error", 2)
            if where and not re.fullmatch(r"[+-]\d{1,6}|above|below", where):
                raise Failure(f"{file}:{number}: expected-error@{where}: write @+1, @-1, @above or @below", 2)
            offset = {"": 0, "above": -1, "below": 1}.get(where)
            found.append(Expected(number + (int(where) if offset is None else offset), message))
    return found


def compare(expected: list[Expected], message: str | None, file: str) -> None:
    """Raises Failure where a part failed in another way than it says; `message` is None where it did not fail."""
    if message is None:
        if expected:
            raise Failure(f'{file}:{expected[0].line}: expected error "{expected[0].text}" was not produced')
        return
    lines = [int(n) for n in re.findall(rf"{re.escape(file)}:(\d+)(?::\d+)?", message)]
    for one in expected:
        if one.text in message and (one.line in lines or not lines):
            others = [x for x in expected if x != one]
            if others:
                raise Failure(f'{file}:{others[0].line}: expected error "{others[0].text}" was not produced')
            return
    raise Failure(f"unexpected error: {message}")
