"""Copies: clone and its kin. Views need no rule of their own: the importer builds them (frontend/importer/views.py)."""

import torch

from mlirc.dialects.core.dialect import imports
from mlirc.dialects.core.graph_builder import NotOurs
from mlirc.dialects.core.tensor_types import KERNEL_DTYPES

aten = torch.ops.aten


@imports(aten.clone.default, aten.lift_fresh_copy.default)
def clone(g, x, memory_format=None):
    """A copy; the importer gives it the strides that the memory format leads to."""
    if g.info(x).dtype not in KERNEL_DTYPES:
        raise NotOurs(f"{g.info(x).dtype} is no dtype that kernels copy")
    return g.copy(x)
