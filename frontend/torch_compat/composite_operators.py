"""Composite operators: PyTorch defines them by other operators, as `aten.linear` by matmul and add.

Autograd decomposes them. torch.export keeps them, so a model compiled ahead of time is given these decompositions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decomposition_table
from torch.export import default_decompositions

from mlirc.codegen.abi.reach import Missing, reach


@reach("composite-decompositions", instead="models compiled ahead of time call them from Python", apart=True)
def composite_operators() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decomposition of each composite operator (dispatch key CompositeImplicitAutograd). Raises Missing.

    torch.export has decompositions of other operators, too. They are left out: the importer has rules for those. It lacks those of resizing
    by the nearest pixels and bilinearly, which AOTAutograd takes; without them they would be calls of ATen in the layout of the operand.
    """
    found = {op: f for op, f in default_decompositions().items() if is_composite(op)}
    found |= {op: f for op, f in decomposition_table.items() if op not in found and is_decomposed_by_autograd(op)}
    if torch.ops.aten.linear.default not in found:
        raise Missing("aten.linear is not one of them")
    return found


def is_composite(op: Any) -> bool:
    return torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeImplicitAutograd")


def is_decomposed_by_autograd(op: Any) -> bool:
    """Whether it is a composite operator that AOTAutograd runs a Python kernel of, and draws no random numbers."""
    if not isinstance(op, torch._ops.OpOverload) or torch.Tag.nondeterministic_seeded in op.tags:
        return False
    return torch._C.DispatchKey.CompositeImplicitAutograd in op.py_kernels and is_composite(op)
