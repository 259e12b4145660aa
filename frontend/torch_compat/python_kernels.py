"""Kernels that PyTorch wrote in Python for autograd, which tracing takes before autograd's own."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

import torch
from torch._decomp import decomposition_table
from torch._dispatch.python import enable_python_dispatcher
from torch._ops import OpOverload

from mlirc.codegen.abi.reach import Missing, reach


@reach("python-kernels", instead="gradients of resized images are scattered, element by element")
def without_python_kernels() -> type[AbstractContextManager]:
    """A context in which operators go to PyTorch's kernels in C++, with their own backward operators. Raises Missing."""
    without: type[AbstractContextManager] = torch._C._DisablePythonDispatcher
    with torch.inference_mode(False), torch.enable_grad(), enable_python_dispatcher(), without():
        x = torch.empty(1, 1, 2, 2, requires_grad=True)
        node = torch.nn.functional.interpolate(x, scale_factor=2.0).grad_fn
    if node is None or not node.name().startswith("UpsampleNearest2DBackward"):
        raise Missing(f"resizing is differentiated by {node}")
    return without


def decompositions_of(operators: Sequence[OpOverload]) -> dict[OpOverload, Callable]:
    """PyTorch's decompositions; an operator that it has none of is left out, and traced as it is."""
    return {op: decomposition_table[op] for op in operators if op in decomposition_table}
