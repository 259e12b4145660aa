"""`mlirc bisect`: from a crash, a wrong answer or a slow call to the pass, the rewrite and a small module that shows it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mlirc.commands.chosen_passes import Chosen, import_extra, import_option, pipeline_changes
from mlirc.commands.failure import HELP, Failure, reported, traceback_option
from mlirc.commands.module_file import check_inputs, check_outputs, parse_file, write_output
from mlirc.commands.target import give_target
from mlirc.lowering.module.counted import counted

TARGETS = ("cpu", "interpreter")


@dataclass(frozen=True)
class ExecutedCode:
    """What runs beside the interpreter: machine code of a CPU, and Triton's code where there is what interprets it."""

    machine: bool
    triton: Any


SMALL = "bisected.mlir"


@click.command(context_settings=HELP | {"ignore_unknown_options": True})
@click.argument("file", required=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
@click.option("-p", "--passes", "text", metavar="PASSES", help="The passes that fail.")
@click.option(
    "--pipeline",
    metavar="NAME",
    help="The standard pipeline that fails, by name, from the stage that FILE is in (default: what is left of the way down).",
)
@click.option("--start-after", "start", metavar="ANCHOR", help="With --pipeline: as of mlirc opt.")
@click.option("--stop-after", "stop", metavar="STAGE", help="With --pipeline: as of mlirc opt.")
@pipeline_changes
@import_option
@click.option("--inputs", "inputs_file", metavar="F.safetensors", help="The arguments of @graph: arg0, arg1, ...")
@click.option("--random", "seed", type=int, metavar="SEED", help="Draw inputs (default: of seed 0).")
@click.option(
    "--check",
    metavar="COMMAND",
    help="What fails: a command that exits with more than 0 on the IR after the passes, in place of {} or as its last word.",
)
@click.option(
    "--slower-than", "slower", type=click.FloatRange(min=0), metavar="US", help="What fails: a call that takes longer."
)
@click.option(
    "--target",
    default="cpu",
    metavar="TARGET",
    help="cpu (default; Triton's interpreter for tensors on a GPU), or interpreter: no code.",
)
@click.option(
    "--timeout", type=click.FloatRange(min=0.1), default=120.0, metavar="SECONDS", help="After which a trial is hung."
)
@click.option("--no-reduce", "whole", is_flag=True, help="Do not make the module smaller, which takes longest.")
@click.option("-o", "output", default=SMALL, metavar="SMALL.mlir", help=f"The small module (default: {SMALL}).")
@traceback_option
def bisect(
    file,
    arguments,
    text,
    pipeline,
    start,
    stop,
    changes,
    extra,
    inputs_file,
    seed,
    check,
    slower,
    target,
    timeout,
    whole,
    output,
    traceback,
) -> None:
    """Find the pass, the rewrite and a small module for a failure of passes on FILE, or on the graphs of a program SCRIPT.py.

    A failure is a crash, a pass that fails, or an answer that changes; with --check whatever a command says, with
    --slower-than a slow call. Exits with 0 where it was found, with 1 where nothing fails, with 2 when the command line is wrong.
    """
    with reported(traceback):
        for name in extra:
            import_extra(name)
        if file is None:
            raise Failure("no FILE, -h is help", 2)
        if inputs_file is not None and seed is not None:
            raise Failure("--inputs and --random: one of them", 2)
        if target not in TARGETS:
            from mlirc.lowering.module.nearest import unknown

            raise Failure(f"--target: {unknown('target', target, TARGETS)}", 2)
        if check is not None and slower is not None:
            raise Failure("--check and --slower-than: one of them", 2)
        script = file.endswith(".py")
        if arguments and not script:
            raise Failure(f"'{arguments[0]}': a module takes no arguments", 2)
        if script and (inputs_file is not None or seed is not None):
            raise Failure(f"--inputs and --random: {file} says what its graphs are called with", 2)
        check_inputs(file, inputs_file)
        check_outputs(output, inputs=(file, inputs_file))
        chosen = None
        if text is not None or pipeline is not None or start or stop or changes:
            chosen = Chosen(text, pipeline, start, stop, changes)
        inputs: Any = inputs_file if inputs_file is not None else seed or 0
        options = {
            "check": check,
            "slower": None if slower is None else slower / 1e6,
            "seconds": timeout,
            "reduces": not whole,
            "traceback": traceback,
        }
        from mlirc.execution.triton_code import triton_code

        with triton_code() as triton:
            runs = ExecutedCode(target == "cpu", triton if target == "cpu" else None)
            if script:
                _script(file, arguments, chosen, runs, options, tuple(extra), output)
                return
            case, trials = case_of(file, chosen, inputs, runs, options)
            if not show(file, case, trials, tuple(extra), output, inputs) and not _with_other_numbers(
                file, case, trials, tuple(extra), output, inputs
            ):
                raise Failure(
                    f"{file}: nothing fails: {counted(len(case.steps), 'pass', 'passes')}, {executed(trials)}"
                )


def _script(
    file: str, arguments: Any, chosen: Any, runs: ExecutedCode, options: Any, extra: tuple[str, ...], output: str
) -> None:
    """The first graph of a program's on which something fails with the inputs of its first call, else with other numbers. Raises Failure."""
    import tempfile

    from mlirc.commands.bisect_script import graphs_of, label_of, passes_of

    with tempfile.TemporaryDirectory(prefix="mlirc-bisect-") as folder:
        graphs = graphs_of(file, arguments, folder)
        right = []
        for graph in graphs:
            inputs = 0 if graph.inputs is None else str(graph.inputs)
            path = str(graph.stages["import"])
            compiled = passes_of(graph)
            passes = chosen or (Chosen(compiled) if compiled else None)
            case, trials = case_of(path, passes, inputs, runs, options)
            first = f"Of {file} it is {label_of(graph)}"
            if show(path, case, trials, extra, output, inputs, first):
                return
            click.echo(f"  nothing fails on {label_of(graph)}", err=True)
            right.append((path, case, trials, extra, output, inputs, first))
        if any(_with_other_numbers(*arguments) for arguments in right):
            return
    raise Failure(f"{file}: nothing fails on {counted(len(graphs), 'graph')}")


def case_of(file: str, chosen: Chosen | None, inputs: Any, runs: ExecutedCode, options: dict[str, Any]) -> Any:
    """What is tried, and how; `inputs` is a file or a seed. Raises Failure."""
    import torch

    from mlirc.bisection.trial import Case, Trials
    from mlirc.dialects.core.context import context
    from mlirc.execution.inputs import InputsError, read_inputs
    from mlirc.execution.modules import NoGraph, graph_of
    from mlirc.execution.random_inputs import random_inputs
    from mlirc.lowering.files.file import verify_file
    from mlirc.lowering.module.rules import StageError
    from mlirc.lowering.module.target_attribute import is_on_gpu
    from mlirc.lowering.pipeline.parser import PipelineError, parse
    from mlirc.lowering.pipeline.pass_manager import PassError
    from mlirc.lowering.pipeline.standard_steps import remaining_steps, standard_steps, text_of

    torch.set_num_threads(1)  # before anything has made threads: trials are forked
    with context():
        try:
            module = parse_file(file)
            graph_of(module)
            on_gpu = is_on_gpu(module)
            found = give_gpus(module) if on_gpu else 0
            give_target(module, file)
            verify_file(module, runs=True)
            if on_gpu and options["slower"] is not None and not found:
                raise Failure(f"--slower-than: the tensors of {file} are on a GPU, and PyTorch finds none here", 2)
            steps = remaining_steps(standard_steps("gpu" if on_gpu else "cpu"), module)
            passes = chosen.of(module) if chosen is not None else text_of(steps)
            given = () if options["check"] else _inputs(module, inputs, read_inputs, random_inputs)
        except (PassError, PipelineError, StageError, InputsError, NoGraph) as error:
            raise Failure(f"{file}: {error}" if isinstance(error, NoGraph) else str(error)) from error
        text = module.operation.get_asm(enable_debug_info=True)
    case = Case(text, tuple(given), tuple(str(step) for step in parse(passes)))
    return case, Trials(runs.machine and not on_gpu, triton=runs.triton if on_gpu else None, **options)


def give_gpus(module: Any) -> int:
    """Writes the host, with its GPUs, into a module that has no target; how many GPUs PyTorch finds. A forked process asks for them: where
    CUDA is started here, no trial can use it."""
    import torch

    from mlirc.execution.isolated import Ended, isolated
    from mlirc.lowering.host import host_cpu, host_gpus
    from mlirc.lowering.module.target_attribute import ATTRIBUTE, set_target
    from mlirc.lowering.target import Target

    found = isolated(lambda heard: (torch.cuda.device_count(), host_gpus()), 120)
    if isinstance(found, Ended):
        raise Failure(f"the process that asks for GPUs ended: {found.how}")
    count, gpus = found
    if ATTRIBUTE not in module.operation.attributes:
        set_target(module, Target(host_cpu(), gpus))
    return count


def _with_other_numbers(
    file: str, case: Any, trials: Any, imports: tuple[str, ...], output: str, inputs: Any, first: str = ""
) -> bool:
    """Bisects with each other kind of drawn numbers, until something fails: those that were given or drawn show nothing. Raises Failure."""
    from dataclasses import replace

    from mlirc.dialects.core.bindings import ir
    from mlirc.dialects.core.context import context
    from mlirc.execution.random_inputs import other_inputs

    if trials.check is not None or trials.slower is not None:
        return False
    with context():
        kinds = list(other_inputs(ir.Module.parse(case.text), 0 if isinstance(inputs, str) else inputs))
    for kind, drawn in kinds:
        click.echo(f"  with {kind} numbers{', drawn' if isinstance(inputs, str) else ''}:", err=True)
        trials.expected.clear()
        other = replace(case, inputs=tuple(drawn))
        if show(file, other, trials, imports, output, inputs, first, is_imported_right=True):
            return True
        click.echo("    nothing fails", err=True)
    return False


def executed(trials: Any) -> str:
    """What of a module is executed."""
    if trials.triton is not None:
        bodies = f", but of {', '.join(sorted(trials.left))} (Gluon) the bodies" if trials.left else ""
        return f"Triton's code interpreted{bodies}"
    return "machine code" if trials.machine else "interpreted, and no code executed"


def _inputs(module: Any, inputs: Any, read: Any, draw: Any) -> Any:
    return read(module, inputs) if isinstance(inputs, str) else draw(module, inputs)


def show(
    file: str,
    case: Any,
    trials: Any,
    imports: tuple[str, ...],
    output: str,
    inputs: Any,
    first: str = "",
    is_imported_right: bool = False,
) -> bool:
    """Bisects, tells, and writes the small module, or what shows that the import is wrong; False where nothing fails. Raises Failure."""
    from mlirc.bisection.finding import bisected, command_of
    from mlirc.bisection.search import FailsAsGiven
    from mlirc.bisection.told import told_of
    from mlirc.lowering.pipeline.parser import PipelineError

    def told(line: str) -> None:
        click.echo(f"  {line}", err=True)

    try:
        wrong = None if is_imported_right else wrong_import_of(file, case, trials, told)
        if wrong is not None:
            click.echo(f"{first}: {wrong}" if first else str(wrong)[:1].upper() + str(wrong)[1:])
            shown, given = kept_import(file, inputs, output) if first else (file, inputs)
            how = f"--inputs {given}" if isinstance(given, str) else f"--random {given}"
            click.echo(f'It is shown by\n  mlirc run {shown} {how} -p "" --target interpreter --check-each-pass')
        found = bisected(case, trials, told)
    except PipelineError as error:
        raise Failure(str(error)) from error
    except FailsAsGiven as error:
        raise Failure(f"{file}, as given, {error}") from error
    except Exception as error:  # whatever the interpreter says of the module as it is given
        raise Failure(f"{file}, as given, cannot be executed: {' '.join(str(error).split())}") from error
    if found is None:
        return wrong is not None
    if trials.left:
        told(f"executed by their bodies, as Triton interprets no Gluon: {', '.join(sorted(trials.left))}")
    inputs = None if trials.check is not None else written_inputs(found, trials, output)
    command = command_of(found, output, inputs, imports, trials)
    write_output(output, f"// {command}\n{found.case.text}")
    for line in [*filter(None, [first]), *told_of(found, case)]:
        click.echo(line)
    click.echo(f"{output} shows it, {found.left} of {counted(found.given, 'op')}:")
    click.echo(f"  {command}")
    return True


def kept_import(file: str, inputs: Any, output: str) -> tuple[str, Any]:
    """The module of a program's graph and its inputs, copied with the ATen graph into the folder `output` without its suffix. Raises Failure."""
    import shutil

    from mlirc.execution.import_check import aten_beside

    folder = Path(output).with_suffix("")
    paths = [file, str(aten_beside(file)), *([inputs] if isinstance(inputs, str) else [])]
    try:
        folder.mkdir(exist_ok=True)
        copies = [str(shutil.copy(path, folder)) for path in paths]
    except OSError as error:
        raise Failure(f"{error.filename2 or error.filename or folder}: {error.strerror}") from error
    return copies[0], copies[2] if isinstance(inputs, str) else inputs


def wrong_import_of(file: str, case: Any, trials: Any, told: Any) -> Any:
    """What is wrong with a capture's imported module before any pass, or None. Raises what the interpreter raises on it."""
    if trials.check is not None or trials.slower is not None:
        return None
    from mlirc.dialects.core.bindings import ir
    from mlirc.dialects.core.context import context
    from mlirc.execution.import_check import wrong_import

    trials.prepare(case)
    with context():
        return wrong_import(file, ir.Module.parse(case.text), case.inputs, trials.expected[case.text], told)


def written_inputs(found: Any, trials: Any, output: str) -> str | None:
    """A file with the inputs, where those of seed 0 do not show the failure."""
    from mlirc.bisection.trial import is_shown_at_random
    from mlirc.execution.isolated import Ended, isolated
    from mlirc.frontend.report.tensor_file import write_tensors

    longer = trials.limit + trials.seconds  # than the trial in it: one that hangs is a result, too
    shown = isolated(lambda tell: is_shown_at_random(found.case, found.symptom, trials), longer)
    if not isinstance(shown, Ended) and shown:
        return None
    path = str(Path(output).with_suffix(".safetensors"))
    try:
        write_tensors(path, {f"arg{k}": x for k, x in enumerate(found.case.inputs)})
    except OSError as error:
        raise Failure(f"{path}: {error.strerror}") from error
    return path
