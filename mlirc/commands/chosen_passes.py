"""Which passes a command line chooses: -p, --pipeline, --start-after, --stop-after, --passes-after, --passes-before, --omit,
and what --import adds."""

import importlib
import runpy
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from mlirc.commands.failure import Failure, within
from mlirc.execution.named_crash import running

import_option = click.option(
    "--import",
    "extra",
    multiple=True,
    metavar="FILE.py|MODULE",
    help="First import a module, or run a Python file: more passes and ops.",
)


IMPORTED = "mlirc.imported"  # in the meta of Click's context: what --import named


def import_extra(name: str) -> None:
    """Import what --import names: a module, or a Python file, which is run. Raises Failure for whatever it raises."""
    if (given := click.get_current_context(silent=True)) is not None:
        given.meta.setdefault(IMPORTED, []).append(name)
    try:
        running(f"--import {name}")
        with within(f"--import {name}"):
            if name.endswith(".py"):
                runpy.run_path(name)
            else:
                importlib.import_module(name)
    except OSError as error:
        of_the_file = error.filename is not None and Path(error.filename) == Path(name).absolute()
        raise Failure(f"--import {name}: {error.strerror if of_the_file else error}", 2) from error
    except ImportError as error:
        raise Failure(f"--import {name}: {error}", 2) from error
    except (Exception, SystemExit) as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        raise Failure(f"--import {name}: {text}{python_line(name, error)}", 2) from error


def python_line(name: str, error: BaseException) -> str:
    """ ", at my_pass.py:13": the innermost line that the error came through of the file or module of that name, or ""."""
    lines = [
        (frame.f_code.co_filename, line)
        for frame, line in traceback.walk_tb(error.__traceback__)
        if name in (frame.f_code.co_filename, frame.f_globals.get("__name__"))
    ]
    return f", at {Path(lines[-1][0]).name}:{lines[-1][1]}" if lines else ""


def without_passes() -> str:
    """ "; --import ops.py registered none: ...": the first file that --import has run and that registered no pass, or ""."""
    from mlirc.lowering.pipeline.pass_manager import passes

    given = click.get_current_context(silent=True)
    files = {cls.run.__code__.co_filename for cls in passes().values() if hasattr(cls.run, "__code__")}
    for name in [] if given is None else given.meta.get(IMPORTED, ()):
        if name.endswith(".py") and name not in files:
            return f"; --import {name} registered none: decorate it with mlirc.passes.register"
    return ""


def pipeline_changes(command: Any) -> Any:
    """Give a command --passes-after, --passes-before and --omit: its argument `changes` has pairs ("after" or "before", ANCHOR=PASSES),
    ("omit", PASSES)."""

    def keep(context: click.Context, option: click.Parameter, given: Sequence[str]) -> None:
        change = str(option.name).removeprefix("passes_")
        context.params.setdefault("changes", []).extend((change, text) for text in given)

    places = [
        (f"--passes-{side}", "ANCHOR=PASSES", f"insert passes {side} a stage or pass") for side in ("before", "after")
    ]
    for flag, metavar, does in [("--omit", "PASSES", "leave passes out, each in all of its runs"), *places]:
        example = {"--passes-before": ": plan=my-pass", "--passes-after": ": fuse=my-pass"}.get(flag, "")
        command = click.option(
            flag,
            multiple=True,
            metavar=metavar,
            expose_value=False,
            callback=keep,
            help=f"With --pipeline: {does}{example}.",
        )(command)
    return command


REWRITES = "Let PASS take these of its rewrites, numbered from 0, and no others: fuse-elementwise=0-41,50,60- or none."


def rewrites_of(texts: Sequence[str]) -> Any:
    """What passes are to ask, of PASS=RANGES. Raises Failure."""
    from mlirc.lowering.pipeline.parser import PipelineError
    from mlirc.lowering.pipeline.rewrites import Rewrites, parse_limits

    try:
        return Rewrites(parse_limits(texts))
    except PipelineError as error:
        raise Failure(f"--rewrites: {error}", 2) from error


def plan_of(file: str) -> Any:
    """The fusion plan in a file. Raises Failure."""
    from mlirc.lowering.pipeline.fusion_plan import FusionPlanError, read_plan

    try:
        return read_plan(file)
    except FusionPlanError as error:
        raise Failure(str(error)) from error


@dataclass(frozen=True)
class Chosen:
    """The passes that were asked for. Those of a standard pipeline depend on the module that they are for.

    text          of -p
    pipeline      the name of a standard one
    start, stop   anchors in it (standard_steps.py): what is passed over, and the stage that is the last
    changes       ("after" or "before", ANCHOR=PASSES) and ("omit", PASSES)
    """

    text: str | None
    pipeline: str | None = None
    start: str | None = None
    stop: str | None = None
    changes: Sequence[tuple[str, str]] = ()

    def __post_init__(self) -> None:
        """Raises Failure, before any file is read, for what is wrong with any module."""
        if (self.text is None) == (self.pipeline is None):
            raise Failure("say which passes to run: either -p PASSES or --pipeline NAME", 2)
        for option, given in (
            ("--stop-after", self.stop),
            ("--start-after", self.start),
            *(("--omit" if change == "omit" else f"--passes-{change}", True) for change, _ in self.changes),
        ):
            if given and self.pipeline is None:
                raise Failure(f"{option} goes with --pipeline", 2)
        self._checked(lambda: self._known(self.text if self.text is not None else self.whole()))

    def whole(self) -> str:
        """All passes of the standard pipeline, with what is inserted, from its start to where it is to stop."""
        from mlirc.lowering.pipeline.standard_steps import text_of

        return text_of(self._steps()[0])

    def of(self, module: Any) -> str:
        """The passes to run on a module: of a standard pipeline those that it has not been through. Raises Failure. Needs an
        entered context."""
        if self.text is not None:
            return self.text
        from mlirc.lowering.pipeline.parser import PipelineError
        from mlirc.lowering.pipeline.standard_steps import stage_of_module

        try:
            stage_of_module(module)
        except PipelineError as error:  # of the file, not of the command line
            raise Failure(str(error)) from error
        return self._checked(lambda: self._rest(module))

    def _rest(self, module: Any) -> str:
        """The passes of the standard pipeline that are left for a module. Raises PipelineError where an insertion is not among them."""
        from mlirc.lowering.pipeline.parser import PipelineError
        from mlirc.lowering.pipeline.standard_steps import form_of_module, remaining_steps, steps_through, text_of

        steps, added = self._steps()
        rest = steps[steps_through(steps, self.start) :] if self.start else remaining_steps(steps, module)
        for place, extra in added:
            if any(not any(step is other for other in rest) for step in extra):
                form = form_of_module(module)
                raise PipelineError(
                    f"{place}: the module is past it, in the {form} form; --start-after says where to go on"
                )
        return text_of(rest)

    def _steps(self) -> tuple[list[Any], list[tuple[str, list[Any]]]]:
        """The steps of the standard pipeline, with what is inserted, up to --stop-after; and for each option that inserts, those that it inserted.

        Raises PipelineError and ValueError, also where an insertion would come after the end.
        """
        from mlirc.lowering.pipeline.parser import PipelineError
        from mlirc.lowering.pipeline.pipelines import STAGES, pipeline
        from mlirc.lowering.pipeline.standard_steps import inserted, standard_steps, steps_through, without

        assert self.pipeline is not None
        pipeline(self.pipeline, self.stop or STAGES[-1])
        original = standard_steps(self.pipeline)
        steps, added = original, []
        for side, given in self.changes:
            if side == "omit":
                continue
            anchor, equals, text = given.partition("=")
            if not equals or not text.strip():
                raise PipelineError(f"--passes-{side} '{given}': write ANCHOR=PASSES, as fuse=my-pass")
            before = steps
            steps = inserted(steps, side, anchor.strip(), text)
            added.append((f"--passes-{side} {anchor}", [s for s in steps if not any(s is other for other in before)]))
        omitted = [name.strip() for change, names in self.changes if change == "omit" for name in names.split(",")]
        if self.start and steps_through(steps, self.start) > steps_through(steps, self.stop or STAGES[-1]):
            raise PipelineError(f"--start-after {self.start} is after --stop-after {self.stop}: nothing is left to run")
        steps = steps[: steps_through(steps, self.stop or STAGES[-1])]
        for place, extra in added:
            if any(not any(s is other for other in steps) for s in extra):
                raise PipelineError(f"{place}: comes after --stop-after {self.stop}")
        return without(steps, omitted, original), added

    def _known(self, text: str) -> str:
        """The text, once every pass in it is known with its options. Raises PipelineError."""
        from mlirc.lowering.pipeline.pass_manager import runners

        runners(text)
        return text

    def _checked(self, work: Any) -> str:
        """What `work` returns; its PipelineError or ValueError is a Failure of the command line."""
        from mlirc.lowering.pipeline.parser import PipelineError

        try:
            return work()
        except (PipelineError, ValueError) as error:
            hint = without_passes() if str(error).startswith("no pass '") else ""
            raise Failure(f"{error}{hint}", 2) from error
