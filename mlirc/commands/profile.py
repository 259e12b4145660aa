"""`mlirc profile SCRIPT.py | DIR`: the time of each kernel and call of what a script compiles, or of captured graphs, beside its floor."""

import json
from pathlib import Path
from typing import Any

import click

from mlirc.commands.failure import HELP, Failure, reported, traceback_option
from mlirc.commands.module_file import check_inputs, check_outputs, write_output

WAITS = 0.1  # of the time: where all calls wait alike, their times do not vary
VARIES = 2.0
"""Times the shortest that medians add up to at most, where a process has its processors to itself."""


@click.command(context_settings=HELP)
@click.argument("subject", required=False, metavar="SCRIPT.py|DIR")
@click.argument("arguments", nargs=-1)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Of PyTorch's pool.")
@click.option("--json", "json_file", metavar="FILE", help="Write the rows as JSON; - is standard output.")
@traceback_option
def profile(subject, arguments, threads, json_file, traceback) -> None:
    """Time each kernel and library call, beside its floor: bytes over measured bandwidth, or operations over the measured peak.

    A script runs as it is; then each different call of what it compiles is measured. A folder has graphs that mlirc capture or the option
    dump has kept. Exits with 1 where anything fails.
    """
    with reported(traceback):
        if subject is None:
            raise Failure("no SCRIPT.py or DIR; -h is help", 2)
        check_inputs(subject)
        check_outputs(json_file, inputs=(subject,))
        if threads:
            import torch

            torch.set_num_threads(threads)
        if arguments and Path(subject).is_dir():
            raise Failure(f"'{arguments[0][:100]}': a folder takes no arguments", 2)
        found = _of_folder(subject) if Path(subject).is_dir() else _of_script(subject, arguments)
        if json_file:
            write_output(json_file, json.dumps({"schema": 1, "graphs": found}, indent=1) + "\n")
        if json_file == "-":
            return
        from mlirc.frontend.report.profile_table import profile_table
        from mlirc.frontend.table_text import output_width, table_text

        width = output_width(120)
        for graph in found:
            total = sum(row["seconds"] for row in graph["rows"])
            title = f"{graph['name']}: {1e6 * total:.1f} us in kernels and calls{disturbed(graph['rows'])}"
            click.echo(f"{title}\n{table_text(profile_table(graph['rows']), width)}")


def disturbed(rows: list[dict[str, Any]]) -> str:
    """What a title says where other processes had the processors meanwhile, else "": threads waited for one, or times vary much."""
    waited = max((row.get("waited") or 0.0 for row in rows), default=0.0)
    if waited > WAITS:
        return f"; {waited:.0%} of the time its threads waited for a processor: other processes compute here, and no row means much"
    median, shortest = (sum(row[name] for row in rows) for name in ("seconds", "shortest"))
    if median <= VARIES * shortest:
        return ""
    return (
        f"; the shortest times add up to {1e6 * shortest:.1f} us: other processes compute here, and no row means much"
    )


def _of_script(path: str, arguments: Any) -> list[dict[str, Any]]:
    import torch

    import mlirc
    from mlirc.measurement.script_calls import ScriptError, run_script

    try:
        calls = run_script(path, arguments)
    except ScriptError as error:
        raise Failure(str(error)) from error
    found = []
    for call in calls:
        args, kwargs = call.fresh()
        with torch.set_grad_enabled(call.grad):
            explained = mlirc.explain(call.function, profile=True, **call.arguments)(*args, **kwargs)
        for graph in explained.data["graphs"]:
            if graph["fallback"]:
                raise Failure(f"{call.name}: its {graph['kind']} graph runs in eager: {graph['fallback']}")
            if graph["profile"]:
                found.append({"name": f"{call.name}, {graph['kind']}", "rows": graph["profile"]})
    return found


def _of_folder(folder: str) -> list[dict[str, Any]]:
    from mlirc.measurement.captured_graphs import CapturesError, captured_graphs

    found = []
    try:
        for graph in captured_graphs(folder):
            found.append({"name": graph.name, "rows": graph.profiled()})
    except CapturesError as error:
        raise Failure(str(error)) from error
    return found
