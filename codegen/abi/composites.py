"""Tests whether an operator of ATen is composite: whether the dispatcher runs it by calling other operators."""

from collections.abc import Callable
from typing import Any

import torch

from mlirc.codegen.abi.reach import Missing, reach


def is_composite(function: Any) -> bool:
    """Such an operator may return its operand. True where that is not known."""
    ask = composite()
    return True if ask is None else ask(function)


@reach("composite-operators", instead="operators without a routine of ours are called from Python")
def composite() -> Callable[[Any], bool]:
    """The question."""
    has_one = torch._C._dispatch_has_kernel_for_dispatch_key

    def ask(function: Any) -> bool:
        return has_one(function.name(), "CompositeImplicitAutograd")  # a decomposition in Python is for tracing alone

    if not ask(torch.ops.aten.reshape.default) or ask(torch.ops.aten.add.Tensor):
        raise Missing("it is answered in another way")
    return ask
