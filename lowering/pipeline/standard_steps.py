"""A standard pipeline as a list of passes with their stages: started in the middle, with passes inserted or left out.

A place in it is named by an anchor: a stage ("fuse"), a pass that runs once ("to-kernels"), or one of several runs ("cse#2").
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import attribute_value
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.module.forms import STAGES as FORMS
from mlirc.lowering.module.forms import stage_of
from mlirc.lowering.module.nearest import nearest_of
from mlirc.lowering.pipeline.parser import PipelineError, Step, parse
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.lowering.pipeline.pipelines import PIPELINES, STAGES, pipeline

STAGE = "mlirc.stage"
"""An attribute of a module in a file: the last stage of a standard pipeline that it has been through in full."""

NEEDED = {
    "decompose": "composites become kernels by it alone",
    "select-attention": "attention becomes a kernel or a call by it alone",
    "scalars-to-device": "kernels on a GPU read numbers that lie there",
    "to-kernels": "every graph goes through the kernel form",
    "plan-memory": "every graph goes through the memory form",
    "lower-triton": "kernels on a GPU become code by it alone",
    "lower-kernels": "kernels become code by it alone",
}
"""Passes of standard pipelines that cannot be left out, and why."""

Insertion = tuple[str, str, str]
"""("after" or "before", an anchor, passes as text)."""


@dataclass(frozen=True)
class StandardStep:
    """One pass of a standard pipeline, and the stage that it belongs to."""

    stage: str
    step: Step


def standard_steps(name: str) -> list[StandardStep]:
    """Raises ValueError that says which pipelines there are."""
    pipeline(name)
    return [StandardStep(stage, step) for stage in STAGES for step in parse(PIPELINES[name][stage])]


def text_of(steps: Sequence[StandardStep]) -> str:
    return ",".join(str(s.step) for s in steps)


def steps_through(steps: Sequence[StandardStep], anchor: str) -> int:
    """The number of steps up to and including the anchor's. Raises PipelineError for an anchor that is not there, or that runs several
    times and has no number."""
    if anchor in STAGES:
        return max((k + 1 for k, s in enumerate(steps) if STAGES.index(s.stage) <= STAGES.index(anchor)), default=0)
    name, _, number = anchor.partition("#")
    runs = [k for k, s in enumerate(steps) if s.step.name == name]
    if not runs:
        known = dict.fromkeys([*STAGES, *(s.step.name for s in steps)])
        raise PipelineError(f"no stage or pass '{anchor}' in this pipeline{nearest_of(name, known, 'it has')}")
    if number and (not re.fullmatch(r"\d{1,4}", number) or not 0 < int(number) <= len(runs)):
        raise PipelineError(f"'{anchor}': '{name}' runs {len(runs)} times in this pipeline; number them from 1")
    if not number and len(runs) > 1:
        raise PipelineError(
            f"'{name}' runs {len(runs)} times in this pipeline; say which: {name}#1 to {name}#{len(runs)}"
        )
    return runs[int(number or 1) - 1] + 1


def inserted(steps: Sequence[StandardStep], side: str, anchor: str, text: str) -> list[StandardStep]:
    """The steps with the passes of `text` before or after the anchor, in its stage. Raises PipelineError."""
    place = steps_through(steps, anchor)
    if side == "before":
        place = next((k for k, s in enumerate(steps) if s.stage == anchor), place - 1)
        stage = steps[place].stage
    else:
        stage = anchor if anchor in STAGES else steps[place - 1].stage
    return [*steps[:place], *(StandardStep(stage, step) for step in parse(text)), *steps[place:]]


def without(
    steps: Sequence[StandardStep], omitted: Collection[str], given: Sequence[StandardStep]
) -> list[StandardStep]:
    """The steps without all runs of the `omitted` passes. A step that a user inserted stays, whatever its name.

    given   the pipeline before anything was inserted

    Raises PipelineError for a pass that `given` does not have, and for one of NEEDED.
    """
    names = dict.fromkeys(s.step.name for s in given)
    for name in omitted:
        if name in NEEDED:
            raise PipelineError(f"'{name}' cannot be left out: {NEEDED[name]}")
        if name not in names:
            raise PipelineError(f"no pass '{name}' in this pipeline{nearest_of(name, names, 'it has')}")
    dropped = {id(s) for s in given if s.step.name in omitted}
    return [s for s in steps if id(s) not in dropped]


def changed(stages: Mapping[str, str], insertions: Iterable[Insertion], omitted: Collection[str]) -> dict[str, str]:
    """Stages, as texts by name, with passes inserted and others left out. An insertion may name what an earlier one inserted, and
    what is left out. Raises PipelineError."""
    given = [StandardStep(stage, step) for stage, text in stages.items() for step in parse(text)]
    steps = given
    for side, anchor, text in insertions:
        steps = inserted(steps, side, anchor, text)
    steps = without(steps, omitted, given)
    return {stage: text_of([s for s in steps if s.stage == stage]) for stage in stages}


def remaining_steps(steps: Sequence[StandardStep], module: Any) -> list[StandardStep]:
    """The steps that a module has not been through yet, by the stage that it records and by its form. Needs an entered context."""
    done = stage_of_module(module)
    start = steps_through(steps, done) if done else 0
    form = form_of_module(module)
    made_by = {"kernel": "to-kernels", "memory": "plan-memory"}.get(form or "")
    if made_by is not None:
        start = max(start, *(k + 1 for k, s in enumerate(steps) if s.step.name == made_by), 0)
    return [] if form == "lowered" else list(steps[start:])


def form_of_module(module: Any) -> str | None:
    """The form of a module's functions, the last of several; None where none of them has an op of ours.

    A function of views alone is in any form, so the other functions decide.
    """
    found = [form for form in map(stage_of, functions(module)) if form]
    return max(found, key=FORMS.index) if found else None


def stage_of_module(module: Any) -> str | None:
    """What a module says of the stages that it has been through. Raises PipelineError for what is no stage."""
    if STAGE not in module.operation.attributes:
        return None
    given = module.operation.attributes[STAGE]
    stage = attribute_value(given) if isinstance(given, ir.StringAttr) else str(given)
    if stage not in STAGES:
        raise PipelineError(f"the module's {STAGE} is '{str(stage)[:50]}'; there are {', '.join(STAGES)}")
    return stage


def set_stage(module: Any, stage: str | None) -> None:
    """Says in the module which stage it has been through; None: it says nothing. Needs an entered context."""
    if stage is not None:
        module.operation.attributes[STAGE] = ir.StringAttr.get(stage)
    elif STAGE in module.operation.attributes:
        del module.operation.attributes[STAGE]
