"""The four forms of a function (graph, kernel, memory, lowered), and the ops that each may hold.

The graph form is the widest: it may hold kernels already. In the kernel form nothing else computes elements.
"""

from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS, nested_functions
from mlirc.dialects.core.dialect import OPS
from mlirc.dialects.core.tensor_types import info_of
from mlirc.dialects.ops.nn.flex_attention import FLEX as FLEX_NAMES
from mlirc.lowering.module.source_lines import source_line

STAGES = ("graph", "kernel", "memory", "lowered")
MADE_BY = {"kernel": "to-kernels", "memory": "plan-memory", "lowered": "lower-kernels"}

ATEN = {"mlircx.aten", "mlircx.aten_effect"}
NUMBERS = {"mlirc.constant", "mlirc.size"}
GENERATED = (  # calls that kernels of our own are written for
    "mlirc.attention",
    "mlirc.attention_backward",
    "mlirc.convolution",
    "mlirc.convolution_add",
    "mlirc.convolution_weight_gradient",
    "mlirc.depthwise_weight_gradient",
    "mlirc.transposed_convolution",
)
FLEX = tuple(f"mlircx.{name}" for name in FLEX_NAMES)  # attention with a body: operands of several types
MATMULS = ("mlirc.matmul", "mlirc.addmm", "mlirc.addmm_gelu")
LIBRARY = {*MATMULS, *GENERATED, *FLEX}
KERNEL_STAGE = LIBRARY | {"mlircx.kernel", "mlirc.view", "mlirc.copy", "mlirc.iota", "mlirc.assign"}
MEMORY_STAGE = {"mlirc.slot", "mlirc.allocate", "mlirc.release", "mlirc.view", "mlircx.call"}
ALLOWED: dict[str, set[str]] = {
    "kernel": KERNEL_STAGE | ATEN | NUMBERS | REGION_OPS,
    "memory": MEMORY_STAGE
    | ATEN
    | NUMBERS
    | REGION_OPS
    | {"mlircx.launch", "mlircx.run"},  # a run: lowered already, for a GPU
    "lowered": MEMORY_STAGE | ATEN | NUMBERS | REGION_OPS | {"mlircx.run"},
}
_BESIDE_OPS = {*ATEN, *REGION_OPS, *FLEX, "mlircx.kernel"}  # what the graph form holds beside OPS
_PLANNED = (MEMORY_STAGE | {"mlircx.launch", "mlircx.run"}) - {"mlirc.view"}


def is_generated(callee: str) -> bool:
    """Whether the routine of this name is a kernel of our own."""
    return f"mlirc.{callee}" in GENERATED or f"mlircx.{callee}" in FLEX


def may_hold(stage: str, name: str) -> bool:
    """Whether the op of this name may stand in a function of the form."""
    if stage == "graph":
        return name.removeprefix("mlirc.") in OPS or name in _BESIDE_OPS
    return name in ALLOWED[stage]


def stage_of(function: Any) -> str | None:
    """The form that a `func.func` is in, by what it holds; None where nothing in it is ours."""
    operations = list(function.regions[0].blocks[0].operations)
    names = {op.operation.name for op in operations}
    if "mlirc.arena" in function.attributes or names & _PLANNED:
        if not names.isdisjoint(REGION_OPS):
            operations += [op for nested in nested_functions(function) for op in nested.regions[0].blocks[0].operations]
            names = {op.operation.name for op in operations}
        has_code = any("kernel" in op.attributes for op in operations)
        return "lowered" if has_code and "mlircx.launch" not in names else "memory"
    if any(may_hold("graph", name) and name not in ALLOWED["kernel"] for name in names):
        return "graph"
    if "mlircx.kernel" in names:
        return "kernel"
    return "graph" if any(name.startswith("mlirc") for name in names) else None


def refusal(function: Any, stage: str) -> str:
    """Why a function is not of this form, and what to do; "" if it is."""
    planned = "mlirc.arena" in function.attributes
    held: set[str] = set()
    for op in function.regions[0].blocks[0].operations:
        name = op.operation.name
        if name in held:
            continue
        early = stage == "memory" and name == "mlircx.run" and info_of(op.operands[0]).device == "cpu"
        if name == "func.return" or (may_hold(stage, name) and not early):
            if name != "mlircx.run":  # of these each counts
                held.add(name)
            continue
        return f"{name} ({source_line(op.location)}) is no op of the {stage} form{_way(stage_of(function), stage)}"
    if planned != (stage in ("memory", "lowered")):
        wrong = "has an arena already" if planned else "has no arena"
        return f"@{function.name.value} {wrong}{_way(stage_of(function), stage)}"
    return ""


def _way(have: str | None, stage: str) -> str:
    """What leads from one form to another."""
    if have is None:
        return ""
    steps = [MADE_BY[s] for s in STAGES[STAGES.index(have) + 1 : STAGES.index(stage) + 1]]
    if steps:
        return f": run {', '.join(steps)} first"
    return "" if have == stage else f": the function is past it, in the {have} form"
