"""Runs the passes of a captured graph again, as far as the memory plan, and says what each changed, op by op.

The time for that is limited. For passes that did not run, one change is shown for each stage, from the files of the capture.
"""

import time
from collections.abc import Mapping
from typing import Any

from mlirc.lowering.module.op_text import OpText, functions_of
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.report.op_changes import folded_changes, op_changes
from mlirc.report.stage_modules import StageModules

STAGES = ("simplify", "fuse", "plan")
Ops = dict[str, list[OpText]]


def pass_changes(stages: StageModules, passes: Mapping[str, Any], left: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """For each pass its name, stage, seconds, numbers of ops that are new, gone and with other operands, and the lines; and notes."""
    found: list[dict[str, Any]] = []
    notes: list[str] = []
    given = stages.module("import")
    if given is None:
        return found, notes
    module = type(given).parse(given.operation.get_asm(enable_debug_info=True))
    before = functions_of(module)
    left.begin()
    try:
        module.operation.verify()
        for stage in STAGES:
            for step in _steps(str(passes.get(stage, ""))):
                if left.spent:
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
        left.end()
    done = {x["stage"] for x in found[:-1]}
    for stage in STAGES:
        if stage in done and stage != (found[-1]["stage"] if found else ""):
            continue
        there = stages.module(stage)
        if there is not None:
            after = functions_of(there)
            found.append(_change(f"the rest of {stage}", stage, None, before, after))
            before = after
    return found, notes


def _steps(text: str) -> list[str]:
    from mlirc.lowering.pipeline.parser import parse

    return [str(step) for step in parse(text)] if text else []


def _change(step: str, stage: str, seconds: float | None, before: Ops, after: Ops) -> dict[str, Any]:
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
