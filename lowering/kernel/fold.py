"""A reduction or a scan, for both targets: what it folds, in which dtype, and from what it starts."""

from dataclasses import dataclass

import torch

from mlirc.dialects.core.kernel_ops import identity
from mlirc.lowering.kernel.nodes import Node


@dataclass(frozen=True)
class Fold:
    """A `reduce` or `scan` node. `kind` is one of kernel_ops.REDUCTIONS; `dtype` is that of the accumulator."""

    node: Node

    @property
    def kind(self) -> str:
        return self.node.attributes["kind"]

    @property
    def source(self) -> torch.dtype:
        return self.node.operands[0].dtype

    @property
    def dtype(self) -> torch.dtype:
        return self.source

    @property
    def positional(self) -> bool:
        """Whether it finds where an extreme is."""
        return self.kind.startswith("arg")

    @property
    def identity(self) -> float | int | bool:
        return identity(self.kind, self.dtype)
