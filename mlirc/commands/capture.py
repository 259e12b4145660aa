"""`mlirc capture`: runs a program unchanged, every torch.compile in it with mlirc, and keeps each graph in a folder."""

import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import click

from mlirc.commands.failure import HELP, Failure, reported
from mlirc.lowering.module.counted import counted


@click.command(context_settings=HELP | {"ignore_unknown_options": True})
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("--out", "folder", required=True, metavar="DIR", help="Where to keep the graphs: a new or empty folder.")
def capture(script: str, arguments: tuple[str, ...], folder: str) -> None:
    """Run SCRIPT.py with ARGUMENTS as Python would, compile what it compiles with mlirc, and keep each graph in DIR, with its IR after every stage.

    Whatever backend a torch.compile asks for, it gets mlirc. What the script prints is its own; a last line on standard
    error says what was kept. Exits as the script does; with 1 where it compiled nothing, with 2 when the command line is
    wrong. Arguments after -- are all the script's. What `python -m MODULE` runs, `mlirc capture -m MODULE` does.
    """
    with reported():
        if script == "-m" and not arguments:
            raise Failure("-m: name a module", 2)
        if script == "-m" and not _is_there(arguments[0]):
            raise Failure(f"-m: no module named '{arguments[0]}'", 2)
        _check(None if script == "-m" else script, folder)
        run = _imported()
        there = os.path.abspath(folder)  # the script may go to another folder
        code = run(script, list(arguments), folder)
        _tell(folder, there, code)
    sys.exit(code)


def _is_there(module: str) -> bool:
    """Whether `python -m MODULE` finds it. Packages around it are imported, and may raise: they do so again when it runs."""
    if module.startswith("."):
        return False
    sys.path.insert(0, os.getcwd())
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError as error:
        return error.name is None or not f"{module}.".startswith(f"{error.name}.")
    except ValueError:  # no name of a module
        return False
    except Exception:
        return True
    finally:
        del sys.path[0]


def _check(script: str | None, folder: str) -> None:
    """Raises Failure for a script that cannot be run, where there is one, and a folder that has something in it."""
    out = Path(folder)
    try:
        if script is not None:
            path = Path(script)
            if not path.is_file():
                path.stat()
                raise Failure(f"{script}: no regular file", 2)
            path.read_bytes()
        if out.exists() and not out.is_dir():
            raise Failure(f"--out {folder}: is no folder", 2)
        if out.is_dir() and any(out.iterdir()):
            raise Failure(f"--out {folder}: has files in it, and none is written over; name a new folder", 2)
        out.mkdir(parents=True, exist_ok=True)
    except (OSError, ValueError) as error:
        is_script = not isinstance(error, OSError) or error.filename == script
        where = script if script is not None and is_script else f"--out {folder}"
        raise Failure(f"{where}: {getattr(error, 'strerror', None) or error}", 2) from error


def _imported() -> Callable[[str, list[str], str], int]:
    from mlirc.execution.script import captured_run

    return captured_run


def _tell(folder: str, there: str, code: int) -> None:
    """Says what was kept in the folder, whose absolute path is `there`. Raises Failure where nothing was, or not all."""
    from mlirc.execution.captures import CaptureError, read_capture
    from mlirc.frontend.report.capture_folder import INCOMPLETE

    lost = INCOMPLETE.get(there)
    try:
        found = read_capture(there)
    except CaptureError as error:
        raise Failure(f"{folder}: {lost}; nothing was kept" if lost else str(error), code or 1) from error
    if lost:
        raise Failure(f"{folder}: {lost}; of {counted(len(found.graphs), 'graph')} some files are not there", code or 1)
    if not found.frames:
        ended = found.run.get("error")
        raise Failure(
            f"{folder}: no graph was compiled"
            + (
                f", as the script raised {ended}" if ended else "; the script calls no function that torch.compile made"
            ),
            code or 1,
        )
    breaks = len(found.run.get("graph_breaks", ()))
    eager = sum(1 for g in found.graphs if g.record.get("failed") or g.record.get("report", {}).get("fallback"))
    eager += sum(1 for f in found.frames if f.record.get("fallback"))
    made = (
        f"{counted(len(found.graphs), 'graph')}, made of {counted(len(found.frames), 'graph')} of Dynamo's, in {folder}"
    )
    click.echo(
        f"mlirc capture: {made}; graph breaks: {breaks}" + (f"; in eager: {eager}" if eager else ""),
        err=True,
    )
