"""Dynamo asks of each function that it meets whether it is local_map's, and loads that for it."""

import sys
from functools import cache
from typing import Any

import torch._dynamo.variables.higher_order_ops as higher_order

MODULE = "torch.distributed.tensor.experimental._func_map"


@cache
def ask_only_where_loaded() -> None:
    """Lets Dynamo answer no, for as long as the process lives, where the module of that function is not loaded: then nobody
    can have it. Its package takes 0.045 s of a first call, for operators of context parallelism that it registers."""
    variable = getattr(higher_order, "LocalMapWrappedHigherOrderVariable", None)
    asked = getattr(variable, "should_wrap_in_hop", None)
    if variable is None or asked is None:  # another torch
        return

    def should_wrap_in_hop(value: Any) -> bool:
        return MODULE in sys.modules and asked(value)

    variable.should_wrap_in_hop = staticmethod(should_wrap_in_hop)
