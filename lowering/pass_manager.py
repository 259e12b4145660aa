"""Runs pipelines: our passes and upstream's mixed, each timed, verified and, if wanted, printed.

Our passes are the classes with a `name` and a `run` in the files of lowering/passes/, and those that other packages
offer under the entry point group `mlirc.passes`. There is no list to maintain.
"""

import functools
import importlib
import importlib.metadata
import pkgutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from mlirc.dialects.bindings import PassManager, context, ir
from mlirc.lowering.ledger import Ledger
from mlirc.lowering.pipeline_parser import PipelineError, Step, make_pass, parse


class PassError(RuntimeError):
    """A pass failed or left IR that does not verify. Names the pass, the op and the user's source line.

    `module_text` is the module as it was before the pass, and `step` the pass: enough to run it again.
    """

    def __init__(self, message: str, step: str, module_text: str):
        super().__init__(message)
        self.step = step
        self.module_text = module_text


class UnsupportedByPass(Exception):
    """A pass's way to say that it cannot handle this op: `op` and why. The pass manager adds where it is."""

    def __init__(self, op: Any, why: str):
        super().__init__(why)
        self.op = op


@functools.cache
def passes() -> dict[str, type]:
    """Every pass of ours by name, third parties' included."""
    from mlirc.lowering import passes as folder

    found: dict[str, type] = {}
    modules = [importlib.import_module(f"{folder.__name__}.{m.name}") for m in pkgutil.iter_modules(folder.__path__)]
    classes = [value for module in modules for value in vars(module).values() if is_pass(value, module.__name__)]
    classes += [entry.load() for entry in importlib.metadata.entry_points(group="mlirc.passes")]
    for cls in classes:
        if cls.name in found and found[cls.name] is not cls:
            raise PipelineError(f"two passes are called '{cls.name}': {found[cls.name].__module__} and {cls.__module__}")
        found[cls.name] = cls
    return found


def register(cls: type) -> type:
    """Decorator: add a pass for this process, as if its file stood in lowering/passes/."""
    passes()[cls.name] = cls
    return cls


def is_pass(value: Any, module: str) -> bool:
    named = isinstance(value, type) and isinstance(getattr(value, "name", None), str)
    return named and hasattr(value, "run") and value.__module__ == module


@dataclass
class PassRun:
    """One pass that ran: its text and its seconds."""

    step: str
    seconds: float


@dataclass
class PipelineRun:
    """What running a pipeline left behind besides the module: timings and the ledger."""

    passes: list[PassRun] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)


def functions(module: ir.Module) -> Iterator[Any]:
    """The functions that passes of ours run on: those with a body that is still ours (lowered kernels are not)."""
    for op in list(module.body.operations):
        if op.operation.name == "func.func" and not op.name.value.startswith("kernel_"):
            yield op


def run_pipeline(
    module: ir.Module,
    pipeline: str,
    after_pass: Callable[[str, ir.Module], None] | None = None,
    record: PipelineRun | None = None,
    verify: bool = True,
) -> PipelineRun:
    """Run the passes of `pipeline` on `module`, in place. `after_pass(step, module)` is called after each.

    Raises PipelineError for a pipeline that is wrong, before anything runs, and PassError when a pass fails.
    """
    record = record or PipelineRun()
    with context():
        runners = [_runner(step) for step in parse(pipeline)]
        for step, run in runners:
            start = time.perf_counter()
            # the text is only needed when the pass fails; bytecode would be cheaper still, but cannot be read by people
            before = module.operation.clone()
            try:
                run(module, record.ledger)
                if verify:
                    module.operation.verify()
            except Exception as error:
                raise PassError(_describe(step, error), str(step), str(before)) from error
            record.passes.append(PassRun(str(step), time.perf_counter() - start))
            if after_pass:
                after_pass(str(step), module)
    return record


def _runner(step: Step) -> tuple[Step, Callable[[ir.Module, Ledger], None]]:
    ours = passes().get(step.name)
    if ours is not None:
        instance = make_pass(ours, step)

        def run(module: ir.Module, ledger: Ledger) -> None:
            for function in functions(module):
                with ir.InsertionPoint(function):
                    instance.run(function, ledger)

        return step, run
    try:
        manager = PassManager.parse(f"builtin.module({step})")
    except (ValueError, ir.MLIRError) as error:
        text = " ".join(str(error).split())
        if "not refer to a registered pass" in text:
            known = ", ".join(sorted(passes()))
            raise PipelineError(f"no pass '{step.name}', nor is it one of MLIR's; ours: {known}") from error
        raise PipelineError(f"pass '{step}': {text}") from error
    return step, lambda module, ledger: manager.run(module.operation)


def _describe(step: Step, error: Exception) -> str:
    text = " ".join(str(error).split()) or type(error).__name__
    op = getattr(error, "op", None)
    where = ""
    if op is not None:
        where = f" at {op.operation.name} ({source_line(op.location)})"
    elif isinstance(error, ir.MLIRError) and error.error_diagnostics:
        diagnostic = error.error_diagnostics[0]
        text = diagnostic_text(diagnostic)
        where = f" ({source_line(typed(diagnostic.location))})"
    return f"pass '{step}' failed{where}: {text}"


def typed(location: ir.Location) -> ir.Location:
    """A diagnostic's location as its own class: the bindings hand it out as the base class."""
    for cls in (ir.FileLineColLoc, ir.FusedLoc, ir.NameLoc, ir.CallSiteLoc):
        try:
            return cls(location)
        except ValueError:
            continue
    return location


def diagnostic_text(diagnostic: ir.DiagnosticInfo) -> str:
    """MLIR's message in one line, with the name of the op where the message leaves it out."""
    text = " ".join(diagnostic.message.split())
    for note in diagnostic.notes:
        _, found, op = note.message.partition("see current operation: ")
        if found and text.startswith("op "):
            return f"{op.split('(')[0].split('=')[-1].strip()} {text}"
    return text


def source_line(location: ir.Location) -> str:
    """The user's source line in an MLIR location, fused ones included: "model.py:12", or "unknown line"."""
    return next(iter(source_lines(location)), "unknown line")


def source_lines(location: ir.Location) -> list[str]:
    """Every user's source line in an MLIR location, each once."""
    return list(dict.fromkeys(f"{p.filename}:{p.start_line}" for p in _files(location)))


def _files(location: ir.Location) -> Iterator[Any]:
    if isinstance(location, ir.FileLineColLoc):
        yield location
    elif isinstance(location, ir.FusedLoc):
        for part in location.locations:
            yield from _files(part)
    elif isinstance(location, ir.NameLoc):
        yield from _files(location.child_loc)
    elif isinstance(location, ir.CallSiteLoc):
        yield from _files(location.callee)
