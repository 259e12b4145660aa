"""Finds a script's graphs for `mlirc bisect SCRIPT.py`: runs `mlirc capture` on it, in a process of its own, which may crash."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from mlirc.commands.failure import Failure

_TRACEBACK = re.compile(r"(  \+ Exception Group )?Traceback \(most recent call last\)")
_LINE = re.compile(rb'loc\("([^"<]+)":(\d+)')


def graphs_of(script: str, arguments: Sequence[str], folder: str) -> list[Any]:
    """The graphs that a script compiles, captured into a folder, that have an imported module (list of DumpedGraph).

    What the script prints goes to standard output. Raises Failure where there is no such graph.
    """
    from mlirc.execution.captures import CaptureError, read_capture

    if not os.path.isfile(script):
        raise Failure(f"{script}: No such file or directory", 2)
    command = [sys.executable, "-m", "mlirc", "capture", script, "--out", folder, "--", *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    said = last_message(re.sub(r"(?m)^mlirc capture: .*\n", "", done.stderr))  # what follows is the program's
    try:
        found = [graph for graph in read_capture(folder).graphs if "import" in graph.stages]
    except CaptureError:
        found = []
    code, error = _ended(folder, done.returncode)
    said, failure = error or said, ""
    if code:
        failure = f"ended {f'by signal {-code}' if code < 0 else f'with {code}'}{said and f': {said}'}"
    if not found:
        why = f", as it {failure}" if failure else "; the script calls no function that torch.compile made"
        raise Failure(f"{script}: no graph was compiled{why}")
    if failure:
        click.echo(f"  {script} {failure}", err=True)
    return found


def _ended(folder: str, code: int) -> tuple[int, str]:
    """The script's exit code, as the capture keeps it; -N is signal N. And the exception that ended it, in one line, or "". `code` is that of
    `mlirc capture`: 1 where nothing was compiled."""
    from mlirc.execution.captures import RUN

    try:
        kept = json.loads(Path(folder, RUN).read_text())
        ended, error = kept["exit"], kept["error"]
    except (OSError, ValueError, LookupError, TypeError):  # the process crashed, and `code` is the script's
        return code, ""
    return ended if isinstance(ended, int) else code, error if isinstance(error, str) else ""


def last_message(said: str) -> str:
    """The message of the last exception that a program printed, whole and in one line; else its last line."""
    lines = said.rstrip().splitlines()
    starts = [k for k, line in enumerate(lines) if _TRACEBACK.match(line)]
    if not starts:
        return " ".join("".join(lines[-1:]).split())
    if lines[starts[-1]].startswith("  +"):  # a group of exceptions: each line has a margin, and its parts follow
        parts = next((k for k, line in enumerate(lines) if line.startswith("  +-+-")), len(lines))
        lines = [line[4:] if line.startswith("  | ") else line for line in lines[:parts]]
    lines = lines[starts[-1] + 1 :]
    while lines and lines[0].startswith("  "):  # frames, with their source lines
        lines.pop(0)
    return " ".join(" ".join(lines).split())


def passes_of(graph: Any) -> str | None:
    """The passes that the script compiled the graph with, as pipeline text; None if the capture does not say."""
    stages = graph.record.get("passes")
    if not isinstance(stages, dict) or not all(isinstance(text, str) for text in stages.values()):
        return None
    return ",".join(filter(None, stages.values())) or None


def label_of(graph: Any) -> str:
    """What a message calls the graph: "graph 1 (backward), of model.py:12 to 40", by its number, kind and source lines."""
    kind = "" if graph.kind == "inference" else f" ({graph.kind})"
    text = graph.stages["import"].read_bytes()
    lines = sorted({(_unescaped(file), int(line)) for file, line in _LINE.findall(text)})
    if not lines:
        return f"graph {graph.number}{kind}"
    first, last = lines[0], lines[-1]
    end = "" if first == last else f" to {last[1]}" if last[0] == first[0] else f" to {last[0]}:{last[1]}"
    return f"graph {graph.number}{kind}, of {first[0]}:{first[1]}{end}"


def _unescaped(name: bytes) -> str:
    """A file's name as it is, in which MLIR writes bytes beyond ASCII as \\C3\\BC."""
    return re.sub(rb"\\([0-9A-F]{2})", lambda found: bytes([int(found[1], 16)]), name).decode(errors="replace")
