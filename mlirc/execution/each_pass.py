"""Executes a module after every pass that changed it, and names the first pass that changed the answer."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.float64 import in_float64
from mlirc.dialects.interpreter.interpreter import RunsCode
from mlirc.execution.accuracy import Expectation, Wrong, in_wider_dtypes
from mlirc.execution.culprit import culprit
from mlirc.execution.import_check import WrongImport, wrong_import
from mlirc.execution.limited_run import limited_run
from mlirc.execution.modules import MachineCode, interpret
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.rewrites import Rewrites
from mlirc.lowering.verify.kernel import StageError

MACHINE_CODE_CRASHED = "machine code crashed"
EXACT, ROUNDED = 1e-9, 1e-3  # how far apart two sums of a tensor's elements may be


@dataclass(frozen=True)
class Changed:
    """The first pass after which the answer is wrong: "machine code" where that alone is.

    number   of the pass, from 1
    wrong    the value, or None where the module could not be executed
    why      of that, else ""
    op       the op to blame and its source line, or ""
    """

    step: str
    number: int
    wrong: Wrong | None
    why: str
    op: str

    def __str__(self) -> str:
        what = self.why if self.wrong is None else str(self.wrong)
        op = f", by {self.op}" if self.op else ""
        step = self.step if self.step == "machine code" else f"pass {self.number}, '{self.step}',"
        return f"{step} changed the answer{op}: {what}"


class _Stop(Exception):
    def __init__(self, changed: Changed):
        super().__init__(str(changed))
        self.changed = changed


def check_each_pass(
    module: ir.Module,
    passes: str,
    inputs: Sequence[Any],
    machine_code: bool,
    told: Callable[[str], None] = lambda line: None,
    begins: Callable[[str], None] = lambda crash: None,
    rewrites: Rewrites | None = None,
    code: RunsCode | None = None,
    file: str = "",
    others: Callable[[ir.Module], Iterable[tuple[str, Sequence[Any]]]] = lambda module: (),
) -> Changed | WrongImport | None:
    """Runs the passes on the module, in place. None: the answer stayed right, that of the machine code too if it is asked for.

    Where `file` is the imported module of a capture, it is first compared with the ATen graph beside it. `rewrites` says which of
    their rewrites passes may take; `code` runs kernels of a module by their code. `told` hears a line for each pass, and `begins` before
    each step what is to be said if the process ends in it. Raises what the passes raise, and what the interpreter does on the module as
    given. `others` gives more inputs for the module as given, with what is told of them: what passes leave is executed with them at the
    end, and the passes run again on those with which it is wrong. Needs an entered context.
    """
    given = module.operation.get_asm(enable_debug_info=True)
    begins("the module as given crashes where it is executed")
    expected = Expectation(module, inputs)
    told(f"as given: {_how(expected)}")
    wrong_from_the_start = wrong_import(file, module, inputs, expected, told)
    if wrong_from_the_start is not None:
        return wrong_from_the_start
    state: dict[str, Any] = {"before": module.operation.clone(), "text": str(module), "number": 0}

    steps = [str(step) for step in parse(passes)]

    def begin(number: int) -> None:
        if number <= len(steps):
            begins(f"pass {number}, '{steps[number - 1]}', crashed")

    def look(step: str, module: Any) -> None:
        state["number"] += 1
        text = str(module)
        if text == state["text"]:
            told(f"{step}: no change")
            begin(state["number"] + 1)
            return
        begins(f"pass {state['number']}, '{step}', left what crashes where it is executed")
        changed = _looked_at(expected, state["before"], module, inputs, step, state["number"], code)
        if changed is not None:
            raise _Stop(changed)
        told(f"{step}: right")
        state["before"], state["text"] = module.operation.clone(), text
        begin(state["number"] + 1)

    begin(1)
    try:
        limited_run(module, passes, rewrites, look)
    except _Stop as stop:
        return stop.changed
    number, call, refused = state["number"] + 1, lambda inputs: interpret(module, inputs, code=code), None
    if machine_code:
        begins(MACHINE_CODE_CRASHED)
        try:
            call = MachineCode(module)
            wrong = expected.compare(call(inputs))
        except StageError as error:  # code that is not made of the bodies beside it
            refused, wrong = Changed("machine code", number, None, str(error), ""), None
        if wrong is not None:
            return Changed("machine code", number, wrong, "", "")
        if refused is None:
            told("machine code: right")
    for kind, more in others(ir.Module.parse(given)):
        if is_wrong(ir.Module.parse(given), more, call):
            told(f"with {kind} numbers it is wrong")
            again = None if rewrites is None else Rewrites(rewrites.limits)
            return check_each_pass(ir.Module.parse(given), passes, more, machine_code, told, begins, again, code)
        told(f"with {kind} numbers: right")
    return refused


def is_wrong(module: ir.Module, inputs: Sequence[Any], call: Callable[[Sequence[Any]], Any]) -> bool:
    """Whether what passes made of a module is wrong on inputs, or raises."""
    expected = Expectation(module, inputs)
    try:
        return expected.compare(call(inputs)) is not None
    except Exception:  # of any kind: the passes run again, and tell
        return True


def _how(expected: Expectation) -> str:
    if expected.exact is None:
        return f"compared with the module as given, not with float64: {expected.why}"
    return "compared with float64"


def _looked_at(
    expected: Expectation,
    before: Any,
    module: Any,
    inputs: Sequence[Any],
    step: str,
    number: int,
    code: RunsCode | None,
) -> Changed | None:
    try:
        wrong = expected.compare(interpret(module, inputs, code=code))
    except Exception as error:  # whatever the interpreter says of a module that is wrong
        return Changed(step, number, None, " ".join(str(error).split()), "")
    if wrong is None:
        return None
    if wrong.said:
        return Changed(step, number, wrong, "", "")
    return Changed(step, number, wrong, "", _blamed(_as_module(before), module, inputs, wrong, code))


def _as_module(operation: Any) -> ir.Module:
    return ir.Module.parse(operation.get_asm(enable_debug_info=True))


def _blamed(before: ir.Module, after: ir.Module, inputs: Sequence[Any], wrong: Wrong, code: RunsCode | None) -> str:
    """The op whose value differs first, in float64, else "". Where the float64 answers agree (overlapping buffers), values are compared in
    their own dtypes."""
    written = wrong.what.startswith("argument")

    def content(module: ir.Module, given: Sequence[Any]) -> Any:
        found = interpret(module, given)
        return (found.arguments if written else found.results)[wrong.position]

    wide = in_float64(before), in_float64(after)
    try:
        if wide[0] is not None and wide[1] is not None:
            exact = in_wider_dtypes(inputs)
            left = [content(x, exact) for x in wide]
            gone = (left[0].double() - left[1].double()).abs().max() if left[0].shape == left[1].shape else 1.0
            if not gone <= 1e-9 * (1.0 + float(left[0].abs().max())):
                return culprit(wide[0], wide[1], exact, wrong.position, EXACT, written=written)
        return culprit(before, after, inputs, wrong.position, ROUNDED, code, written)
    except Exception:  # the pass is known; which op it was is a help only
        return ""


def checked(*arguments: Any, **named: Any) -> Changed | WrongImport | None:
    """check_each_pass in the context of the process."""
    with context():
        return check_each_pass(*arguments, **named)
