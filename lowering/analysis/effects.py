"""Which ops overwrite memory that they are given."""

from functools import lru_cache

import torch

from mlirc.dialects.core.aten_arguments import resolve
from mlirc.dialects.core.bindings import ir

EFFECTS = frozenset(("mlirc.assign", "mlircx.aten_effect"))


def may_write(op: ir.Operation) -> bool:
    """Whether an op may overwrite an operand: an assignment, or a call of an operator that PyTorch says mutates."""
    if op.name == "mlircx.aten_effect":
        return _mutates(ir.StringAttr(op.attributes["op"]).value)
    return op.name == "mlirc.assign"


@lru_cache
def _mutates(name: str) -> bool:
    operator = resolve(name)
    # random numbers are an effect that writes to nothing; of higher-order operators nothing is known
    return operator._schema.is_mutable if isinstance(operator, torch._ops.OpOverload) else True
