"""Checks a module from an untrusted file: all verifiers, and that it holds no code but ours."""

from collections.abc import Mapping
from typing import Any

from mlirc.dialects.control_flow.region_ops import nested_functions
from mlirc.dialects.core.symbols import Int
from mlirc.lowering.files.aten_calls import verify_operator
from mlirc.lowering.files.code import verify_code
from mlirc.lowering.files.packed_weights import verify_packed_weights
from mlirc.lowering.module.forms import ATEN, stage_of
from mlirc.lowering.module.rules import StageError, rules_of
from mlirc.lowering.module.target_attribute import ATTRIBUTE, target_of
from mlirc.lowering.pipeline.pass_manager import functions
from mlirc.lowering.target import TargetError
from mlirc.lowering.verify.plan import PlanError, check_plan
from mlirc.lowering.verify.stage import verify_arguments, verify_stage


def verify_file(module: Any, runs: bool = False) -> dict[str, tuple[Int, ...]]:
    """What has to be at least 0 when a function of the module runs, by its name. Raises StageError; PassError where code cannot be
    made again. Needs an entered context.

    runs   the module is to be run: it may call only such operators as a stranger may
    """
    obligations = {}
    if ATTRIBUTE in module.operation.attributes:
        try:
            target_of(module)
        except TargetError as error:
            raise StageError(
                module.operation, str(error), "leave it out for the machine that reads the file"
            ) from error
    for function in functions(module):
        if stage_of(function) is not None:
            verify_arguments(function)
    if runs:
        verify_packed_weights({function.name.value: function for function in functions(module)})
    for function in functions(module):
        stage = stage_of(function)
        if stage is None:
            continue
        called = [op for one in (function, *nested_functions(function)) for op in one.regions[0].blocks[0].operations]
        for op in called:
            if runs and op.operation.name in ATEN:
                with rules_of(op):
                    verify_operator(op)
        obligations[function.name.value] = verify_stage(function, stage)
        if stage in ("memory", "lowered"):
            verify_plan(function, {})
    if obligations:
        verify_code(module)
    return obligations


def verify_plan(function: Any, sizes: Mapping[str, int]) -> None:
    """Raises StageError where buffers that are in use share memory for these sizes. Says nothing where others are needed."""
    try:
        check_plan(function, sizes)
    except PlanError as error:
        raise StageError(
            function, str(error), "give buffers that are in use at one time memory of their own"
        ) from error
    except KeyError:  # sizes of the arguments, looked at when it runs; or that depend on data
        return
