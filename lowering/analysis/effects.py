"""Which ops overwrite memory that they are given, and which may raise when they run."""

import re
from functools import lru_cache
from typing import Any

import torch

from mlirc.dialects.control_flow.region_ops import REGION_OPS, region_functions
from mlirc.dialects.core.aten_arguments import resolve
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.tensor_types import info_of

# Operators that raise at no values and at no dtypes that their meta functions take.
TOTAL = re.compile(
    r"aten\.(_scaled_dot_product|_flash_attention|_efficient_attention|_cudnn|cudnn|rand|uniform|normal|bernoulli|exponential)"
)
EFFECTS = frozenset(("mlirc.assign", "mlircx.aten_effect"))


def may_write(op: ir.Operation) -> bool:
    """Whether an op may overwrite an operand: an assignment, or a call of an operator that PyTorch says mutates."""
    if op.name == "mlircx.aten_effect":
        return _mutates(ir.StringAttr(op.attributes["op"]).value)
    return op.name == "mlirc.assign"


def may_raise(op: Any) -> bool:
    """Whether an op may raise for what its operands hold: a call of ATen's, or a kernel that checks an index on a CPU."""
    op = op.operation
    if op.name in ("mlircx.aten", "mlircx.aten_effect"):
        return "overridden" in op.attributes or not TOTAL.match(ir.StringAttr(op.attributes["op"]).value)
    if op.name in REGION_OPS:
        return any(may_raise(inner) for f in region_functions(op) for inner in f.regions[0].blocks[0].operations)
    if op.name != "mlircx.kernel" or info_of(op.results[0]).device != "cpu":
        return False  # a GPU's bad index is known when its stream is synchronised, in eager too
    return any(inner.operation.name == "mlirc.check_index" for inner in op.regions[0].blocks[0].operations)


@lru_cache
def _mutates(name: str) -> bool:
    operator = resolve(name)
    # random numbers are an effect that writes to nothing; of higher-order operators nothing is known
    return operator._schema.is_mutable if isinstance(operator, torch._ops.OpOverload) else True
