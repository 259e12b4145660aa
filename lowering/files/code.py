"""Checks the code in a lowered module from a file: it must equal what the lowering passes generate from the bodies.

A run holds its body, which is verified; the functions that it calls, and the text of kernels for GPUs, may be anything. They are
made again from the bodies and compared, so that no code of a stranger's is ever run.
"""

import re
from typing import Any

from mlirc.dialects.control_flow.region_ops import nested_functions
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.dialect import create
from mlirc.lowering.module.forms import stage_of
from mlirc.lowering.module.rules import StageError, expect

MADE = ("kernel", "symbols", "messages")


def verify_code(module: Any) -> None:
    """Raises StageError for a function or kernel that is not ours. Needs an entered context."""
    ours = [op for op in module.body.operations if is_graph(op)]
    others = [op for op in module.body.operations if not is_graph(op)]
    if not runs_code(module):
        for op in others:
            expect(False, op, "code beside a graph that runs none", "leave it out")
        return
    wanted = [text_of(op) for op in module.body.operations]
    made = again(module)
    if wanted == made:
        return
    for op in others:
        if text_of(op) not in made:
            raise StageError(
                op,
                "not the code that lowering makes for the module's target of the bodies of its runs",
                "give the memory form instead",
            )
    raise StageError(ours[0], "runs other code than lowering makes of its bodies", "give the memory form instead")


def runs_code(module: Any) -> bool:
    """Whether its graphs call functions that lowering writes."""
    return any(stage_of(f) == "lowered" or has_code(f) for f in module.body.operations if is_graph(f))


def is_graph(op: Any) -> bool:
    named = op.operation.name == "func.func" and bool(op.regions[0].blocks)
    return named and not op.name.value.startswith("kernel_")


def has_code(function: Any) -> bool:
    everywhere = (function, *nested_functions(function))
    return any("kernel" in op.attributes for one in everywhere for op in one.regions[0].blocks[0].operations)


def text_of(op: Any) -> str:
    return re.sub(r"\s+", " ", op.operation.get_asm(use_local_scope=True))


def again(module: Any) -> list[str]:
    """The texts of a module's functions, lowered again from its bodies, for its target."""
    from mlirc.lowering.pipeline.pass_manager import run_pipeline

    copied = ir.Module.parse(module.operation.get_asm(enable_debug_info=False))
    gpu = False
    for op in list(copied.body.operations):
        if not is_graph(op):
            gpu |= op.operation.name == "mlirc.triton"
            op.operation.erase()
            continue
        for run in [run for one in (op, *nested_functions(op)) for run in one.regions[0].blocks[0].operations]:
            if run.operation.name == "mlircx.run":
                raised(run)
            elif run.operation.name == "mlircx.call":
                for name in MADE:
                    if name in run.attributes:
                        del run.attributes[name]
    run_pipeline(copied, "lower-triton,lower-kernels" if gpu else "lower-kernels", verify=False)
    return [text_of(op) for op in copied.body.operations]


def raised(run: Any) -> None:
    """The run as a launch."""
    attributes = {name: run.attributes[name] for name in run.attributes if name not in MADE}
    with ir.InsertionPoint(run), run.location:
        made = create("launch", list(run.operands), [], attributes, regions=1)
    run.regions[0].blocks[0].append_to(made.regions[0])
    run.operation.erase()
