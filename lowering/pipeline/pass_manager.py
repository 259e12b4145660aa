"""Runs pipelines: our passes and upstream's mixed, each timed, verified and, if wanted, printed.

Our passes are the classes with a `name` and a `run` in the files of lowering/passes/, and those that other packages
offer under the entry point group `mlirc.passes`. There is no list to maintain. A pass may say which forms it is for:

    takes = "kernel"    the form that it runs on (module/forms.py); without it, any
    gives = "memory"    the form that it leaves; without it, the one that it found
"""

import functools
import importlib
import importlib.metadata
import inspect
import itertools
import os
import pkgutil
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field, is_dataclass, replace
from pathlib import Path
from typing import Any

from mlirc.dialects.control_flow.region_ops import is_shared, nested_functions
from mlirc.dialects.core.bindings import PassManager, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.errors import describe
from mlirc.lowering.module.forms import STAGES, refusal, stage_of
from mlirc.lowering.module.nearest import nearest_of, unknown
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.module.target_attribute import ensure_target
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import PipelineError, Step, make_pass, parse
from mlirc.lowering.pipeline.sought_ops import SOUGHT, holds
from mlirc.lowering.target import TargetError
from mlirc.lowering.verify.stage import Known, verify_stage

Given = Mapping[str, Mapping[str, Any]]
"""Fields of passes that no text sets, by the name of the pass: who listens, who decides."""


class PassError(RuntimeError):
    """A pass failed or left IR that does not verify. Names the pass, the op and the user's source line.

    `module_text` is the module as it was before the pass, and `step` the pass: enough to run it again.
    """

    def __init__(self, message: str, step: str, module_text: str):
        super().__init__(message)
        self.step = step
        self.module_text = module_text


def find_pass(name: str) -> type | None:
    """The pass of that name, None if there is none. Of ours, where nobody adds others, only its own file is loaded."""
    return _in_its_file(name) if only_ours() else passes().get(name)


def only_ours() -> bool:
    """Whether nobody has added a pass, and the passes are not all loaded."""
    return not (passes.cache_info().currsize or _others())


@functools.cache
def _in_its_file(name: str) -> type | None:
    """The pass of ours of that name: a compilation asks for each some ten times."""
    from mlirc.lowering import passes as folder

    file = name.replace("-", "_")
    stage = _stages().get(file)
    if stage is None:
        return None
    module = importlib.import_module(f"{folder.__name__}.{stage}.{file}")
    return next((x for x in vars(module).values() if is_pass(x, module.__name__) and x.name == name), None)


@functools.cache
def _stages() -> dict[str, str]:
    """The folder of each file of passes: a graph asks for passes by name some 160 times, and a search for each took 26 ms."""
    from mlirc.lowering import passes as folder

    return {path.stem: path.parent.name for root in folder.__path__ for path in Path(root).glob("*/[!_]*.py")}


@functools.cache
def _others() -> list[Any]:
    """What other packages offer."""
    return list(importlib.metadata.entry_points(group="mlirc.passes"))


@functools.cache
def passes() -> dict[str, type]:
    """Every pass of ours by name, third parties' included."""
    from mlirc.lowering import passes as folder

    found: dict[str, type] = {}
    files = pkgutil.walk_packages(folder.__path__, f"{folder.__name__}.")
    modules = [importlib.import_module(file.name) for file in files]
    classes = [value for module in modules for value in vars(module).values() if is_pass(value, module.__name__)]
    classes += [_of_package(entry) for entry in _others()]
    for cls in classes:
        if cls.name in found and found[cls.name] is not cls:
            raise PipelineError(
                f"two passes are called '{cls.name}': {found[cls.name].__module__} and {cls.__module__}"
            )
        found[cls.name] = cls
    return found


def given_by_others(name: str) -> type | None:
    """The pass of that name, where it is not one of mlirc's own."""
    cls = None if only_ours() else find_pass(name)
    return None if cls is None or cls.__module__.startswith("mlirc.") else cls


def to_import(name: str) -> str | None:
    """What `--import` needs for a pass that a file or a module registers; None for ours, and for what an entry point offers."""
    cls = given_by_others(name)
    if cls is None or any(entry.module == cls.__module__ for entry in _others()):
        return None
    if "." in cls.__module__:  # of a package, where a file alone may lack what it imports
        return cls.__module__
    try:
        return inspect.getsourcefile(cls)
    except (OSError, TypeError):  # typed in, and in no file
        return None


def register(cls: type) -> type:
    """Decorator: add a pass for this process, as if its file stood in lowering/passes/. Raises TypeError for what is none."""
    passes()[_checked(cls).name] = cls
    return cls


def _of_package(entry: Any) -> type:
    """The pass that an entry point of another package names. Raises PipelineError where there is none."""
    try:
        return _checked(entry.load())
    except Exception as error:
        raise PipelineError(
            f"the entry point '{entry.name} = {entry.value}' of mlirc.passes gives no pass: {type(error).__name__}: {error}"
        ) from error


def _checked(cls: Any) -> Any:
    """Raises TypeError for what is no pass."""
    name = getattr(cls, "name", None)
    if not (isinstance(cls, type) and is_dataclass(cls) and isinstance(name, str) and hasattr(cls, "run")):
        called = getattr(cls, "__name__", repr(cls))
        raise TypeError(f"{called} is no pass, which is a frozen dataclass with a name and run(self, function, ledger)")
    for key in ("takes", "gives"):
        if (form := getattr(cls, key, None)) is not None and form not in STAGES:
            raise TypeError(f"{cls.__name__}.{key}: {unknown('form', str(form), STAGES)}")
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
class Ran:
    """A pass that ran, and the module that it was given; None where the passes before it make that again (`make_again`)."""

    step: Step
    module: Any


@dataclass
class Seen:
    """What running pipelines has shown of a module, and does not look for again: mlirc's own passes make no regions, and keep the
    form or leave the one that they promise. Walking all ops for each took as long as a pass.

    forms   by function, the form that it is in
    flat    whether no function has another one in it
    """

    forms: dict[Any, str] = field(default_factory=dict)
    flat: bool = False

    def forget(self) -> None:
        self.forms.clear()
        self.flat = False


@dataclass
class PipelineRun:
    """What running a pipeline left behind besides the module: timings, the ledger, which kernels were found right, and the
    passes whose result is still to be verified in full, each with the module that it was given. `seen` is of its one module."""

    passes: list[PassRun] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    known: Known = field(default_factory=set)
    unverified: list[Ran] = field(default_factory=list)
    seen: Seen = field(default_factory=Seen, repr=False)


def functions(module: Any) -> Iterator[Any]:
    """The functions that passes of ours run on: those with a body that is still ours (lowered kernels are not)."""
    for op in list(module.operation.regions[0].blocks[0].operations):
        if op.operation.name == "func.func" and op.regions[0].blocks and not op.name.value.startswith("kernel_"):
            yield op


def all_functions(module: Any, seen: Seen) -> Iterator[Any]:
    """All functions of a module with those of their regions, inner ones first, because their arenas are parts of the outer one's."""
    flat = True
    for function in functions(module):
        for one in () if seen.flat else nested_functions(function):
            flat = False
            if not is_shared(one):
                yield one
        yield function
    seen.flat = flat


def verify_forms(module: Any, known: Known | None = None, proofs: str = "demanded") -> None:
    """Check every function of ours against the form that it is in. `known` grows; `proofs` as in verify_stage. Raises
    StageError."""
    for function in functions(module):
        stage = stage_of(function)
        if stage:
            verify_stage(function, stage, known, proofs)


def run_pipeline(
    module: ir.Module,
    pipeline: str,
    after_pass: Callable[[str, ir.Module], None] | None = None,
    record: PipelineRun | None = None,
    verify: bool = True,
    proofs: str = "tried",
    given: Given | None = None,
    verify_others: bool = False,
    each: bool = True,
) -> PipelineRun:
    """Run the passes of `pipeline` on `module`, in place. `after_pass(step, module)` is called after each.

    A module without a target gets the host's (module/target_attribute.py). `given` are fields of passes that no text sets,
    by the pass's name: {"lower-kernels": {"listener": f}}.

    MLIR verifies after each pass, if not `each` after the last one and those that are not mlirc's own; the form that the last
    one leaves is verified in full, and if it is wrong, the forms before, to find the pass that did it. With `verify_others` so
    is what each pass leaves that is not mlirc's own, with proofs that are tried. Without `verify` that is left to a later call
    with the same record, to verify_result, or for when a pass fails. Raises PipelineError for a pipeline that is wrong, or that
    is not for a module of this form; PassError when a pass fails; StageError where the module given was wrong already. `proofs`
    as in verify_stage.
    """
    record = record or PipelineRun()
    with context():
        earlier, before = len(record.unverified), record.unverified
        steps = runners(
            pipeline, given, Seen() if each else record.seen
        )  # between two stages nobody changes the module
        again = not each and run_again(steps, given, record.ledger)
        try:
            ensure_target(module)
        except TargetError as error:
            raise PipelineError(str(error)) from error
        has_graph = "graph" in ir.SymbolTable(module.operation)
        for number, (step, run) in enumerate(steps, 1):
            start = time.perf_counter()
            before.append(Ran(step, None if again and number > 1 else module.operation.clone(ip=False)))
            record.ledger.between_passes()
            try:
                run(module, record.ledger)
                if each or number == len(steps) or given_by_others(step.name):
                    module.operation.verify()
                    has_graph = _keeps_graph(module, has_graph, before)
            except Exception as error:
                make_again(before)
                try:  # who gave it what it failed on?
                    _verify_result(before[-1].module, before[:-1], record.known, proofs)
                except StageError:
                    if earlier:
                        raise
                if isinstance(error, PipelineError):
                    raise
                raise _pass_error(
                    next((x for x in reversed(before) if _is_valid(x.module)), before[-1]), error
                ) from error
            if verify_others and given_by_others(step.name):
                verify_result(module, record, "tried")
            record.passes.append(PassRun(str(step), time.perf_counter() - start))
            if after_pass:
                after_pass(str(step), module)
        record.ledger.forget()
        if verify:
            verify_result(module, record, proofs)
    return record


def run_again(steps: list[tuple[Step, Any]], given: Given | None, ledger: Ledger) -> bool:
    """Whether passes may run a second time, and leave what they left: those of mlirc, on which nothing but the module and their options bears.
    What is given to the last one does not matter: nobody asks for what it left."""
    told = (
        any(step.name in (given or {}) for step, _ in steps[:-1])
        or ledger.rewrites is not None
        or ledger.fusion is not None
    )
    return not told and not any(given_by_others(step.name) for step, _ in steps)


def make_again(before: list[Ran]) -> None:
    """Gives each pass the module that it was given. To keep one for each took as long as a pass: nearly always nobody asks."""
    ledger = Ledger()
    for last, this in itertools.pairwise(before):
        if this.module is not None:
            ledger = Ledger()
            continue
        this.module = last.module.operation.clone(ip=False)
        ledger.between_passes()
        _runner(last.step, {}, Seen())[1](this.module, ledger)


def _keeps_graph(module: ir.Module, had: bool, before: list[Ran]) -> bool:
    """Whether there is a @graph. Raises StageError where there was one before the last pass."""
    has = "graph" in ir.SymbolTable(module.operation)
    if had and not has:
        make_again(before)
        graph = ir.SymbolTable(before[-1].module.operation)["graph"]
        raise StageError(graph, "the pass erased @graph", "change what the function computes, and keep it")
    return has


def _is_valid(module: ir.Module) -> bool:
    """Whether MLIR finds it right. Of passes that it was not asked about, the first that left what it finds wrong is the one that failed."""
    try:
        return module.operation.verify()
    except ir.MLIRError:
        return False


def verify_result(module: ir.Module, record: PipelineRun, proofs: str) -> None:
    """Verifies in full the form that passes left which ran without. Raises PassError that names the one that is wrong, and
    StageError where the module given to the first was."""
    _verify_result(module, record.unverified, record.known, proofs)
    record.unverified.clear()


def _verify_result(module: ir.Module, before: list[Ran], known: Known, proofs: str) -> None:
    wrong = _wrong_form(module, known, proofs)
    if wrong is not None:
        make_again(before)
    for one in reversed(before):
        if wrong is None:
            return
        earlier = _wrong_form(one.module, known, proofs)
        if earlier is None:
            raise _pass_error(one, wrong) from wrong
        wrong = earlier
    if wrong is not None:
        raise wrong


def _wrong_form(module: Any, known: Known, proofs: str) -> StageError | None:
    try:
        verify_forms(module, known, proofs)
    except StageError as error:
        return error
    return None


def _pass_error(failed: Ran, error: Exception) -> PassError:
    text = failed.module.get_asm(enable_debug_info=True)
    where = line_of_pass(failed.step.name, error)
    return PassError(f"pass '{failed.step}' failed{describe(error)}{where}", str(failed.step), text)


def line_of_pass(name: str, error: Exception) -> str:
    """ ", at my_pass.py:13": the innermost line that the error came through of the file of a pass that is not mlirc's own, else ""."""
    code = getattr(getattr(given_by_others(name), "run", None), "__code__", None)
    if code is None:
        return ""
    file = code.co_filename
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == file]
    return f", at {os.path.basename(file)}:{lines[-1]}" if lines else ""


Runner = tuple[Step, Callable[[ir.Module, Ledger], None]]


def runners(pipeline: str, given: Given | None = None, seen: Seen | None = None) -> list[Runner]:
    """The passes of a pipeline, ready to run. Raises PipelineError."""
    with context():
        seen = seen or Seen()
        return [_runner(step, (given or {}).get(step.name, {}), seen) for step in parse(pipeline)]


def _runner(step: Step, given: Mapping[str, Any], seen: Seen) -> Runner:
    sought = SOUGHT.get(step.name, ())
    if not sought or step.arguments or given or not only_ours():
        return _loaded_runner(step, given, seen)

    def run(module: ir.Module, ledger: Ledger) -> None:
        there = list(all_functions(module, seen))
        if holds(there, sought):
            _loaded_runner(step, given, seen)[1](module, ledger)
        else:
            for function in there:
                _check_taken(step, "graph", function, seen)

    return step, run


def _loaded_runner(step: Step, given: Mapping[str, Any], seen: Seen) -> Runner:
    ours = find_pass(step.name)
    if ours is not None:
        instance = make_pass(ours, step)
        instance = replace(instance, **given) if given else instance

        def run(module: ir.Module, ledger: Ledger) -> None:
            for function in all_functions(module, seen):
                _check_taken(step, getattr(instance, "takes", None), function, seen)
                with ir.InsertionPoint(function):
                    instance.run(function, ledger)
                if ledger.rewrites is None or not ledger.rewrites.limit(step.name):
                    _check_given(instance, function, seen)
                else:
                    seen.forget()
            if given_by_others(step.name):
                seen.forget()

        return step, run
    try:
        manager = PassManager.parse(f"builtin.module({step})")
    except (ValueError, ir.MLIRError) as error:
        text = " ".join(str(error).split())
        unknown = re.search(r"'(\S*)' does not refer to a registered pass", text)
        if unknown:
            close = nearest_of(unknown[1], sorted(passes()), "ours:", ("canonicalize", "cse"))
            raise PipelineError(f"no pass '{unknown[1]}', nor is it one of MLIR's{close}") from error
        raise PipelineError(f"pass '{step}': {text}") from error

    def upstream(module: ir.Module, ledger: Ledger) -> None:
        if ledger.allows(step.name, "the whole run"):
            manager.run(module.operation)

    return step, upstream


def _check_taken(step: Step, stage: str | None, function: Any, seen: Seen) -> None:
    if stage is None or seen.forms.get(function.operation) == stage:
        return
    if wrong := refusal(function, stage):
        raise PipelineError(f"pass '{step}' takes the {stage} form, and {wrong}")
    seen.forms[function.operation] = stage


def _check_given(instance: Any, function: Any, seen: Seen) -> None:
    """A pass that promises a form and leaves another would else be found out by the next one, as its fault."""
    stage = getattr(instance, "gives", None)
    if stage is None:
        return
    if refusal(function, stage):
        verify_stage(function, stage, proofs="none")
    seen.forms[function.operation] = stage
