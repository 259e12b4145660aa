"""The command line: `mlirc opt` runs any part of the pipeline on IR of any stage, `mlirc cache` looks after the disk cache."""

import dataclasses
import importlib
import inspect
import runpy
import sys
from pathlib import Path
from typing import Any

import click

HELP = {"help_option_names": ["-h", "--help"]}


@click.group(context_settings=HELP)
def main() -> None:
    """mlirc: look into the compiler behind torch.compile(model, backend="mlirc")."""


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
@click.option("--list-passes", is_flag=True, help="List mlirc's passes with their options, then stop.")
@click.option("--list-ops", is_flag=True, help="List the dialect's ops, then stop.")
def opt(
    file, text, pipeline, stage, output, print_all, timing, locations, emit, extra, traceback, list_passes, list_ops
) -> None:
    """Run passes on the MLIR in FILE (- is standard input) and print the result.

    Exits with 1 when a pass or FILE fails, with 2 when the command line is wrong.
    """
    try:
        for name in extra:
            _import(name)
        if list_passes or list_ops:
            if list_passes:
                _list_passes()
            if list_ops:
                _list_ops()
            return
        passes = _passes(file, "" if emit and not pipeline and text is None else text, pipeline, stage)
        result = _run(file, passes, print_all, timing, locations, emit)
        _write(output, result)
    except _Failure as failure:
        if traceback:
            raise
        click.echo(f"{click.get_current_context().command_path}: {' '.join(str(failure).split())}", err=True)
        sys.exit(failure.code)


main.add_command(opt)


@main.group(context_settings=HELP)
def cache() -> None:
    """The disk cache of compiled graphs: MLIRC_CACHE_DIR, or the user's cache folder."""


@cache.command("info")
def cache_info() -> None:
    """Say where it is, how many entries it has, and how large they are."""
    from mlirc.codegen.cache.folder import LIMIT_VARIABLE

    folder = _cache_folder()
    count, size = folder.size()
    limit = f"{folder.limit / 1e6:.0f} MB ({LIMIT_VARIABLE})"
    click.echo(f"{folder.path}: {count} entries, {size / 1e6:.1f} MB of at most {limit}")


@cache.command("clear")
def cache_clear() -> None:
    """Remove everything in it."""
    folder = _cache_folder()
    count, size = folder.size()
    folder.shrink(0)
    click.echo(f"{folder.path}: removed {count} entries, {size / 1e6:.1f} MB")


def _cache_folder() -> Any:
    from mlirc.codegen.cache.folder import VARIABLE, folder

    found = folder()
    if found is None:  # which was said already
        click.echo(f"mlirc: no disk cache; {VARIABLE} names a folder", err=True)
        sys.exit(1)
    return found


def opt_main() -> None:
    """The command `mlirc-opt`."""
    opt(prog_name="mlirc-opt")


class _Failure(Exception):
    def __init__(self, message: str, code: int = 1):
        super().__init__(message)
        self.code = code


def _import(name: str) -> None:
    try:
        if name.endswith(".py"):
            runpy.run_path(name)
        else:
            importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise _Failure(f"--import {name}: {error}", 2) from error
    except (Exception, SystemExit) as error:
        raise _Failure(f"--import {name}: {type(error).__name__}: {error}", 2) from error


def _passes(file: str | None, text: str | None, pipeline: str | None, stage: str | None) -> str:
    """The passes to run, all of which exist."""
    from mlirc.lowering.pipeline import pipelines
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.pass_manager import runners

    if file is None:
        raise _Failure("no FILE; - is standard input, -h is help", 2)
    if (text is None) == (pipeline is None):
        raise _Failure("say which passes to run: either -p PASSES or --pipeline NAME", 2)
    if stage and pipeline is None:
        raise _Failure("--stop-after goes with --pipeline", 2)
    try:
        if text is None:
            assert pipeline is not None
            text = pipelines.pipeline(pipeline, stage or pipelines.STAGES[-1])
        runners(text)
    except (PipelineError, ValueError) as error:
        raise _Failure(str(error), 2) from error
    return text


def _run(file: str, passes: str, print_all: bool, timing: bool, locations: bool, emit: bool) -> str:
    """The text of the module in the file after the passes."""
    from mlirc.dialects.core.bindings import context
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.pass_manager import PassError, run_pipeline
    from mlirc.lowering.verify.file import verify_file
    from mlirc.lowering.verify.kernel import StageError

    def show(step: str, module: Any) -> None:
        click.echo(f"// ----- after {step} -----\n{_text(module, locations)}", err=True)

    with context():
        module = _parse(file)
        try:
            verify_file(module)
            record = run_pipeline(module, passes, after_pass=show if print_all else None)
        except (PassError, PipelineError, StageError) as error:
            raise _Failure(str(error)) from error
        result = _text(module, locations)
        if emit:
            _emit(module)
    if timing:
        total = sum(run.seconds for run in record.passes)
        for run in record.passes:
            click.echo(f"{1e3 * run.seconds:9.2f} ms {run.seconds / max(total, 1e-12):6.1%}  {run.step}", err=True)
        click.echo(f"{1e3 * total:9.2f} ms         total", err=True)
    return result


def _parse(file: str) -> Any:
    from mlirc.lowering.module.text import TextError, parse_module

    try:
        return parse_module(_read(file), file)
    except TextError as error:
        raise _Failure(str(error)) from error


def _read(file: str) -> bytes:
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        if not Path(file).is_file() and Path(file).exists() and not Path(file).is_dir():
            raise _Failure(f"{file}: no regular file; - is standard input", 2)
        return Path(file).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: a name with a zero in it
        raise _Failure(f"{file}: {getattr(error, 'strerror', None) or error}") from error


def _emit(module: Any) -> None:
    from mlirc.codegen.llvm.emit import compile_module
    from mlirc.lowering.module.errors import describe
    from mlirc.lowering.pipeline.pass_manager import functions

    try:
        for function in functions(module):
            compile_module(module, entry=function.name.value)
    except Exception as error:
        raise _Failure(f"emit failed{describe(error)}") from error


def _text(module: Any, locations: bool) -> str:
    text = module.operation.get_asm(enable_debug_info=locations)
    return text if text.endswith("\n") else text + "\n"


def _write(output: str, text: str) -> None:
    if output == "-":
        click.echo(text, nl=False)
        return
    try:
        Path(output).write_text(text)
    except OSError as error:
        raise _Failure(f"{output}: {error.strerror}") from error


def _list_passes() -> None:
    from mlirc.lowering.pipeline.pass_manager import passes

    for name, cls in sorted(passes().items()):
        summary = (inspect.getdoc(cls) or "").split("\n")[0]
        click.echo(f"{name:20s} {summary}")
        for field in dataclasses.fields(cls):
            click.echo(f"{'':20s}   {field.name.replace('_', '-')}={str(field.default).lower()}")
    click.echo("MLIR's own passes run as well: canonicalize, cse, ...")


def _list_ops() -> None:
    from mlirc.dialects.core.dialect import OPS, Mlirc, Mlircx, load_ops

    load_ops()
    for prefix, dialect in (("mlirc", Mlirc), ("mlircx", Mlircx)):
        for cls in sorted(dialect.operations, key=lambda cls: cls._op_name):
            overloads = ", ".join(map(str, getattr(OPS.get(cls._op_name), "overloads", ())))
            summary = (cls.__dict__.get("__doc__") or "").strip().split("\n")[0]
            click.echo(f"{prefix + '.' + cls._op_name:30s} {overloads or summary}")


if __name__ == "__main__":
    main()
