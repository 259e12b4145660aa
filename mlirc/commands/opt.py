"""`mlirc opt`: runs passes on IR of any stage, from the stage that it is in."""

import re
from dataclasses import dataclass
from typing import Any

import click

from mlirc.commands.chosen_passes import (
    REWRITES,
    Chosen,
    import_extra,
    import_option,
    pipeline_changes,
    plan_of,
    rewrites_of,
)
from mlirc.commands.emitted import checked_kind, emitted
from mlirc.commands.failure import HELP, Failure, OneLineUsage, reported, traceback_option
from mlirc.commands.few_collections import few_collections
from mlirc.commands.listing import help_op, help_pass, list_ops, list_passes
from mlirc.commands.module_file import check_inputs, check_outputs, parse_bytes, read_file, write_output
from mlirc.commands.shown.printed_ir import PrintedIr, Wanted
from mlirc.commands.target import HELP as TARGET_HELP
from mlirc.commands.target import change_target, give_target


@dataclass(frozen=True)
class Shown:
    """What is told beside the result."""

    ir: Wanted
    diff: bool
    timing: bool
    stats: bool
    ledger: bool
    ledger_json: str | None
    measure: tuple[int, int, str | None] | None
    plan: Any
    save_plan: str | None
    print_pipeline: bool
    verify_each: bool
    emit: str
    locations: bool
    rewrites: Any
    list_rewrites: bool


@click.command(cls=OneLineUsage, context_settings=HELP)
@click.argument("file", required=False)
@click.option(
    "-p",
    "--passes",
    "text",
    metavar="PASSES",
    help='The passes to run: "canonicalize,cse,fuse-elementwise{max-ops=8}".',
)
@click.option(
    "--pipeline",
    metavar="NAME",
    help="A standard pipeline, by name (cpu, gpu, strict), from the stage that FILE is in.",
)
@click.option(
    "--start-after",
    "start",
    metavar="ANCHOR",
    help="With --pipeline: go on after this stage or pass, whatever FILE is (cse#2: the second run).",
)
@click.option(
    "--stop-after",
    "stop",
    metavar="STAGE",
    help="With --pipeline: the last stage to run (simplify, fuse, plan, lower).",
)
@pipeline_changes
@click.option(
    "--rewrites",
    "limits",
    multiple=True,
    metavar="PASS=RANGES",
    help=REWRITES,
)
@click.option("--list-rewrites", "rewrites_listed", is_flag=True, help="Print each rewrite that a pass asked for.")
@click.option("--target", metavar="TARGET", help=TARGET_HELP)
@click.option("-o", "output", default="-", metavar="FILE", help="Where to write the result; - is standard output.")
@click.option("--emit", default="mlir", metavar="KIND", help="What to write: mlir, llvm, asm, triton, ptx, dot, none.")
@click.option(
    "--print-ir-before",
    "before",
    multiple=True,
    metavar="PASS",
    help="Print the IR before each run of PASS to standard error.",
)
@click.option("--print-ir-after", "after", multiple=True, metavar="PASS", help="Print the IR after each run of PASS.")
@click.option("--print-ir-after-all", "after_all", is_flag=True, help="Print the IR after every pass.")
@click.option(
    "--print-ir-after-change", "after_change", is_flag=True, help="Print the IR after every pass that changed it."
)
@click.option("--diff", is_flag=True, help="Print what each pass changed, op by op.")
@click.option("--timing", is_flag=True, help="Print the time of each pass.")
@click.option("--stats", is_flag=True, help="Print ops, kernels, bytes, flops and arena of the result.")
@click.option("--ledger", is_flag=True, help="Print what passes decided, and by which rule.")
@click.option(
    "--ledger-json",
    metavar="FILE",
    help="Write a JSON line for each pair of kernels that a fusion pass looked at; - is standard output.",
)
@click.option(
    "--measure",
    is_flag=True,
    help="With --ledger-json: measure what each fusion gains, by the graph's call with and without it.",
)
@click.option(
    "--measure-most",
    type=click.IntRange(1, 1_000_000),
    metavar="N",
    default=20,
    show_default=True,
    help="With --measure: of the fusions with the largest estimates, at most so many.",
)
@click.option(
    "--rounds",
    type=click.IntRange(2, 10_000),
    metavar="N",
    default=15,
    show_default=True,
    help="With --measure: samples of each.",
)
@click.option(
    "--inputs", "inputs_file", metavar="F.safetensors", help="With --measure: arg0, arg1, ... (default: random)."
)
@click.option("--fusion-plan", "plan_file", metavar="FILE", help="Fuse as a plan says, that --save-plan wrote.")
@click.option(
    "--save-plan", metavar="FILE", help="Write what fusion passes decided, to be edited; - is standard output."
)
@click.option(
    "--print-pipeline", is_flag=True, help="Print the passes that run, as -p takes them; without FILE, only that."
)
@click.option("--verify-each", is_flag=True, help="Verify the whole form after every pass, as of a file that is read.")
@click.option("--split-input-file", "split", is_flag=True, help="FILE holds modules separated by lines // -----.")
@click.option(
    "--verify-diagnostics",
    "diagnostics",
    is_flag=True,
    help="Compare errors with comments // expected-error {{text}} in FILE; write what does not fail.",
)
@click.option("--locations", is_flag=True, help="Print source locations with the IR.")
@import_option
@traceback_option
@click.option("--list-passes", "passes_listed", is_flag=True, help="List mlirc's passes in a line each, then stop.")
@click.option(
    "--help-pass", "helped", metavar="NAME", help="Explain a pass, with before and after and its options, then stop."
)
@click.option("--list-ops", "ops_listed", is_flag=True, help="List the dialect's ops, then stop.")
@click.option(
    "--help-op",
    "op_helped",
    metavar="NAME",
    help="Explain an op, with its operands, attributes and results, then stop.",
)
def opt(
    file,
    text,
    pipeline,
    start,
    stop,
    changes,
    limits,
    rewrites_listed,
    target,
    output,
    emit,
    before,
    after,
    after_all,
    after_change,
    diff,
    timing,
    stats,
    ledger,
    ledger_json,
    measure,
    measure_most,
    rounds,
    inputs_file,
    plan_file,
    save_plan,
    print_pipeline,
    verify_each,
    split,
    diagnostics,
    locations,
    extra,
    traceback,
    passes_listed,
    helped,
    ops_listed,
    op_helped,
) -> None:
    """Run passes on the MLIR in FILE (- is standard input) and print the result.

    Exits with 1 when a pass or FILE fails, with 2 when the command line is wrong.
    """
    with reported(traceback, crashes=True), few_collections():
        for name in extra:
            import_extra(name)
        if passes_listed:
            list_passes()
        if ops_listed:
            list_ops()
        if helped is not None:
            help_pass(helped)
        if op_helped is not None:
            help_op(op_helped)
        if passes_listed or ops_listed or helped is not None or op_helped is not None:
            return
        checked_kind(emit)
        if file is None and not print_pipeline:
            raise Failure("no FILE; - is standard input, -h is help", 2)
        chosen = Chosen(
            "" if emit != "mlir" and not pipeline and text is None else text, pipeline, start, stop, changes
        )
        if file is None:
            click.echo(chosen.text if chosen.text is not None else chosen.whole())
            return
        for option, given in (("ledger-json", ledger_json), ("fusion-plan", plan_file), ("save-plan", save_plan)):
            if given is not None and (split or diagnostics):
                raise Failure(f"--{option} is of one module: not with --split-input-file or --verify-diagnostics", 2)
        if measure and (ledger_json is None or limits or target):
            raise Failure("--measure goes with --ledger-json, and not with --rewrites or --target", 2)
        check_inputs(file, plan_file, inputs_file)
        check_outputs(output, inputs=(plan_file, inputs_file, file if diagnostics else None))
        check_outputs(output, ledger_json, save_plan)
        check_outputs(ledger_json, save_plan, inputs=(file,))
        rewrites = rewrites_of(limits) if limits or rewrites_listed or ledger_json else None
        plan = None if plan_file is None else plan_of(plan_file)
        wanted = Wanted(before, after, after_all, after_change, locations)
        shown = Shown(
            wanted,
            diff,
            timing,
            stats,
            ledger,
            ledger_json,
            (measure_most, rounds, inputs_file) if measure else None,
            plan,
            save_plan,
            print_pipeline,
            verify_each,
            emit,
            locations,
            rewrites,
            rewrites_listed,
        )
        result = (
            _each_part(file, target, chosen, shown, diagnostics)
            if split or diagnostics
            else _run(file, read_file(file), target, chosen, shown)
        )
        if emit != "none":
            write_output(output, result)


def _each_part(file: str, target: str | None, chosen: Chosen, shown: Shown, diagnostics: bool) -> str:
    """The text of each part of the file after the passes; with `diagnostics`, of those that do not fail."""
    from mlirc.commands.shown.expected_errors import compare, expected_errors, parts_of

    try:
        text = read_file(file).decode()
    except UnicodeDecodeError as error:
        raise Failure(f"{file}: byte {error.start} is not UTF-8") from error
    results, wrong = [], []
    for part in parts_of(text):
        message = None
        try:
            expected = expected_errors(part.text, file) if diagnostics else []
            try:
                results.append(_run(file, part.text.encode(), target, chosen, shown, part=True))
            except Failure as failure:
                if not diagnostics or failure.code == 2:
                    raise
                message = " ".join(str(failure).split())
            if diagnostics:
                compare(expected, message, file)
        except Failure as failure:
            if failure.code == 2:
                raise
            wrong.append(str(failure))
    if wrong:
        raise Failure(wrong[0], more=wrong[1:])
    return "// -----\n".join(results)


def _run(file: str, content: bytes, target: str | None, chosen: Chosen, shown: Shown, part: bool = False) -> str:
    """What is emitted of the module after the passes."""
    from mlirc.dialects.core.context import context
    from mlirc.execution.limited_run import limited_run
    from mlirc.lowering.files.file import verify_file
    from mlirc.lowering.module.rules import StageError
    from mlirc.lowering.module.target_attribute import target_of
    from mlirc.lowering.pipeline.fusion_log import FusionLog, json_lines
    from mlirc.lowering.pipeline.fusion_plan import plan_text
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.pass_manager import PassError
    from mlirc.lowering.pipeline.rewrites import LimitError

    with context():
        try:
            module = parse_bytes(content, file, part)
            give_target(module, file)
            verify_file(module)
            if target is not None:
                change_target(module, target)
            if not list(module.body.operations) and not part:
                click.echo(f"{file}: the module is empty: passes have nothing to run on", err=True)
            elif not part:
                _tell_of_no_graph(module, file)
            passes = chosen.of(module)
            if chosen.text is not None and not passes.strip() and shown.emit == "mlir" and target is None and not part:
                click.echo(f"{file}: the pipeline is empty: the module is verified, and printed as it is", err=True)
            watch = _Watch(shown, passes, module)
            wanted = shown.ledger or shown.ledger_json or shown.plan or shown.save_plan
            fusion = FusionLog(shown.plan) if wanted else None
            record = limited_run(module, passes, shown.rewrites, watch.show, fusion=fusion)
        except (PassError, PipelineError, StageError) as error:
            raise Failure(_in_file(str(error), file, part), 2 if isinstance(error, LimitError) else 1) from error
        if chosen.pipeline is not None:
            _note_stage(module, chosen)
        if shown.stats:
            from mlirc.commands.shown.stats import show_stats

            show_stats(module)
        if shown.list_rewrites and record.ledger.rewrites is not None:
            for rewrite in record.ledger.rewrites.asked:
                click.echo(f"{rewrite}{'' if rewrite.allowed else ': refused'}", err=True)
        if shown.ledger:
            _show_ledger(record)
        if shown.measure is not None and fusion is not None:
            from mlirc.commands.shown.measured_fusions import measure_fusions

            measure_fusions(content, file, passes, fusion, *shown.measure)
        if shown.ledger_json is not None and fusion is not None:
            write_output(shown.ledger_json, json_lines(fusion.candidates, passes, str(target_of(module))))
        if shown.save_plan is not None and fusion is not None:
            write_output(shown.save_plan, plan_text(fusion.candidates, kind_of(file)))
        result = emitted(module, shown.emit, shown.locations)
    if shown.timing:
        _show_timing(record)
    return result


def _tell_of_no_graph(module: Any, file: str) -> None:
    """Says of a module that no other command takes that it is one; passes run on any function."""
    from mlirc.execution.modules import NoGraph, graph_of
    from mlirc.lowering.pipeline.pass_manager import functions

    try:
        if list(functions(module)):  # code alone is for --emit
            graph_of(module)
    except NoGraph as error:
        click.echo(f"{file}: {error}: passes run on what is there, and `mlirc run` runs none", err=True)


def kind_of(file: str) -> str | None:
    """The kind of a graph that a dump kept, by the name of its file."""
    found = re.match(r"\d{3,9}_(inference|forward|backward)_", file.rsplit("/", 1)[-1])
    return found[1] if found else None


def _in_file(message: str, file: str, part: bool) -> str:
    """MLIR calls what it did not read from a file by itself "-"."""
    return re.sub(r"(?<![\w/.-])-(?=:\d+:\d+)", lambda _: file, message) if part else message


class _Watch:
    """What is told while passes run, in the order in which it happens."""

    def __init__(self, shown: Shown, passes: str, module: Any):
        from mlirc.lowering.pipeline.parser import parse

        steps = parse(passes)
        if shown.print_pipeline:
            click.echo(passes, err=True)
        self.verify_each = shown.verify_each
        self.ir = PrintedIr(shown.ir, steps, module)
        self.diff = None
        if shown.diff:
            from mlirc.commands.diff import Diff

            self.diff = Diff(module)

    def show(self, step: str, module: Any) -> None:
        self.ir.show(step, module)
        if self.diff is not None:
            self.diff.show(step, module)
        if self.verify_each:
            from mlirc.lowering.files.file import verify_file
            from mlirc.lowering.module.rules import StageError

            try:
                verify_file(module)
            except StageError as error:
                raise Failure(f"pass '{step}' left a form that does not verify: {error}") from error


def _note_stage(module: Any, chosen: Chosen) -> None:
    """A file says which stage it has been through, so that it goes on from there."""
    from mlirc.lowering.pipeline.pipelines import STAGES
    from mlirc.lowering.pipeline.standard_steps import form_of_module, set_stage, stage_of_module

    stop, before = chosen.stop or STAGES[-1], stage_of_module(module)
    if form_of_module(module) is not None and (before is None or STAGES.index(before) < STAGES.index(stop)):
        set_stage(module, stop)


def _show_timing(record: Any) -> None:
    total = sum(run.seconds for run in record.passes)
    for run in record.passes:
        click.echo(f"{1e3 * run.seconds:9.2f} ms {run.seconds / max(total, 1e-12):6.1%}  {run.step}", err=True)
    click.echo(f"{1e3 * total:9.2f} ms         total", err=True)


def _show_ledger(record: Any) -> None:
    for entry in record.ledger.entries:
        numbers = "".join(f" {name}={value}" for name, value in entry.numbers.items())
        where = f" ({entry.location})" if entry.location else ""
        taken = "taken" if entry.taken else "refused"
        click.echo(
            f"{entry.pass_name}: {entry.action} {entry.subject}: {taken}, {entry.rule}{numbers}{where}", err=True
        )
