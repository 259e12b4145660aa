"""Operators that PyTorch writes in terms of others, such as `aten.linear`. Autograd takes them apart; torch.export keeps them."""

from collections.abc import Callable
from typing import Any

import torch
from torch.export import default_decompositions

from mlirc.codegen.abi.reach import Missing, reach


@reach("composite-decompositions", instead="models compiled ahead of time call them from Python", apart=True)
def composite_operators() -> dict[Any, Callable[..., Any]]:
    """Their decompositions. Those of other operators stay with the importer."""
    has_one = torch._C._dispatch_has_kernel_for_dispatch_key
    found = {op: f for op, f in default_decompositions().items() if has_one(op.name(), "CompositeImplicitAutograd")}
    if torch.ops.aten.linear.default not in found:
        raise Missing("aten.linear is not one of them")
    return found
