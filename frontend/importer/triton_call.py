"""A call of a user's Triton kernel in an FX graph: AOTAutograd's functional operator, whose kernel and constants lie in a table of the process."""

from typing import Any

import torch

from mlirc.dialects.interpreter.triton_kernels import name_of
from mlirc.frontend.torch_compat.aot_autograd.higher_order import kernel_side_table

OPERATOR = "triton_kernel_wrapper_functional"


def is_triton_kernel(target: Any) -> bool:
    return isinstance(target, torch._ops.HigherOrderOperator) and target.name() == OPERATOR


def kernel_text(given: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The kernel's name and the constants of a call, of which `given` are the arguments."""
    table = kernel_side_table()
    return name_of(table.get_kernel(given["kernel_idx"])), table.get_constant_args(given["constant_args_idx"])
