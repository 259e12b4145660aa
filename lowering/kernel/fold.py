"""A reduction or a scan, for both targets: what it folds, in which dtype, and from what it starts."""

import torch

from mlirc.dialects.core.kernel_ops import POSITIONAL, identity
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.kernel.nodes import Node


@dataclass(frozen=True)
class Fold:
    """A `reduce` or `scan` node. `kind` is one of kernel_ops.reductions() or scans(); `dtype` is that of the accumulator."""

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
        """Whether it finds where an extreme is. Its accumulator is the extreme and its position."""
        return self.kind in POSITIONAL

    @property
    def gives_position(self) -> bool:
        """Whether the position is what it gives, not the extreme."""
        return self.kind in ("argmax", "argmin")

    @property
    def identity(self) -> float | int | bool:
        return identity(self.kind, self.dtype)
