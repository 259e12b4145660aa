"""Describes the result of a bisection in sentences."""

from collections.abc import Iterator

from mlirc.bisection.finding import Finding, source_of
from mlirc.bisection.trial import MACHINE, SLOW, Case
from mlirc.lowering.module.counted import counted

KINDS = {
    "wrong answer": "The answer is wrong",
    "crash": "It crashes",
    "error": "A pass fails",
    "slow": "A call is slow",
    "check": "The check fails",
}


def told_of(found: Finding, given: Case) -> Iterator[str]:
    """Lines: what fails, which pass, which rewrite."""
    symptom, culprit = found.culprit.symptom, found.culprit
    yield f"{'It hangs' if symptom.hangs else KINDS[symptom.kind]}: {symptom.text}"
    if not culprit.step:
        yield "No pass does it: the passes that lead to machine code fail by themselves"
    else:
        came = source_of(culprit.step)
        of = f", of {came}" if came else ""
        others = len(culprit.case.steps) - 1
        yield f"The pass is '{culprit.step}'{of}, with {others} of the other {counted(len(given.steps) - 1, 'pass', 'passes')} before it"
    if found.rewrite is not None:
        count = f" of {culprit.of}" if culprit.rewrite is not None and culprit.of else ""
        yield f"The rewrite is number {found.rewrite.number}{count}: {found.rewrite.subject}"
    elif culprit.step:
        yield "It does not ask before its rewrites, or they do not matter: it is the pass as a whole"
    if symptom.where == MACHINE and symptom.kind != SLOW:
        yield "What the passes leave is right, interpreted; its machine code is not"
