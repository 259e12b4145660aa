"""A trial: runs passes on a module, then executes and compares the result, in a process of its own. A failure is a symptom."""

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.accuracy import Expectation
from mlirc.execution.isolated import Ended, isolated
from mlirc.execution.limited_run import limited_run
from mlirc.execution.modules import MachineCode, interpret, placed
from mlirc.execution.triton_code import TritonCode, TritonFailed
from mlirc.lowering.files.file import verify_file, verify_plan
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.parser import PipelineError, parse
from mlirc.lowering.pipeline.pass_manager import PassError, functions
from mlirc.lowering.pipeline.rewrites import Range, Rewrite, Rewrites
from mlirc.lowering.pipeline.standard_steps import form_of_module

WRONG, CRASH, ERROR, SLOW, CHECK, INVALID = "wrong answer", "crash", "error", "slow", "check", "invalid"
PASSES, INTERPRETED, MACHINE = "passes", "the interpreter", "machine code"
LEAST, PATIENCE = 10.0, 20  # seconds, and times what the longest trial took, after which another one hangs as well
DOWN = {  # what leads from a form to machine code without fusion, and without memory that is shared
    "graph": "decompose,select-attention,to-kernels,plan-memory{reuse=false},lower-kernels",
    "kernel": "plan-memory{reuse=false},lower-kernels",
    "memory": "lower-kernels",
}


@dataclass(frozen=True)
class Case:
    """Passes on a module, with inputs.

    limits      which of their rewrites passes may take
    completes   whether what is left of the way to machine code runs after the passes
    """

    text: str
    inputs: tuple[Any, ...]
    steps: tuple[str, ...]
    limits: Mapping[str, tuple[Range, ...]] = field(default_factory=dict)
    completes: bool = False

    def with_steps(self, steps: Sequence[str]) -> "Case":
        return replace(self, steps=tuple(steps))


@dataclass(frozen=True)
class Symptom:
    """What goes wrong. `where` is what showed it: the passes, the interpreter, machine code; `step` the pass that raised."""

    kind: str
    text: str
    where: str
    step: str = ""

    @property
    def hangs(self) -> bool:
        return self.kind == CRASH and self.text.startswith("no end")

    def like(self, other: "Symptom | None") -> bool:
        """Whether the other is the same failure: numbers in its text may differ."""
        if other is None or (self.kind, self.where) != (other.kind, other.where):
            return False
        if self.kind == CRASH:
            return self.text.split()[0] == other.text.split()[0]
        return self.step.partition("{")[0] == other.step.partition("{")[0]


@dataclass(frozen=True)
class Tried:
    """`left` are kernels of which not the code was executed, but the body (triton_code.py)."""

    symptom: Symptom | None
    asked: list[Rewrite] = field(default_factory=list)
    left: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Trials:
    """How cases are tried.

    machine   whether lowered modules are called as machine code
    triton    what runs the code of kernels for a GPU, or None: one process for all trials
    slower    the seconds that a call may take, or None
    check     a command that fails on the IR that passes leave, or None
    seconds   that a trial may take
    reduces   whether the module is made smaller in the end
    traceback whether the first trial shows where in Python it crashes
    left      kernels of any trial of which not the code was executed, but the body
    took      seconds of trials that ended: where another did not, later ones need not be waited for as long
    hung      the limits of trials that did not end
    """

    machine: bool
    slower: float | None = None
    check: str | None = None
    seconds: float = 120.0
    reduces: bool = True
    triton: TritonCode | None = None
    traceback: bool = False
    expected: dict[str, Expectation] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)
    took: list[float] = field(default_factory=list)
    hung: list[float] = field(default_factory=list)

    @property
    def limit(self) -> float:
        """Seconds that the next trial may take."""
        return min(self.seconds, max(LEAST, PATIENCE * max(self.took))) if self.hung and self.took else self.seconds

    def prepare(self, case: Case) -> None:
        """Interprets the module as it is given once, for all trials of the same. Raises what the interpreter raises."""
        if self.check is None and case.text not in self.expected:
            with context():
                self.expected.clear()
                self.expected[case.text] = Expectation(ir.Module.parse(case.text), case.inputs)

    def __call__(self, case: Case, shown: bool = False) -> Tried:
        """With `shown` a crash writes its stack of Python to standard error."""
        if self.triton is not None:
            self.triton.start_again()
        began, limit = time.monotonic(), self.limit
        found = isolated(lambda tell: self._tried(case, tell), limit, shown=shown)
        if not isinstance(found, Ended):
            self.took.append(time.monotonic() - began)
            self.left.update(found.left)
            return found
        if self.triton is not None:  # it may be in the middle of an answer
            self.triton.stop()
        if time.monotonic() - began >= limit:
            self.hung.append(limit)
        kind = ERROR if found.how.startswith("raised") else CRASH
        return Tried(Symptom(kind, f"{found.how}{f' in {found.phase}' if found.phase else ''}", _where(found.phase)))

    def run(self, case: Case) -> str:
        """The module's text, with locations, after the passes. Raises RuntimeError where they do not end well."""
        return self._passes_alone(case)[0]

    def asked(self, case: Case) -> list[Rewrite]:
        """The rewrites that the passes ask for, where what they leave crashes; none where they do not end well."""
        try:
            return self._passes_alone(case)[1]
        except RuntimeError:
            return []

    def _passes_alone(self, case: Case) -> tuple[str, list[Rewrite]]:
        def work(tell: Callable[[str], None]) -> tuple[str, list[Rewrite]]:
            with context():
                module, rewrites = ir.Module.parse(case.text), Rewrites(case.limits)
                limited_run(module, ",".join(case.steps), rewrites, verify=False)
                return module.operation.get_asm(enable_debug_info=True), rewrites.asked

        found = isolated(work, self.seconds)
        if isinstance(found, Ended):
            raise RuntimeError(found.how)
        return found

    # ---- in the process of the trial

    def _tried(self, case: Case, tell: Callable[[str], None]) -> Tried:
        rewrites = Rewrites(case.limits)
        with context():
            module = ir.Module.parse(case.text)
            tell(PASSES)
            steps, last = case.steps, ""
            try:
                if steps:
                    limited_run(module, ",".join(steps), rewrites, lambda step, _: tell(f"{PASSES}, after '{step}'"))
                if case.completes:
                    last = DOWN.get(form_of_module(module) or "graph", "")
                    limited_run(module, last, None)
            except (PipelineError, StageError) as error:
                return Tried(Symptom(INVALID, str(error), PASSES))
            except PassError as error:
                kind = INVALID if error.step in {str(s) for s in parse(last)} - set(steps) else ERROR
                return Tried(Symptom(kind, str(error), PASSES, error.step), rewrites.asked)
            symptom = self._executed(case, module, tell)
            return Tried(symptom, rewrites.asked, frozenset(self.triton.left if self.triton is not None else ()))

    def _executed(self, case: Case, module: Any, tell: Callable[[str], None]) -> Symptom | None:
        if self.check is not None:
            return checked(self.check, module)
        lowered = form_of_module(module) == "lowered"
        if self.slower is not None:
            if not lowered:
                return Symptom(INVALID, "not lowered", MACHINE)
            tell(MACHINE)
            least = min(MachineCode(module).seconds(placed(module, case.inputs), 30))
            return Symptom(SLOW, f"{1e6 * least:.1f} us", MACHINE) if least > self.slower else None
        expected = self.expected.get(case.text) or Expectation(ir.Module.parse(case.text), case.inputs)
        tell(INTERPRETED)
        try:
            wrong = expected.compare(interpret(module, case.inputs, code=self.triton))
        except Exception as error:  # whatever the interpreter says of a module that is wrong
            kind = CRASH if isinstance(error.__cause__, TritonFailed) else WRONG
            return Symptom(kind, " ".join(str(error).split()), INTERPRETED)
        if wrong is not None:
            return Symptom(WRONG, str(wrong), INTERPRETED)
        broken = shared_memory(module)
        if broken is not None or not (self.machine and lowered):
            return broken
        tell(MACHINE)
        try:
            wrong = expected.compare(MachineCode(module)(case.inputs))
        except StageError as error:
            return Symptom(ERROR, str(error), MACHINE)
        return None if wrong is None else Symptom(WRONG, str(wrong), MACHINE)


def shared_memory(module: Any) -> Symptom | None:
    """What the verifier says of buffers that are in use at one time, or of a kernel that writes where it still reads: each
    kernel is interpreted as a whole, and does not see that."""
    if form_of_module(module) not in ("memory", "lowered"):
        return None
    try:
        for function in functions(module):
            verify_plan(function, {})
    except StageError as error:
        return Symptom(ERROR, str(error), INTERPRETED)
    return None


def _where(phase: str) -> str:
    return next((where for where in (MACHINE, INTERPRETED) if phase.startswith(where)), PASSES)


def checked(command: str, module: Any) -> Symptom | None:
    """Runs a command on the module's text, in place of {} or as the last word; it fails where it exits with more than 0."""
    handle, path = tempfile.mkstemp(suffix=".mlir", prefix="mlirc-bisect-")
    try:
        with os.fdopen(handle, "w") as file:
            file.write(module.operation.get_asm(enable_debug_info=True))
        line = command.replace("{}", path) if "{}" in command else f"{command} {path}"
        done = subprocess.run(line, shell=True, capture_output=True, text=True, errors="replace")
    finally:
        os.unlink(path)
    said = " ".join((done.stderr or done.stdout).split())[-200:]
    return (
        Symptom(CHECK, f"exit code {done.returncode}{f': {said}' if said else ''}", PASSES) if done.returncode else None
    )


def is_valid(module: Any) -> bool:
    try:
        verify_file(module)
        module.operation.verify()
    except (StageError, PassError, ir.MLIRError):
        return False
    return True


def is_shown_at_random(case: Case, symptom: Symptom, trials: Trials) -> bool:
    """Whether inputs of seed 0 show the failure, too. To be called in a process of its own."""
    from mlirc.execution.random_inputs import random_inputs

    with context():
        drawn = random_inputs(ir.Module.parse(case.text), 0)
    trials.expected.clear()
    one = replace(case, inputs=tuple(drawn))
    return symptom.like(trials(one).symptom)
