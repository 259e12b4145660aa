"""Composite operators: PyTorch defines them by other operators, as `aten.linear` by matmul and add.

Autograd decomposes them. torch.export keeps them, so a model compiled ahead of time is given these decompositions.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch.export import default_decompositions

from mlirc.codegen.abi.reach import Missing, reach


@reach("composite-decompositions", instead="models compiled ahead of time call them from Python", apart=True)
def composite_operators() -> dict[Any, Callable[..., Any]]:
    """PyTorch's decomposition of each composite operator (dispatch key CompositeImplicitAutograd). Raises Missing.

    torch.export has decompositions of other operators, too. They are left out: the importer has rules for those.
    """
    has_one = torch._C._dispatch_has_kernel_for_dispatch_key
    found = {op: f for op, f in default_decompositions().items() if has_one(op.name(), "CompositeImplicitAutograd")}
    if torch.ops.aten.linear.default not in found:
        raise Missing("aten.linear is not one of them")
    return found
