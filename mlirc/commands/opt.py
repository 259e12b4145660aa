"""`mlirc opt`: runs passes on IR of any stage."""

from typing import Any

import click

from mlirc.commands.chosen_passes import chosen_passes, import_extra
from mlirc.commands.failure import HELP, Failure, reported
from mlirc.commands.listing import list_ops, list_passes
from mlirc.commands.module_file import module_text, parse_file, write_output


@click.command(context_settings=HELP)
@click.argument("file", required=False)
@click.option("-p", "--passes", "text", help='The passes to run: "canonicalize,cse,fuse-elementwise{max-ops=8}".')
@click.option("--pipeline", help="A standard pipeline, by name: cpu, gpu, strict.")
@click.option("--stop-after", "stage", help="With --pipeline: the last stage to run (simplify, fuse, plan, lower).")
@click.option("-o", "output", default="-", help="Where to write the result; - is standard output.")
@click.option(
    "--print-ir-after-all", "print_all", is_flag=True, help="Print the IR after every pass to standard error."
)
@click.option("--timing", is_flag=True, help="Print the time of each pass to standard error.")
@click.option("--locations", is_flag=True, help="Print source locations with the IR.")
@click.option("--emit", is_flag=True, help="Make machine code of the result, as the last stage does; do not run it.")
@click.option(
    "--import", "extra", multiple=True, help="First import a module, or run a Python file: more passes and ops."
)
@click.option("--traceback", is_flag=True, help="Show where in Python a failure comes from.")
@click.option("--list-passes", "passes_listed", is_flag=True, help="List mlirc's passes with their options, then stop.")
@click.option("--list-ops", "ops_listed", is_flag=True, help="List the dialect's ops, then stop.")
def opt(
    file, text, pipeline, stage, output, print_all, timing, locations, emit, extra, traceback, passes_listed, ops_listed
) -> None:
    """Run passes on the MLIR in FILE (- is standard input) and print the result.

    Exits with 1 when a pass or FILE fails, with 2 when the command line is wrong.
    """
    with reported(traceback):
        for name in extra:
            import_extra(name)
        if passes_listed:
            list_passes()
        if ops_listed:
            list_ops()
        if passes_listed or ops_listed:
            return
        passes = chosen_passes(file, "" if emit and not pipeline and text is None else text, pipeline, stage)
        write_output(output, _run(file, passes, print_all, timing, locations, emit))


def _run(file: str, passes: str, print_all: bool, timing: bool, locations: bool, emit: bool) -> str:
    """The text of the module in the file after the passes."""
    from mlirc.dialects.core.bindings import context
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.pass_manager import PassError, run_pipeline
    from mlirc.lowering.verify.file import verify_file
    from mlirc.lowering.verify.kernel import StageError

    def show(step: str, module: Any) -> None:
        click.echo(f"// ----- after {step} -----\n{module_text(module, locations)}", err=True)

    with context():
        module = parse_file(file)
        try:
            verify_file(module)
            record = run_pipeline(module, passes, after_pass=show if print_all else None)
        except (PassError, PipelineError, StageError) as error:
            raise Failure(str(error)) from error
        result = module_text(module, locations)
        if emit:
            _emit(module)
    if timing:
        total = sum(run.seconds for run in record.passes)
        for run in record.passes:
            click.echo(f"{1e3 * run.seconds:9.2f} ms {run.seconds / max(total, 1e-12):6.1%}  {run.step}", err=True)
        click.echo(f"{1e3 * total:9.2f} ms         total", err=True)
    return result


def _emit(module: Any) -> None:
    from mlirc.codegen.llvm.emit import compile_module
    from mlirc.lowering.module.errors import describe
    from mlirc.lowering.pipeline.pass_manager import functions

    try:
        for function in functions(module):
            compile_module(module, entry=function.name.value)
    except Exception as error:
        raise Failure(f"emit failed{describe(error)}") from error
