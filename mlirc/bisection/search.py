"""The shortest pipeline that shows a failure, the pass, and the rewrite, each by bisection."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mlirc.bisection.edit import ops_of
from mlirc.bisection.trial import DOWN, MACHINE, Case, Symptom, Tried
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.lowering.module.counted import counted
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pass_manager import find_pass
from mlirc.lowering.pipeline.rewrites import Rewrite
from mlirc.lowering.pipeline.standard_steps import form_of_module

Try = Callable[[Case], Tried]
Item = TypeVar("Item")
ENDLESS, PER_OP = 1024, 16  # a pass that asks for so many rewrites, and for each op so many, runs in a loop


@dataclass(frozen=True)
class Culprit:
    """What bisection finds.

    case      the shortest pipeline that fails. The last pass is the culprit; it takes no more rewrites than show the failure
    symptom   how the case fails
    rewrite   the last rewrite that the culprit takes; None where rewrites do not decide whether it fails
    of        how many rewrites the culprit asks for; 0 where that is not known, as of a pass that asks without end
    """

    case: Case
    symptom: Symptom
    rewrite: Rewrite | None
    of: int

    @property
    def step(self) -> str:
        return self.case.steps[-1] if self.case.steps else ""


class FailsAsGiven(Exception):
    """The module fails in the same way before any pass."""


def find_culprit(case: Case, symptom: Symptom, attempt: Try, told: Callable[[str], None]) -> Culprit:
    """Finds the pass, and then the rewrite, that makes `case` fail with `symptom`. `attempt` runs a case. Raises FailsAsGiven."""

    def fails(one: Case) -> bool:
        return symptom.like(attempt(one).symptom)

    if symptom.where == MACHINE and not case.completes:
        # an earlier pass may make the code wrong: each prefix of the pipeline is lowered to machine code, and executed
        completed = replace(case, completes=True)
        if fails(completed):
            case = completed
    count = len(case.steps)
    count = first_that(0, count, lambda n: fails(case.with_steps(case.steps[:n])))
    case = case.with_steps(case.steps[:count])
    if not case.steps:  # no pass of this pipeline is to blame, but one of those that lower any module
        case = replace(case.with_steps(tuple(whole_steps(case))), completes=False)
        count = len(case.steps)
        if not count:
            raise FailsAsGiven(f"fails before any pass runs: {symptom.text}")
    told(
        f"the first {count} {'pass shows' if count == 1 else 'passes show'} it, so pass {count}, '{case.steps[-1]}', does it"
    )
    *before, last = case.steps
    before = smallest(before, lambda remaining: fails(case.with_steps([*remaining, last])))
    case = case.with_steps([*before, last])
    if makes_code(case) and symptom.where == MACHINE:  # its rewrites cannot be left out: machine code needs them all
        return Culprit(case, symptom, None, 0)
    told(f"it needs {counted(len(before), 'pass', 'passes')} before it{': ' if before else ''}{','.join(before)}")
    return with_rewrite(case, symptom, attempt, told)


def with_rewrite(case: Case, symptom: Symptom, attempt: Try, told: Callable[[str], None]) -> Culprit:
    """The last pass of a case limited to its first rewrites, up to the one that makes it fail."""
    name = parse(case.steps[-1])[0].name

    def limited(number: int) -> Case:
        return replace(case, limits={**case.limits, name: ((0, number),) if number >= 0 else ()})

    none = attempt(limited(-1))
    if symptom.like(none.symptom):
        told(f"'{name}' does it whatever rewrites it may take")
        return Culprit(case, symptom, None, len(none.asked))
    count = len([r for r in attempt(case).asked if r.pass_name == name])
    if not count and symptom.hangs:
        endless = endless_rewrite(limited, attempt, symptom, name)
        if endless is not None:  # with a limit the pass ends; the fault is that it does not stop by itself
            told(f"it asks for the same rewrites without end, from {endless} on")
            return Culprit(case, symptom, endless, 0)
    count = count or crashing_count(limited, attempt, symptom)
    last = first_that(0, count - 1, lambda n: symptom.like(attempt(limited(n)).symptom))
    tried = attempt(limited(last))
    if not symptom.like(tried.symptom):
        return Culprit(case, symptom, None, count)
    asked = {r.number: r for r in tried.asked if r.pass_name == name}
    found = asked.get(last) or Rewrite(name, last, "", True)
    if not found.subject:  # it crashed before it told: a run with one rewrite fewer names this one
        less = {r.number: r for r in attempt(limited(last - 1)).asked if r.pass_name == name}
        found = less.get(last) or found
    told(f"of its rewrites the first {last + 1} show it: {found}")
    return Culprit(limited(last), tried.symptom or symptom, replace(found, allowed=True), count)


def makes_code(case: Case) -> bool:
    return parse(case.steps[-1])[0].name == "lower-kernels"


def whole_steps(case: Case) -> list[str]:
    """The passes of a case, and behind them those that lower its module to machine code, where the case asks for that."""
    if not case.completes:
        return list(case.steps)
    with context():
        gives = [g for s in case.steps if (g := getattr(find_pass(parse(s)[0].name), "gives", None))]
        module = ir.Module.parse(case.text)
        form = gives[-1] if gives else form_of_module(module) or "graph"
    return [*case.steps, *(str(step) for step in parse(DOWN.get(form, "")))]


def crashing_count(limited: Callable[[int], Case], attempt: Try, symptom: Symptom) -> int:
    """A number of rewrites that shows a failure which leaves no list of rewrites, as a crash does: a power of two."""
    count = 1
    while count < 1 << 20 and not symptom.like(attempt(limited(count - 1)).symptom):
        count *= 2
    return count


def endless_rewrite(limited: Callable[[int], Case], attempt: Try, symptom: Symptom, name: str) -> Rewrite | None:
    """The first of the few rewrites that a pass takes again and again. None where it hangs in another way."""
    most = max(ENDLESS, PER_OP * ops_of(limited(0).text))
    count, tried = 1, Tried(None)
    while count < 2 * most:
        tried = attempt(limited(count - 1))
        if symptom.like(tried.symptom):
            return None
        count *= 2
    asked = [r for r in tried.asked if r.pass_name == name and r.allowed]
    tail = {r.subject for r in asked[len(asked) // 2 :]}
    if len(asked) < most or len(tail) * PER_OP > len(asked):
        return None
    start = len(asked)
    while start and asked[start - 1].subject in tail:
        start -= 1
    return asked[start]


def first_that(low: int, high: int, fails: Callable[[int], bool]) -> int:
    """The first number from `low` to `high` that fails. `high` fails, and so do all numbers after the first."""
    while low < high:
        middle = (low + high) // 2
        if fails(middle):
            high = middle
        else:
            low = middle + 1
    return high


def smallest(items: Sequence[Item], fails: Callable[[list[Item]], bool]) -> list[Item]:
    """A part of the items, in order, that still fails, and of which none can be left out (delta debugging)."""
    remaining, size = list(items), max(1, len(items))
    while remaining:
        start, shrunk = 0, False
        while start < len(remaining):
            rest = remaining[:start] + remaining[start + size :]
            if fails(rest):
                remaining, shrunk = rest, True
            else:
                start += size
        if size == 1 and not shrunk:
            break
        size = max(1, size // 2)
    return remaining
