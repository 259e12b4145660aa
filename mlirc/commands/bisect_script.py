"""The graphs of a program for `mlirc bisect SCRIPT.py`: it runs unchanged in a process of its own, which may crash, and MLIRC_DUMP keeps them."""

import os
import re
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click

from mlirc.commands.failure import Failure

_LINE = re.compile(r'loc\("([^"<]+)":(\d+)')


def graphs_of(script: str, arguments: Sequence[str], folder: str) -> list[Any]:
    """The graphs that the program compiles with mlirc, as they are imported. What it prints is its own. Raises Failure."""
    from mlirc.execution.captures import CaptureError, read_capture

    if not os.path.isfile(script):
        raise Failure(f"{script}: no such file", 2)
    command = [sys.executable, script, *arguments]
    environment = os.environ | {"MLIRC_DUMP": folder}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, errors="replace")
    said = (done.stderr.strip().splitlines() or [""])[-1]
    try:
        found = [graph for graph in read_capture(folder).graphs if "import" in graph.stages]
    except CaptureError:
        found = []
    if done.returncode:
        how = f"by signal {-done.returncode}" if done.returncode < 0 else f"with {done.returncode}: {said}"
        click.echo(f"  {script} ended {how}", err=True)
    if not found:
        raise Failure(f'{script}: no graph was compiled with backend="mlirc"{f": {said}" if done.returncode else ""}')
    return found


def passes_of(graph: Any) -> str | None:
    """The passes that the program compiled the graph with."""
    stages = graph.record.get("passes")
    if not isinstance(stages, dict) or not all(isinstance(text, str) for text in stages.values()):
        return None
    return ",".join(filter(None, stages.values())) or None


def label_of(graph: Any) -> str:
    """Which graph it is, and the user's lines that it is of."""
    kind = "" if graph.kind == "inference" else f" ({graph.kind})"
    lines = sorted({(file, int(line)) for file, line in _LINE.findall(graph.stages["import"].read_text())})
    if not lines:
        return f"graph {graph.number}{kind}"
    first, last = lines[0], lines[-1]
    where = f"{first[0]}:{first[1]}" + (f" to {last[1] if last[0] == first[0] else f'{last[0]}:{last[1]}'}")
    return f"graph {graph.number}{kind}, of {where}"
