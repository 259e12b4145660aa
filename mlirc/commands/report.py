"""`mlirc report DIR`: one page of HTML about captured graphs."""

import json
from pathlib import Path
from typing import Any

import click

from mlirc.commands.failure import HELP, Failure, reported, traceback_option
from mlirc.commands.few_collections import few_collections
from mlirc.commands.module_file import check_inputs, check_outputs, write_output
from mlirc.lowering.module.counted import counted


@click.command(context_settings=HELP)
@click.argument("folder", required=False, metavar="DIR")
@click.option(
    "-o", "output", default="report.html", metavar="FILE", show_default=True, help="The page; - is standard output."
)
@click.option("--profile", "profile_file", metavar="FILE", help="Rows of `mlirc profile DIR --json FILE`.")
@click.option(
    "--seconds",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    default=3.0,
    show_default=True,
    help="For running passes again, and as many for making machine code.",
)
@traceback_option
def report(folder, output, profile_file, seconds, traceback) -> None:
    """Show what a capture kept as one page that opens from disk: source and kernels, the graph, what each pass changed, the ledger, the
    memory plan, code, times, guards.

    DIR is of `mlirc capture`, MLIRC_DUMP or the option dump. Passes run again for it, machine code is made, and nothing of it is executed.
    Exits with 1 where DIR is no capture.
    """
    with reported(traceback), few_collections():
        if folder is None:
            raise Failure("no DIR; `mlirc capture SCRIPT.py --out DIR` makes one, -h is help", 2)
        check_inputs(folder, profile_file)
        check_outputs(output, inputs=(folder, profile_file))
        profiles = _profiles(profile_file) if profile_file else {}
        from mlirc.dialects.core.context import context
        from mlirc.execution.captures import CaptureError, read_capture
        from mlirc.report.html_page import html_page
        from mlirc.report.report_data import report_data

        try:
            capture = read_capture(folder)
        except CaptureError as error:
            raise Failure(str(error)) from error
        if profiles and not profiles.keys() & {graph.name for graph in capture.graphs}:
            raise Failure(f"{profile_file}: has no graph of {folder}; it has {', '.join(sorted(profiles)[:4])[:200]}")
        with context():
            data = report_data(capture, profiles, seconds)
        write_output(output, html_page(data, f"mlirc: {Path(folder).resolve().name}"))
        if capture.missing:
            click.echo(
                f"{folder}: files are missing, and the page is without them: {', '.join(capture.missing)}", err=True
            )
        if output != "-":
            number = len(data["graphs"])
            click.echo(f"{output}: {counted(number, 'graph')}", err=True)


def _profiles(path: str) -> dict[str, Any]:
    """Rows by the name of their graph."""
    try:
        read = json.loads(Path(path).read_text())
        return {graph["name"]: graph["rows"] for graph in read["graphs"]}
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise Failure(f"{path}: no rows of mlirc profile --json: {' '.join(str(error).split())}") from error
