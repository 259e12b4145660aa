"""The value that a node of a graph has in PyTorch's trace."""

from typing import Any

from torch.fx import Node


def value_of(x: Any) -> Any:
    return x.meta.get("val") if isinstance(x, Node) else None
