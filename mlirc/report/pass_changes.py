"""Runs the passes of a captured graph again, from its imported module to its memory plan, and compares the ops before and after each.

The time for that is limited. From the pass on that time or an error stops, one change is shown for the rest of each stage, from the
modules that the capture kept.
"""

import time
from collections.abc import Mapping
from typing import Any, Protocol

from mlirc.lowering.module.op_text import OpText, functions_of
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.report.op_changes import folded_changes, op_changes
from mlirc.report.stage_modules import StageModules

STAGES = ("simplify", "fuse", "plan")
Ops = dict[str, list[OpText]]


class TimeLimit(Protocol):
    """The time of `begin` to `end` counts (report_data.Budget)."""

    def begin(self) -> None: ...
    def end(self) -> None: ...
    @property
    def spent(self) -> bool: ...


def pass_changes(
    stages: StageModules, passes: Mapping[str, Any], limit: TimeLimit
) -> tuple[list[dict[str, Any]], list[str]]:
    """A change for each pass, in order, and notes on what is missing. `passes` has the text of each stage's passes.

    A change has the pass's name, stage and seconds; `counts`, the numbers of all ops afterwards, of those that are new, gone, and with
    other operands; and `lines`, each with its sign (op_changes.py).
    """
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    given = stages.module("import")
    if given is None:
        return found, notes
    module = type(given).parse(given.operation.get_asm(enable_debug_info=True))
    before = functions_of(module)
    limit.begin()
    try:
        module.operation.verify()
        for stage in STAGES:
            for step in _steps(str(passes.get(stage, ""))):
                if limit.spent:
                    raise TimeoutError
                started = time.perf_counter()
                run_pipeline(module, step, verify=False)
                seconds = time.perf_counter() - started
                after = functions_of(module)
                found.append(_change(step, stage, seconds, before, after))
                before = after
    except TimeoutError:
        notes.append(
            "passes: after the last one that is shown, the time for running them again was over; stages follow"
        )
    except Exception as error:  # a pass of the user's, which is not here, say
        notes.append(f"passes: {' '.join(str(error).split())[:400]}")
    else:
        return found, notes
    finally:
        limit.end()
    stopped_in = found[-1]["stage"] if found else STAGES[0]
    for stage in STAGES[STAGES.index(stopped_in) :]:
        kept = stages.module(stage)
        if kept is not None:
            after = functions_of(kept)
            found.append(_change(f"the rest of {stage}", stage, None, before, after))
            before = after
    return found, notes


def _steps(text: str) -> list[str]:
    from mlirc.lowering.pipeline.parser import parse

    return [str(step) for step in parse(text)] if text else []


def _change(step: str, stage: str, seconds: float | None, before: Ops, after: Ops) -> dict[str, Any]:
    """A change as `pass_changes` gives it; functions that stayed as they are have no lines."""
    lines: list[tuple[str, str]] = []
    for name in dict.fromkeys([*before, *after]):
        if before.get(name) == after.get(name):
            continue
        found = op_changes(before.get(name, []), after.get(name, []))
        if any(sign != " " for sign, _ in found):
            lines += folded_changes(found)
    signs = [sign for sign, _ in lines]
    counts = [sum(len(ops) for ops in after.values()), signs.count("+"), signs.count("-"), signs.count("~")]
    return {"name": step, "stage": stage, "seconds": seconds, "counts": counts, "lines": lines}
