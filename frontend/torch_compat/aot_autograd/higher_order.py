"""Operators that call others: effects in order, random states of a backward graph, Triton kernels."""

from typing import Any

from mlirc.codegen.abi.reach import needed

with needed("higher-order-operators"):
    from torch._higher_order_ops.effects import with_effects as with_effects
    from torch._prims.rng_prims import run_and_save_rng_state as run_and_save_rng_state
    from torch._prims.rng_prims import run_with_rng_state as run_with_rng_state


def kernel_side_table() -> Any:
    """The kernels and constants that calls of Triton kernels refer to by numbers; only a graph with such a call asks for it."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    return kernel_side_table
