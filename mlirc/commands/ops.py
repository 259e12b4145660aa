"""`mlirc ops`: the dialect's ops, and with --missing the calls of ATen that have none."""

import json
from typing import Any

import click

from mlirc.commands.failure import HELP, Failure, reported, traceback_option
from mlirc.commands.listing import list_ops
from mlirc.commands.module_file import check_inputs, check_outputs, write_output
from mlirc.lowering.module.counted import counted

OF_SOME = "of some operators: mlirc ops --missing opinfo --ops special.zeta,sort"


@click.command(context_settings=HELP | {"ignore_unknown_options": True})
@click.option(
    "--missing",
    "subject",
    metavar="SCRIPT.py|opinfo",
    is_flag=False,
    flag_value="",
    help="List the calls of a script, or of PyTorch's operators (opinfo), that have no op of ours.",
)
@click.option(
    "--ops", "names", metavar="NAMES", help="With opinfo: try these operators alone, as add,nn.functional.pad."
)
@click.option("--json", "json_file", metavar="FILE", help="Write what is missing as JSON; - is standard output.")
@traceback_option
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def ops(subject, names, json_file, traceback, arguments) -> None:
    """List the dialect's ops; with --missing, the calls of ATen that have no op of ours, with counts, time and the reason.

    A script runs as it is; then each different call of what it compiles is imported, and runs in eager with each of its ops timed. Arguments
    after -- are all the script's. Exits with 1 where the script fails or compiles nothing.
    """
    with reported(traceback):
        if subject is None:
            if names or json_file or arguments:
                raise Failure(
                    "--ops, --json and arguments go with --missing; mlirc opt --help-op NAME describes one op", 2
                )
            list_ops()
            return
        check_outputs(json_file, inputs=(subject,))
        if subject != "opinfo" and (names or not subject.endswith(".py")):
            what = f"'{subject[:100]}' is neither" if subject else "say which"
            raise Failure(f"--missing takes SCRIPT.py or opinfo, {what}; {OF_SOME}", 2)
        if subject == "opinfo" and arguments:
            raise Failure(f"'{arguments[0][:100]}' after --missing opinfo; {OF_SOME}", 2)
        check_inputs(None if subject == "opinfo" else subject)
        found, failed = _of_opinfo(names) if subject == "opinfo" else (_of_script(subject, arguments), {})
        if json_file:
            write_output(json_file, json.dumps(found.as_dict() | {"failed": failed}, indent=1) + "\n")
        if json_file != "-":
            _print(found, failed)


def _of_script(script: str, arguments: Any) -> Any:
    from mlirc.execution.missing_ops import missing_in_script
    from mlirc.measurement.script_calls import ScriptError

    try:
        return missing_in_script(script, arguments)
    except ScriptError as error:
        raise Failure(str(error)) from error
    except Exception as error:  # of any kind: a call that fails when it is made again
        raise Failure(f"{script}: {type(error).__name__}: {error}") from error


def _of_opinfo(names: str | None) -> Any:
    from mlirc.execution.missing_ops import missing_in_opinfo

    try:
        return missing_in_opinfo([n.strip() for n in (names or "").split(",") if n.strip()])
    except ImportError as error:
        raise Failure(f"--missing opinfo: PyTorch's own tests need a package: {error}") from error
    except LookupError as error:
        unknown = [
            f"'{name[:100]}'" + (f" (did you mean {' or '.join(near)}?)" if near else "") for name, near in error.args
        ]
        hint = (
            ""
            if any(near for _, near in error.args)
            else ", whose names are as torch.nn.functional.pad's, without torch"
        )
        raise Failure(f"--ops: OpInfo has no operator {', '.join(unknown)}{hint}", 2) from error


def _print(found: Any, failed: dict[str, str]) -> None:
    missing = found.by_time()
    click.echo(
        f"{counted(found.graphs, 'graph')}; {counted(len(missing), 'overload')} of ATen's without an op, {1e3 * found.seconds:.1f} ms in all calls"
    )
    if missing:
        click.echo(f"{'calls':>6} {'ms':>9} {'share':>6}  overload")
    for op in missing:
        share = op.seconds / found.seconds if found.seconds else 0.0
        who = f"; in {len(op.subjects)}: {', '.join(sorted(op.subjects)[:4])}{', …' if len(op.subjects) > 4 else ''}"
        click.echo(f"{op.calls:6d} {1e3 * op.seconds:9.3f} {share:6.1%}  {op.name}: {op.why}{who}")
    for why, count in found.refused.most_common():
        click.echo(f"{count:6d} {'graph is' if count == 1 else 'graphs are'} not imported: {why}")
    for subject, why in failed.items():
        click.echo(f"       {subject} was not tried: {why}")
