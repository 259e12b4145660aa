"""A small module that fails in the same way: delta debugging of results, of ops, and of sizes."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mlirc.bisection.edit import (
    Values,
    alone,
    launches_of,
    ops_of,
    results_of,
    returning_operand,
    sizes_of,
    with_results,
    with_size,
    without_ops,
    without_prepare,
)
from mlirc.bisection.trial import Case, Trials, is_valid
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.execution.isolated import Ended, isolated
from mlirc.lowering.pipeline.rewrites import Rewrite

MOST_OPERANDS = 4  # of an op that are looked at
FEW = (1, 2, 3, 4, 5, 8, 16)  # sizes that are tried


def reduced(case: Case, fails: Callable[[Case], bool], trials: Trials) -> Case:
    """The smallest that is found of modules on which the case fails. `fails` tries one."""
    text, inputs = _quietly(lambda: without_prepare(case.text, case.inputs), trials) or (case.text, list(case.inputs))
    start = replace(case, text=text, inputs=tuple(inputs))
    if text != case.text and fails(start):
        case = start
    while True:
        before = (len(case.text), case.text)
        case = with_fewer_results(case, fails, trials)
        case = with_fewer_ops(case, fails, trials)
        case = with_earlier_results(case, fails, trials)
        if (len(case.text), case.text) == before:
            return with_smaller_sizes(case, fails, trials)


def with_fewer_results(case: Case, fails: Callable[[Case], bool], trials: Trials) -> Case:
    for k in reversed(range(results_of(case.text))):
        count = results_of(case.text)
        if count < 2 or k >= count:
            continue
        one = _better(case, lambda k=k, case=case: with_results(case.text, case.inputs, [k]), fails, trials)
        if one is not None:
            return one
    for k in reversed(range(results_of(case.text))):
        count = results_of(case.text)
        if count < 2:
            break
        remaining = [n for n in range(count) if n != k]
        smaller = _better(
            case, lambda remaining=remaining, case=case: with_results(case.text, case.inputs, remaining), fails, trials
        )
        case = smaller or case
    return case


def one_launch(
    case: Case, fails: Callable[[Case], bool], trials: Trials, rewrite: Rewrite | None = None
) -> Case | None:
    """A case of one launch or call of a planned module that fails alone, on the values that it read; None where none does. Those that
    the rewrite may be of are tried first."""
    for k in launches_of(case.text, rewrite):
        found = _better(case, lambda k=k: alone(case.text, case.inputs, k), fails, trials)
        if found is not None:
            return found
    return None


def with_earlier_results(case: Case, fails: Callable[[Case], bool], trials: Trials) -> Case:
    """What a result is made of is returned in place of it, as long as that fails too."""
    result = operand = 0
    while result < results_of(case.text) and operand < MOST_OPERANDS:
        smaller = _better(
            case,
            lambda r=result, o=operand, case=case: returning_operand(case.text, case.inputs, r, o),
            fails,
            trials,
        )
        if smaller is not None:
            case, operand = smaller, 0
        elif operand + 1 < MOST_OPERANDS:
            operand += 1
        else:
            result, operand = result + 1, 0
    return case


def with_fewer_ops(case: Case, fails: Callable[[Case], bool], trials: Trials) -> Case:
    """Chunks of ops go, from the last to the first, in halves, quarters and so on."""
    size = max(1, ops_of(case.text) // 2)
    while True:
        at = ops_of(case.text) - 1
        while at > 0:
            gone = list(range(max(0, at - size), at))
            smaller = _better(case, lambda gone=gone, case=case: _without(case, gone), fails, trials)
            case = smaller or case
            at = min(at - size, ops_of(case.text) - 1)
        if size == 1:
            return case
        size = max(1, size // 2)


def _without(case: Case, gone: list[int]) -> tuple[str, list[Any]]:
    with context():
        values = Values(ir.Module.parse(case.text), case.inputs)
    return without_ops(case.text, case.inputs, values, gone)


def with_smaller_sizes(case: Case, fails: Callable[[Case], bool], trials: Trials) -> Case:
    for old in sizes_of(case.text):
        for new in FEW:
            if new >= old:
                break
            smaller = _better(
                case, lambda new=new, old=old, case=case: with_size(case.text, case.inputs, old, new), fails, trials
            )
            if smaller is not None:
                case = smaller
                break
    return case


def _better(
    case: Case, edit: Callable[[], tuple[str, list[Any]] | None], fails: Callable[[Case], bool], trials: Trials
) -> Case | None:
    """The case with a module that an edit gives, where it verifies and fails as before."""

    def checked() -> tuple[str, list[Any]] | None:
        made = edit()
        if made is None:
            return None
        with context():
            return made if is_valid(ir.Module.parse(made[0])) else None

    made = _quietly(checked, trials)
    if made is None or made[0] == case.text:
        return None
    one = replace(case, text=made[0], inputs=tuple(made[1]))
    return one if fails(one) else None


def _quietly(work: Callable[[], Any], trials: Trials) -> Any:
    """What an edit gives, which may raise, or crash, on IR that it was not made for: then None."""
    found = isolated(lambda tell: work(), trials.seconds)
    return None if isinstance(found, Ended) else found
