"""Checks a module that anybody may have written: all that the verifiers know, and that no code but ours is in it."""

from typing import Any

from mlirc.dialects.core.symbols import Int
from mlirc.lowering.module.forms import ATEN, stage_of
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.lowering.verify.aten_calls import verify_operator
from mlirc.lowering.verify.code import verify_code
from mlirc.lowering.verify.stage import verify_stage


def verify_file(module: Any, runs: bool = False) -> dict[str, tuple[Int, ...]]:
    """What has to be at least 0 when a function of the module runs, by its name. Raises StageError; PassError where code cannot be
    made again. Needs an entered context.

    runs   the module is to be run: it may call only such operators as a stranger may
    """
    duties = {}
    for function in functions(module):
        stage = stage_of(function)
        if stage is None:
            continue
        for op in function.regions[0].blocks[0].operations:
            if runs and op.operation.name in ATEN:
                verify_operator(op)
        duties[function.name.value] = verify_stage(function, stage)
    if duties:
        verify_code(module)
    return duties
