"""The graphs of a program for `mlirc bisect SCRIPT.py`: captured by `mlirc capture` in a process of its own, which may crash."""

import subprocess
import sys
from collections.abc import Sequence
from typing import Any

import click

from mlirc.commands.failure import Failure


def graphs_of(script: str, arguments: Sequence[str], folder: str) -> list[Any]:
    """The graphs that the program compiles, with their IR as it is imported. What it prints is its own. Raises Failure."""
    from mlirc.execution.captures import CaptureError, read_capture

    command = [sys.executable, "-m", "mlirc", "capture", "--out", folder, "--", script, *arguments]
    done = subprocess.run(command, stderr=subprocess.PIPE, text=True, errors="replace")
    said = done.stderr.strip().splitlines()[-1:] or [""]
    if done.returncode == 2:
        raise Failure(said[0].partition(": ")[2] or said[0], 2)
    try:
        found = [graph for graph in read_capture(folder).graphs if "import" in graph.stages]
    except CaptureError as error:
        raise Failure(f"{script}: {said[0] or error}") from error
    if not found:
        raise Failure(f"{script}: no graph was compiled: {said[0]}")
    if done.returncode:
        click.echo(f"  {script} ended with {done.returncode}: {said[0]}", err=True)
    return found


def in_words(graph: Any) -> str:
    """Which graph it is."""
    shown = sorted(graph.stages["import"].read_text().split('loc("')[1:])
    places = [part.split('"')[0] + ":" + part.split('":')[1].split(":")[0] for part in shown if '":' in part]
    at = f", of {places[0]} and on" if places else ""
    return (
        f"graph {graph.number}, the {graph.kind} graph{at}"
        if graph.kind != "inference"
        else f"graph {graph.number}{at}"
    )
