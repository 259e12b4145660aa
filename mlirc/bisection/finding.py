"""Bisects a module that fails: finds the pass and the rewrite, makes the module small, and writes the command that shows it."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from mlirc.bisection.edit import ops_of
from mlirc.bisection.reduce import one_launch, reduced
from mlirc.bisection.search import Culprit, find_culprit, makes_code, whole_steps, with_rewrite
from mlirc.bisection.trial import CRASH, ERROR, MACHINE, SLOW, WRONG, Case, Symptom, Trials
from mlirc.lowering.module.counted import counted
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pass_manager import given_by_others
from mlirc.lowering.pipeline.rewrites import Rewrite, print_limits


@dataclass(frozen=True)
class Finding:
    """What a bisection found: the pass and the rewrite that are wrong, and a small module that shows it.

    culprit   on the IR that was given
    rewrite   the rewrite that is wrong, with the user's source line
    case      the small module, the passes that fail on it, and their limits
    symptom   how they do
    given     how many ops the module had before the pass
    left      how many ops the small module has
    """

    culprit: Culprit
    rewrite: Rewrite | None
    case: Case
    symptom: Symptom
    given: int
    left: int


def bisected(case: Case, trials: Trials, told: Callable[[str], None]) -> Finding | None:
    """What is wrong with a case, or None where nothing fails.

    told   is called with a line of progress

    Raises FailsAsGiven, and what the interpreter raises on the module as it is given.
    """
    trials.prepare(case)
    symptom = trials(case, trials.traceback).symptom
    if symptom is None:
        return None
    told(f"{symptom.kind}, by {symptom.where}: {symptom.text}")
    culprit = find_culprit(case, symptom, trials, told)
    small = materialized(culprit, trials)
    given = ops_of(small.text)

    def fails(one: Case) -> bool:
        return culprit.symptom.like(trials(one).symptom)

    if small.steps and takes_launches(small, culprit.symptom, trials):
        small = one_launch(small, fails, trials, culprit.rewrite) or small
    small = reduced(small, fails, trials) if trials.reduces else small
    left = ops_of(small.text)
    told(f"of {counted(given, 'op')} before that pass {left} {'is' if left == 1 else 'are'} left")
    trials.prepare(small)
    rewrite = culprit.rewrite
    # rewrites are numbered anew in the small module, so the wrong one is found again; making code has none
    if small.steps and not (makes_code(small) and culprit.symptom.where == MACHINE):
        again = with_rewrite(replace(small, limits={}), culprit.symptom, trials, lambda line: None)
        if again.rewrite is not None:
            small = again.case
    if rewrite is None:
        rewrite = only_rewrite(small, trials)
    return Finding(culprit, rewrite, small, trials(small).symptom or culprit.symptom, given, left)


def takes_launches(case: Case, symptom: Symptom, trials: Trials) -> bool:
    """Whether the pass makes code of each launch by itself, so that one alone may show the failure."""
    if makes_code(case):
        return symptom.where == MACHINE
    return trials.reduces and parse(case.steps[-1])[0].name == "lower-triton"


def only_rewrite(case: Case, trials: Trials) -> Rewrite | None:
    """The one rewrite that the last pass asks for on a module that was made small."""
    if not case.steps:
        return None
    name = parse(case.steps[-1])[0].name
    asked = [r for r in trials(case).asked or trials.asked(case) if r.pass_name == name]
    return asked[0] if len(asked) == 1 else None


def materialized(culprit: Culprit, trials: Trials) -> Case:
    """The culprit alone on the IR that it is given, where it fails on that too. Rewrites are not limited: they are found again."""
    case = culprit.case
    whole = replace(case, limits={})
    if not case.steps:
        return whole
    try:
        text = trials.run(replace(whole, steps=case.steps[:-1]))
    except RuntimeError:
        return whole
    alone = replace(whole, text=text, steps=case.steps[-1:])
    return alone if culprit.symptom.like(trials(alone).symptom) else whole


def source_of(step: str) -> str:
    """The source of a pass that is not mlirc's, "my_pass.py:12"; else ""."""
    cls: Any = given_by_others(parse(step)[0].name) if step else None
    if cls is None:
        return ""
    try:
        return f"{Path(inspect.getsourcefile(cls.run) or '').name}:{inspect.getsourcelines(cls.run)[1]}"
    except (OSError, TypeError):
        return cls.__module__


def command_of(found: Finding, file: str, inputs: str | None, imports: tuple[str, ...], trials: Trials) -> str:
    """The command that shows the failure."""
    words = ["mlirc"]
    case = found.case
    shown = ",".join(whole_steps(case))
    if trials.check is not None or found.symptom.kind == ERROR:
        words += ["opt", file, "-p", quoted(shown)]
    else:
        words += ["run", file, "-p", quoted(shown)]
    words += [w for name in imports for w in ("--import", name)]
    words += [w for text in print_limits(case.limits) for w in ("--rewrites", text)]
    if words[1] == "opt":
        tail = ["-o", "after.mlir"] if trials.check is not None else ["--verify-each", "--emit", "none"]
        words += tail
        if trials.check is not None:
            words += [
                "&&",
                trials.check.replace("{}", "after.mlir") if "{}" in trials.check else f"{trials.check} after.mlir",
            ]
        return " ".join(words)
    words += ["--inputs", inputs] if inputs else ["--random", "0"]
    if found.symptom.kind == SLOW:
        return " ".join([*words, "--repeat", "100"])
    if found.symptom.kind in (WRONG, CRASH):  # it names the pass, where the process ends too
        words.append("--check-each-pass")
    if found.symptom.where != MACHINE and trials.triton is None:
        words += ["--target", "interpreter"]
    return " ".join(words)


def quoted(text: str) -> str:
    return f'"{text}"'
