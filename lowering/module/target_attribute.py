"""The machine that a module is for: its attribute `mlirc.target`, which passes read, and nothing else of any machine.

    module attributes {mlirc.target = "cpu{arch=x86_64 vector-bytes=64 ...},gpu{arch=sm_90 multiprocessors=132}"} { ... }

So a module lowers on any machine as it did on the one that it comes from.
"""

from typing import Any

from mlirc.dialects.control_flow.region_ops import REGION_OPS
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of
from mlirc.lowering.host import host_target
from mlirc.lowering.target import Target, TargetError, parse_target

ATTRIBUTE = "mlirc.target"
HOLD_FUNCTIONS = REGION_OPS | {"func.func"}


def target_of(op: Any) -> Target:
    """The target of the module that the op is in, or is. Raises TargetError where it has none, or a wrong one."""
    found = _module_of(op).attributes.get(ATTRIBUTE, None)
    if found is None:
        raise TargetError(f"the module has no attribute {ATTRIBUTE}; set_target gives it one")
    if not isinstance(found, ir.StringAttr):
        raise TargetError(f'{ATTRIBUTE} = {str(found)[:100]} is no string like "cpu{{arch=x86_64 vector-bytes=32}}"')
    return parse_target(found.value)


def set_target(op: Any, target: Target) -> None:
    """Sets the target of the module that the op is in, or is."""
    with op.operation.context:
        _module_of(op).attributes[ATTRIBUTE] = ir.StringAttr.get(str(target))


def ensure_target(module: Any) -> Target:
    """The module's target; the host's, written into the module, where it has none. Raises TargetError for a wrong one."""
    if ATTRIBUTE not in module.operation.attributes:
        set_target(module, host_target(is_on_gpu(module)))
    return target_of(module)


def is_on_gpu(module: Any) -> bool:
    """Whether a tensor of its functions, and of those within them, is on a GPU. The module need not be verified."""
    types: set[ir.Type] = set()
    left = list(module.operation.regions[0].blocks[0].operations)
    while left:
        for block in (block for region in left.pop().regions for block in region.blocks):
            types |= {x.type for x in block.arguments}
            for op in block.operations:
                types |= {x.type for x in op.operation.results}
                if op.operation.name in HOLD_FUNCTIONS:
                    left.append(op)
    return any(isinstance(t, ir.RankedTensorType) and _on_gpu(t) for t in types)


def _on_gpu(type_: ir.Type) -> bool:
    try:
        return info_of(type_).device.startswith("cuda")
    except (ValueError, KeyError):  # not one of ours: a verifier says so
        return False


def _module_of(op: Any) -> Any:
    op = op.operation
    while op.name != "builtin.module":
        op = op.parent
        if op is None:
            raise TargetError("the op is in no module, which would say what machine it is for")
    return op
