"""`mlirc compare A B`: two pipelines, or two versions of a pass, on models, on a script's calls or on captured graphs."""

import json
from typing import Any

import click

from mlirc.commands.chosen_passes import import_extra, import_option
from mlirc.commands.failure import HELP, Failure, reported, traceback_option
from mlirc.commands.module_file import check_inputs, check_outputs, write_output
from mlirc.measurement.alternate import COMPILATIONS


@click.command(context_settings=HELP)
@click.argument("a", required=False)
@click.argument("b", required=False)
@click.argument("script", required=False)
@click.argument("arguments", nargs=-1)
@click.option("--models", metavar="NAMES", help="Models of the benchmarks: mlp,bert,gpt2,llama,resnet,vit, or all.")
@click.option("--ways", metavar="WAYS", default="inference", show_default=True, help="Of --models: inference,training.")
@click.option("--dtypes", metavar="DTYPES", default="float32", show_default=True, help="Of --models: float32,bfloat16.")
@click.option("--small", is_flag=True, help="Of --models: the small variants of the tests.")
@click.option("--captures", metavar="DIR", help="Graphs that mlirc capture or the option dump has kept.")
@import_option
@click.option(
    "--rounds",
    type=click.IntRange(2, 10_000),
    metavar="N",
    default=15,
    show_default=True,
    help="Samples of each compilation.",
)
@click.option(
    "--compilations",
    type=click.IntRange(2, 10),
    metavar="N",
    default=COMPILATIONS,
    show_default=True,
    help="How often each side is compiled, from 2 to 10: more tell smaller differences from noise.",
)
@click.option("--threads", type=click.IntRange(1, 1024), metavar="N", help="Of PyTorch's pool.")
@click.option(
    "--json", "json_file", metavar="FILE", help="Write all numbers and samples as JSON; - is standard output."
)
@traceback_option
def compare(
    a,
    b,
    script,
    arguments,
    models,
    ways,
    dtypes,
    small,
    captures,
    extra,
    rounds,
    compilations,
    threads,
    json_file,
    traceback,
) -> None:
    """Compare A with B: speed, kernels, bytes, memory, compile time, error.

    A and B are pipelines ("cpu"), pipelines with passes inserted or left out ("cpu + my-pass after fuse-elementwise", "cpu - hoist-gathers"),
    passes ("decompose,to-kernels") or backends (eager, aot_eager, inductor). They are compared on --models, on --captures, or on what
    SCRIPT.py compiles.

    Each side is compiled several times. What compilations of one side differ by is noise: two sides differ where that does not explain
    it, at 99% confidence. Exits with 1 where a side fails.
    """
    with reported(traceback):
        from mlirc.measurement.sides import SideError, read_side

        for name in extra:
            import_extra(name)
        if a is None or b is None:
            raise Failure('name two sides: mlirc compare cpu "cpu + my-pass after simplify" --models mlp', 2)
        try:
            sides = read_side(a), read_side(b)
        except SideError as error:
            raise Failure(str(error), 2) from error
        if sum(x is not None for x in (models, captures, script)) != 1:
            raise Failure("say what to compare on: --models NAMES, --captures DIR or SCRIPT.py, one of them", 2)
        check_inputs(captures, script)
        check_outputs(json_file, inputs=(captures, script, *extra))
        if threads:
            import torch

            torch.set_num_threads(threads)
        subjects = _subjects(models, ways.split(","), dtypes.split(","), small, captures, script, arguments)
        _compare(subjects, *sides, rounds, compilations, json_file)


def _subjects(
    models: Any, ways: Any, dtypes: Any, small: bool, captures: Any, script: Any, arguments: Any
) -> list[Any]:
    if models is not None:
        from mlirc.measurement.models import NoModels, model_subjects

        try:
            return model_subjects(models.split(","), ways, dtypes, small)
        except NoModels as error:
            raise Failure(str(error), 2) from error
    if script:
        from mlirc.measurement.script_calls import ScriptError, run_script
        from mlirc.measurement.script_subjects import script_subject

        try:
            return [script_subject(call) for call in run_script(script, arguments)]
        except ScriptError as error:
            raise Failure(str(error)) from error
    from mlirc.measurement.captured_graphs import CapturesError, captured_graphs

    try:
        return captured_graphs(captures)
    except CapturesError as error:
        raise Failure(str(error)) from error


def _compare(subjects: list[Any], a: Any, b: Any, rounds: int, compilations: int, json_file: str | None) -> None:
    from mlirc.frontend.table_text import output_width, table_text
    from mlirc.measurement.comparing import SideFailed, as_json, compare_on, noise_in_words
    from mlirc.measurement.comparison_table import tables_of

    width, to_stderr = output_width(148), json_file == "-"
    found, failed = [], []
    for subject in subjects:
        click.echo(f"{subject.name} …", err=True)
        try:
            found.append(compare_on(subject, a, b, rounds, compilations))
        except SideFailed as error:
            failed.append(str(error))
    if found:
        tables = "".join(f"{title}\n{table_text(table, width)}" for title, table in tables_of(found, b.inserted))
        click.echo(f"A: {a.text}\nB: {b.text}\n{tables}{noise_in_words(found)}", err=to_stderr)
    if json_file:
        write_output(json_file, json.dumps(as_json(a, b, found, rounds, compilations, failed), indent=1) + "\n")
    if failed:
        raise Failure("; ".join(failed))
