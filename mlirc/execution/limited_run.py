"""Runs passes with some of their rewrites, which are numbered (lowering/pipeline/rewrites.py)."""

from collections.abc import Callable
from typing import Any

from mlirc.execution.named_crash import running
from mlirc.lowering.pipeline.fusion_log import FusionLog
from mlirc.lowering.pipeline.ledger import Ledger
from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pass_manager import PassError, PipelineRun, find_pass, run_pipeline
from mlirc.lowering.pipeline.rewrites import Rewrites, check_names


def limited_run(
    module: Any,
    passes: str,
    rewrites: Rewrites | None,
    after_pass: Callable[[str, Any], None] | None = None,
    verify: bool = True,
    fusion: FusionLog | None = None,
) -> PipelineRun:
    """Runs passes, of whose rewrites only those happen that `rewrites` allows; all where it is None. `fusion` has records of
    fusion afterwards.

    A limited pass may leave a module that is partly of one form and partly of another, which no form's verifier accepts. Such a module is verified
    by MLIR alone.
    """
    record = PipelineRun(ledger=Ledger(rewrites=rewrites, fusion=fusion))
    partial = False
    if rewrites is not None:
        names = [step.name for step in parse(passes)]
        check_names(rewrites.limits, names)
        partial = any(getattr(find_pass(name), "gives", None) for name in rewrites.limits)
    steps = parse(passes)

    def begin() -> None:
        done = len(record.passes)
        running(f"pass '{steps[done].name}'" if done < len(steps) else "verification")

    def next_pass(step: str, module: Any) -> None:
        if after_pass is not None:
            after_pass(step, module)
        begin()

    begin()
    try:
        run_pipeline(module, passes, next_pass, record, verify=verify and not partial)
    except SystemExit as error:  # it would end the command without a word
        step = steps[len(record.passes)]
        raise PassError(f"pass '{step.name}' failed: SystemExit: {error}", str(step), str(module)) from error
    running("")
    if fusion is not None:
        fusion.check_plan()
    return record
