"""The command line: `mlirc opt` runs any part of the pipeline on IR of any stage."""

import dataclasses
import inspect
import sys
from pathlib import Path
from typing import Any

import click


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """mlirc: look into the compiler behind torch.compile(model, backend="mlirc")."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("file", required=False)
@click.option("-p", "--passes", "text", help='The passes to run: "canonicalize,cse,fuse-elementwise{max-ops=8}".')
@click.option("--pipeline", help="A standard pipeline, by name: cpu, strict.")
@click.option("--stop-after", "stage", help="With --pipeline: the last stage to run (simplify, fuse, plan, lower).")
@click.option("-o", "output", default="-", help="Where to write the result; - is standard output.")
@click.option("--print-ir-after-all", "print_all", is_flag=True, help="Print the IR after every pass, to standard error.")
@click.option("--timing", is_flag=True, help="Print the seconds of each pass, to standard error.")
@click.option("--locations", is_flag=True, help="Print source locations with the IR.")
@click.option("--list-passes", is_flag=True, help="List mlirc's passes with their options.")
@click.option("--list-ops", is_flag=True, help="List the dialect's ops.")
def opt(file, text, pipeline, stage, output, print_all, timing, locations, list_passes, list_ops) -> None:
    """Run passes on the MLIR in FILE (- is standard input) and print the result."""
    if list_passes:
        _list_passes()
    if list_ops:
        _list_ops()
    if list_passes or list_ops:
        return
    if file is None:
        raise click.UsageError("no FILE; - is standard input")
    if (text is None) == (pipeline is None):
        raise click.UsageError("say which passes to run: either -p PASSES or --pipeline NAME")
    if stage and not pipeline:
        raise click.UsageError("--stop-after goes with --pipeline")
    try:
        _run(file, text, pipeline, stage, output, print_all, timing, locations)
    except _Failure as failure:
        click.echo(f"mlirc opt: {failure}", err=True)
        sys.exit(1)


main.add_command(opt)


def opt_main() -> None:
    """The command `mlirc-opt`."""
    opt(prog_name="mlirc-opt")


class _Failure(Exception):
    pass


def _run(file, text, pipeline, stage, output, print_all, timing, locations) -> None:
    from mlirc.dialects.bindings import context, ir
    from mlirc.lowering import pipelines
    from mlirc.lowering.pass_manager import PassError, run_pipeline
    from mlirc.lowering.pipeline_parser import PipelineError

    try:
        passes = text if text is not None else pipelines.pipeline(pipeline, stage or pipelines.STAGES[-1])
        source = sys.stdin.read() if file == "-" else Path(file).read_text()
    except (ValueError, OSError) as error:
        raise _Failure(str(error)) from error
    name = "<stdin>" if file == "-" else file
    with context():
        try:
            module = ir.Module.parse(source)
        except ir.MLIRError as error:
            raise _Failure(_diagnostics(name, error)) from error

        def show(step: str, module: Any) -> None:
            click.echo(f"// ----- after {step} -----\n{_text(module, locations)}", err=True)

        try:
            record = run_pipeline(module, passes, after_pass=show if print_all else None)
        except (PassError, PipelineError) as error:
            raise _Failure(str(error)) from error
        result = _text(module, locations)
    if timing:
        total = sum(run.seconds for run in record.passes)
        for run in record.passes:
            click.echo(f"{1e3 * run.seconds:9.2f} ms {run.seconds / max(total, 1e-12):6.1%}  {run.step}", err=True)
        click.echo(f"{1e3 * total:9.2f} ms         total", err=True)
    if output == "-":
        click.echo(result, nl=False)
    else:
        try:
            Path(output).write_text(result)
        except OSError as error:
            raise _Failure(str(error)) from error


def _text(module: Any, locations: bool) -> str:
    text = module.operation.get_asm(enable_debug_info=locations)
    return text if text.endswith("\n") else text + "\n"


def _diagnostics(name: str, error: Any) -> str:
    from mlirc.lowering.pass_errors import diagnostic_text
    from mlirc.lowering.source_lines import typed

    for diagnostic in error.error_diagnostics:
        where = typed(diagnostic.location)
        line = f"{name}:{where.start_line}:{where.start_col}" if hasattr(where, "start_line") else name
        return f"{line}: {diagnostic_text(diagnostic)}"
    return f"{name}: {error}"


def _list_passes() -> None:
    from mlirc.lowering.pass_manager import passes

    for name, cls in sorted(passes().items()):
        summary = (inspect.getdoc(cls) or "").split("\n")[0]
        click.echo(f"{name:20s} {summary}")
        for field in dataclasses.fields(cls):
            click.echo(f"{'':20s}   {field.name.replace('_', '-')}={field.default}")


def _list_ops() -> None:
    from mlirc.dialects.dialect import OPS, Mlirc, load_ops

    load_ops()
    for cls in sorted(Mlirc.operations, key=lambda cls: cls._op_name):
        overloads = ", ".join(map(str, getattr(OPS.get(cls._op_name), "overloads", ())))
        summary = (cls.__dict__.get("__doc__") or "").strip().split("\n")[0]
        click.echo(f"mlirc.{cls._op_name:24s} {overloads or summary}")


if __name__ == "__main__":
    main()
