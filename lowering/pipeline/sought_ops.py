"""The ops that some passes look for. In a graph without any of them such a pass does nothing, and is not imported.

All of these passes take the graph form.
"""

from collections.abc import Iterable
from typing import Any

from mlirc.dialects.core.dialect import attribute_value

SOUGHT: dict[str, tuple[str, ...]] = {
    "accumulate-embeddings": ("aten.embedding_dense_backward.",),
    "convolution-to-matmul": ("aten.convolution.", "aten.convolution_backward."),
    "fold-convolutions": ("aten.convolution.",),
    "fuse-flex-attention": ("mlirc.flex_attend", "mlirc.flex_gradients"),
    "generate-convolutions": (
        "aten.convolution.",
        "aten.convolution_backward.",
        "mkldnn._convolution",
        "mlirc.fused_convolution",
        "mlirc.grouped_convolution",
    ),
    "hoist-gathers": ("mlirc.gather",),
    "select-attention": ("mlirc.attention",),
    "simplify-attention": ("mlirc.attention",),
}
"""By the name of a pass, how the names begin of ops, and of operators that `mlircx.aten` calls."""


def holds(functions: Iterable[Any], beginnings: tuple[str, ...]) -> bool:
    """Whether one of the functions has an op whose name begins so."""
    return any(
        name_of(op).startswith(beginnings) for function in functions for op in function.regions[0].blocks[0].operations
    )


def name_of(op: Any) -> str:
    name = op.operation.name
    return attribute_value(op.attributes["op"]) if name == "mlircx.aten" else name
