"""`mlirc opt --split-input-file` and `--verify-diagnostics`, as mlir-opt has them.

// expected-error@+1 {{unregistered operation}}      also @-1, @above, @below, and none for the same line
// expected-error-re@below {{takes {{[0-9]+}} bytes}}  in the inner braces a regular expression
// -----                                              parts of a file, each a module of its own

An expectation that is not understood is an error, where mlir-opt takes it for a comment: a test that checks nothing would pass.
"""

import re
from dataclasses import dataclass

from mlirc.commands.failure import Failure

_SPLIT = re.compile(r"^// -----[ \t]*\n", re.MULTILINE)
_EXPECTED = re.compile(r"expected-(\w+)(-re)?\s*(?:@([+-]\d+|above|below|[^\s{]+))?\s*\{\{(.*?)\}\}\s*$")
_MEANT = re.compile(r"//.*\bexpected[-_]?\w*\b.*\{\{|//\s*expected[-_](error|warning|note|remark)\b")


@dataclass(frozen=True)
class FilePart:
    """A module of a file; `line` is the first line's number less 1."""

    text: str
    line: int


def parts_of(text: str) -> list[FilePart]:
    """A file's parts, each padded so that its lines have the numbers that they have in the file."""
    found, line = [], 0
    for piece in _SPLIT.split(text):
        found.append(FilePart("\n" * line + piece, line))
        line += piece.count("\n") + 1
    return found


@dataclass(frozen=True)
class Expected:
    """An error that a line is to give; `text` is as it is written, `pattern` is what it means."""

    line: int
    text: str
    pattern: re.Pattern


def expected_errors(text: str, file: str) -> list[Expected]:
    """Raises Failure for an expectation of another kind, or one that is not understood."""
    found = []
    for number, line in enumerate(text.split("\n"), 1):
        match = _EXPECTED.search(line) if "//" in line else None
        if match is None:
            if _MEANT.search(line):
                raise Failure(f"{file}:{number}: not understood; write // expected-error@below {{{{text}}}}", 2)
            continue
        kind, regular, where, message = match.groups()
        if kind != "error":
            raise Failure(f"{file}:{number}: expected-{kind}: there are errors only, expected-error", 2)
        if where and not re.fullmatch(r"[+-]\d{1,6}|above|below", where):
            raise Failure(f"{file}:{number}: expected-error@{where}: write @+1, @-1, @above or @below", 2)
        offset = {"": 0, None: 0, "above": -1, "below": 1}.get(where)
        try:
            pattern = _pattern(message) if regular else re.compile(re.escape(message))
        except re.error as error:
            raise Failure(f"{file}:{number}: expected-error-re: {error}", 2) from error
        found.append(Expected(number + (int(where) if offset is None else offset), message, pattern))
    return found


def _pattern(message: str) -> re.Pattern:
    """Text as it is, and regular expressions in double braces."""
    parts = re.split(r"\{\{(.*?)\}\}", message)
    return re.compile("".join(f"(?:{part})" if k % 2 else re.escape(part) for k, part in enumerate(parts)))


def compare(expected: list[Expected], message: str | None, file: str) -> None:
    """Raises Failure where a part failed in another way than it says; `message` is None where it did not fail."""
    if message is None:
        if expected:
            raise Failure(f'{file}:{expected[0].line}: expected error "{expected[0].text}" was not produced')
        return
    lines = [int(n) for n in re.findall(rf"{re.escape(file)}:(\d+)(?::\d+)?", message)]
    for one in expected:
        if one.pattern.search(message) and (one.line in lines or not lines):
            others = [x for x in expected if x is not one]
            if others:
                raise Failure(f'{file}:{others[0].line}: expected error "{others[0].text}" was not produced')
            return
    near = next((x for x in expected if x.pattern.search(message)), None)
    if near is not None:
        raise Failure(f'{file}:{lines[0]}: expected error "{near.text}" is here, not at line {near.line}: {message}')
    missing = next((x for x in expected if x.line in lines), None)
    wanted = "" if missing is None else f', where "{missing.text}" was expected'
    raise Failure(f"unexpected error{wanted}: {message}")
