"""`mlirc run`: executes IR of any stage, and says after which pass an answer is wrong."""

import re
import statistics
from contextlib import nullcontext
from traceback import format_exception
from typing import Any

import click

from mlirc.commands.chosen_passes import REWRITES, Chosen, import_extra, import_option, pipeline_changes, rewrites_of
from mlirc.commands.failure import HELP, Failure, reported, traceback_option
from mlirc.commands.few_collections import few_collections
from mlirc.commands.module_file import check_inputs, check_outputs, parse_file, write_whole
from mlirc.commands.target import give_target
from mlirc.execution.named_crash import running
from mlirc.lowering.module.counted import counted

TARGETS = ("cpu", "gpu", "interpreter")
MOST_PRINTED = 200  # elements of a value
TOLD = "  "  # begins what the process of a check says of what it did, not of what it does next
NAMED_BY_BISECT = "; `mlirc bisect`, given the same, names the kernel"


@click.command(context_settings=HELP)
@click.argument("file", required=False)
@click.option(
    "-p",
    "--passes",
    "text",
    metavar="PASSES",
    help="First run these passes; what is left of the way down is done without fusion.",
)
@click.option(
    "--pipeline", metavar="NAME", help="First run a standard pipeline, by name, from the stage that FILE is in."
)
@click.option("--start-after", "start", metavar="ANCHOR", help="With --pipeline: as of mlirc opt.")
@pipeline_changes
@click.option("--rewrites", "limits", multiple=True, metavar="PASS=RANGES", help=REWRITES)
@import_option
@click.option("--inputs", "inputs_file", metavar="F.safetensors", help="The arguments of @graph: arg0, arg1, ...")
@click.option(
    "--random", "seed", type=int, metavar="SEED", help="Draw inputs that the module takes (default: of seed 0)."
)
@click.option(
    "--target",
    default=None,
    metavar="TARGET",
    help="cpu (default; gpu where a tensor is on one), gpu, or interpreter, for any form.",
)
@click.option(
    "--check-each-pass",
    "each",
    is_flag=True,
    help="Execute after every pass, and name the first that changed the answer.",
)
@click.option(
    "--repeat", type=click.IntRange(1, 1_000_000), metavar="N", help="Call N times more, and tell the median time."
)
@click.option(
    "--print",
    "printed",
    multiple=True,
    metavar="VALUE",
    help="Print a value: result0, arg0, or with the interpreter %3.",
)
@click.option(
    "-o",
    "output",
    metavar="F.safetensors",
    help="Write results, and arguments that the call changed, to a safetensors file.",
)
@traceback_option
def run(
    file,
    text,
    pipeline,
    start,
    changes,
    limits,
    extra,
    inputs_file,
    seed,
    target,
    each,
    repeat,
    printed,
    output,
    traceback,
) -> None:
    """Execute @graph of the MLIR in FILE (- is standard input), in whatever stage it is.

    Exits with 1 when FILE or a pass fails or an answer changed, with 2 when the command line is wrong.
    """
    with reported(traceback, crashes=True), few_collections():
        for name in extra:
            import_extra(name)
        if file is None:
            raise Failure("no FILE; - is standard input, -h is help", 2)
        if inputs_file is not None and seed is not None:
            raise Failure("--inputs and --random: one of them", 2)
        if target is not None and target not in TARGETS:
            from mlirc.lowering.module.nearest import unknown

            raise Failure(f"--target: {unknown('target', target, TARGETS)}", 2)
        if repeat and target == "interpreter":
            raise Failure("--repeat measures machine code; the interpreter's time means nothing", 2)
        if each and (repeat or printed or output):
            other = "--repeat" if repeat else "--print" if printed else "-o"
            raise Failure(f"--check-each-pass compares, and has no results for {other}: one of them", 2)
        check_inputs(file, inputs_file)
        check_outputs(output, inputs=(file, inputs_file))
        chosen = None
        if text is not None or pipeline is not None or start or changes:
            chosen = Chosen(text, pipeline, start, None, changes)
        rewrites = rewrites_of(limits) if limits else None
        _Run(file, chosen, inputs_file, seed or 0, target, printed, rewrites, traceback).run(each, repeat, output)


class _Run:
    """One execution of a file. The context is entered here, once."""

    def __init__(
        self,
        file: str,
        chosen: Chosen | None,
        inputs: str | None,
        seed: int,
        target: str | None,
        printed: Any,
        rewrites: Any = None,
        traceback: bool = False,
    ):
        self.rewrites, self.traceback = rewrites, traceback
        self.file, self.chosen, self.inputs_file, self.seed = file, chosen, inputs, seed
        self.target, self.printed = target, printed
        self.called, self.threads = "graph", 1
        self.timed = ""  # what is told of --repeat, once it is known that nothing else is wrong

    def run(self, each: bool, repeat: int | None, output: str | None) -> None:
        from mlirc.dialects.core.context import context
        from mlirc.execution.inputs import InputsError, read_inputs
        from mlirc.execution.modules import NoGraph, graph_of
        from mlirc.execution.random_inputs import random_inputs
        from mlirc.lowering.files.file import verify_file
        from mlirc.lowering.module.rules import StageError
        from mlirc.lowering.pipeline.parser import PipelineError
        from mlirc.lowering.pipeline.pass_manager import PassError
        from mlirc.lowering.pipeline.rewrites import LimitError

        if each:
            import torch

            self.threads = torch.get_num_threads()
            torch.set_num_threads(1)  # threads made here would be lost in the process that checks
        with context():
            try:
                module = parse_file(self.file)
                give_target(module, self.file)
                verify_file(module, runs=True)
                self.called = graph_of(module).name.value
                passes = self.passes(module)
                inputs = (
                    read_inputs(module, self.inputs_file)
                    if self.inputs_file is not None
                    else random_inputs(module, self.seed)
                )
                if each:
                    self.check(module, passes, inputs)
                    return
                left = self.execute(module, passes, inputs, repeat)
                written = left.written(inputs)
            except (PassError, PipelineError, StageError, InputsError, NoGraph) as error:
                text = f"{self.file}: {error}" if isinstance(error, NoGraph) else str(error)
                raise Failure(text, 2 if isinstance(error, LimitError) else 1) from error
            self.show(left, written, output)

    def passes(self, module: Any) -> str:
        """All that run before the module is executed: those chosen, and what is left of the way down."""
        from mlirc.lowering.module.target_attribute import is_on_gpu
        from mlirc.lowering.pipeline.parser import parse
        from mlirc.lowering.pipeline.pass_manager import runners
        from mlirc.lowering.pipeline.pipelines import stages
        from mlirc.lowering.pipeline.standard_steps import form_of_module, remaining_steps, standard_steps, text_of

        on_gpu = is_on_gpu(module)
        if self.target is None:
            self.target = "gpu" if on_gpu else "cpu"
        if self.target == "gpu" and not on_gpu:
            raise Failure(f"--target gpu: no tensor of {self.file} is on a GPU; its types say where each is", 2)
        given = self.chosen.of(module) if self.chosen is not None else ""
        if self.target == "interpreter" or (self.chosen is not None and self.chosen.pipeline is not None):
            return given
        if self.chosen is None:
            return text_of(remaining_steps(standard_steps("gpu" if on_gpu else "cpu"), module))
        form = form_of_module(module)
        if form == "lowered":
            return given
        names = [step.name for step in parse(given)]
        rest = ",".join(filter(None, stages(given, on_gpu).values()))
        if form in ("kernel", "memory") and "to-kernels" not in names:  # it is past what `stages` begins with
            tail = {"kernel": ["plan-memory", "lower-kernels"], "memory": ["lower-kernels"]}[form]
            tail = ["split-unaligned", "lower-triton", *tail[-1:]] if on_gpu and form == "memory" else tail
            rest = ",".join([given, *(name for name in tail if name not in names)]).strip(",")
        runners(rest)
        return rest

    def check(self, module: Any, passes: str, inputs: list[Any]) -> None:
        """Checks in a process of its own, which a pass or generated code may end."""
        import torch

        from mlirc.execution.each_pass import MACHINE_CODE_CRASHED
        from mlirc.execution.isolated import Ended, isolated

        def told(line: str) -> None:
            click.echo(f"  {line}", err=True)

        def work(tell: Any) -> Any:
            torch.set_num_threads(self.threads)
            try:
                return self.checked(module, passes, inputs, lambda line: tell(f"{TOLD}{line}"), tell)
            except Failure as failure:
                if self.traceback:  # it stays in that process otherwise
                    failure.add_note("".join(format_exception(failure)))
                return failure

        begun = ""

        def heard(phase: str) -> None:
            nonlocal begun
            if phase.startswith(TOLD):
                told(phase.removeprefix(TOLD))
            else:
                begun = phase

        found = isolated(work, None, heard, shown=self.traceback)
        if isinstance(found, Failure):
            raise found
        if isinstance(found, Ended):
            by_code = begun == MACHINE_CODE_CRASHED
            raise Failure(f"{begun}: {found.how}{NAMED_BY_BISECT if by_code else ''}")
        for line in found[:-1]:
            told(line)
        click.echo(found[-1])

    def checked(self, module: Any, passes: str, inputs: list[Any], told: Any, begins: Any) -> list[str]:
        """What to tell where nothing is wrong. Raises Failure."""
        from mlirc.dialects.interpreter.interpreter import InterpreterError
        from mlirc.execution.each_pass import Changed, check_each_pass
        from mlirc.execution.random_inputs import other_inputs
        from mlirc.execution.triton_code import triton_code
        from mlirc.lowering.module.rules import StageError
        from mlirc.lowering.pipeline.parser import PipelineError
        from mlirc.lowering.pipeline.pass_manager import PassError

        machine, on_gpu = self.target == "cpu", self.target == "gpu"
        try:
            with triton_code() if on_gpu else nullcontext() as code:
                others = (
                    (lambda given: other_inputs(given, self.seed)) if self.inputs_file is None else lambda given: ()
                )
                changed = check_each_pass(
                    module, passes, inputs, machine, told, begins, self.rewrites, code, self.file, others
                )
        except (InterpreterError, IndexError) as error:
            raise Failure(f"{self.file}, as given, cannot be executed: {error}") from error
        except (PassError, PipelineError, StageError) as error:
            raise Failure(str(error)) from error
        except Exception as error:
            raise self.failed(error) from error
        if changed is not None:
            is_code = isinstance(changed, Changed) and changed.step == "machine code" and changed.wrong is not None
            raise Failure(f"{changed}{NAMED_BY_BISECT if is_code else ''}")
        lines = []
        if on_gpu and code is None:
            lines.append("Triton is not installed: its code is not executed")
        if code is not None and code.left:
            lines.append(f"executed by their bodies, as Triton interprets no Gluon: {', '.join(sorted(code.left))}")
        which = "the machine code" if machine else "Triton's code, interpreted" if code is not None and code.ran else ""
        return [*lines, f"right after each pass{f', and so is {which}' if which else ''}"]

    def execute(self, module: Any, passes: str, inputs: list[Any], repeat: int | None) -> Any:
        from mlirc.execution.limited_run import limited_run
        from mlirc.execution.modules import MachineCode, interpret

        limited_run(module, passes, self.rewrites)
        try:
            if self.target == "interpreter":
                printer = _Printer(self.printed)
                left = interpret(module, inputs, printer)
                printer.check()
                return left
            import torch

            if self.target == "gpu" and not torch.cuda.is_available():
                raise Failure("--target gpu: PyTorch finds no GPU here; --target interpreter runs any module")
            code = MachineCode(module)
            running("the machine code")
            left = code(inputs)
            if repeat:
                taken = code.seconds(inputs, repeat)
                self.timed = f"{1e6 * statistics.median(taken):.1f} us, the median of {counted(repeat, 'call')}"
            return left
        except Exception as error:
            raise self.failed(error) from error

    def failed(self, error: Exception) -> Failure:
        from mlirc.lowering.module.errors import describe

        if isinstance(error, Failure):
            return error
        return Failure(f"{self.file} cannot be executed{describe(error)}")

    def show(self, left: Any, written: dict[str, Any], output: str | None) -> None:
        from mlirc.lowering.module.nearest import nearest

        named = {f"result{k}": x for k, x in enumerate(left.results)}
        known = named | {f"arg{k}": x for k, x in enumerate(left.arguments)}
        for name in self.printed:
            if name not in known and not (name.startswith("%") and self.target == "interpreter"):
                hint = "; --target interpreter has values such as %3" if name.startswith("%") else nearest(name, known)
                raise Failure(
                    f"--print: no value '{name}'{hint}; there are {', '.join(list(known)[:12])}".replace("?;", "?"), 2
                )
        if self.called != "graph":
            click.echo(f"{self.file}: no @graph: its only function @{self.called} was called", err=True)
        if self.timed:
            click.echo(self.timed, err=True)
        for name in self.printed:
            if name in known:
                click.echo(f"{name} = {_content(known[name])}")
        if not self.printed:
            for name, x in named.items():
                click.echo(f"{name}: {_summary(x)}")
            for name, x in written.items():
                click.echo(f"{name}, written: {_summary(x)}")
            if not named:
                click.echo(f"@{self.called} returns nothing", err=True)
        if output:
            from mlirc.frontend.report.tensor_file import tensor_bytes

            try:
                write_whole(output, tensor_bytes(named | written))
            except OSError as error:
                raise Failure(f"{output}: {error.strerror}") from error


class _Printer:
    """Prints values of a module as the interpreter comes to them."""

    def __init__(self, wanted: Any):
        self.wanted = [name for name in wanted if name.startswith("%")]
        self.seen: dict[str, None] = {}
        for name in self.wanted:
            if not re.fullmatch(r"%[\w$.-]+(#\d+)?", name):
                raise Failure(f"--print: '{name[:50]}' is no value's name; write %3 or %3#1", 2)

    def before(self, op: Any, operands: Any) -> None:
        pass

    def after(self, op: Any, values: Any, held: Any) -> None:
        if self.wanted:
            for value, content in zip(values, held, strict=True):
                name = value.get_name()
                self.seen[name] = None
                if name in self.wanted:
                    click.echo(f"{name} = {_content(content)}")

    def check(self) -> None:
        """Raises Failure for names that no executed op has given a value."""
        from mlirc.lowering.module.nearest import nearest

        for name in self.wanted:
            if name not in self.seen:
                raise Failure(f"--print: no op that ran gives '{name}'{nearest(name, self.seen)}".rstrip("?"), 2)


def _summary(x: Any) -> str:
    import torch

    if not isinstance(x, torch.Tensor):
        return repr(x)
    kind = f"{str(x.dtype).removeprefix('torch.')} {list(x.shape)}"
    if x.numel() == 0 or x.is_complex():
        return kind
    wide = x.double()
    return f"{kind}, from {wide.min():.6g} to {wide.max():.6g}, mean {wide.mean():.6g}"


def _content(x: Any) -> str:
    import torch

    if not isinstance(x, torch.Tensor):
        return repr(x)
    if x.numel() > MOST_PRINTED:
        return f"{_summary(x)}\n{x}"
    return f"{_summary(x)}\n{x.tolist()}"
