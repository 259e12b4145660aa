"""Which inputs of a graph are read as numbers: they give sizes, axes, counts."""

from typing import Any

from mlirc.frontend.onnx_import.registry import KNOWN

OPERANDS = {
    **dict.fromkeys(
        [
            "Reshape",
            "Expand",
            "Tile",
            "ConstantOfShape",
            "Trilu",
            "CumSum",
            "CumProd",
            "TopK",
            "OneHot",
            "CenterCropPad",
            "Split",
            "Squeeze",
            "Unsqueeze",
        ],
        (1,),
    ),
    **{
        f"Reduce{kind}": (1,)
        for kind in ["L1", "L2", "LogSum", "LogSumExp", "Max", "Mean", "Min", "Prod", "Sum", "SumSquare"]
    },
    "ConstantOfShape": (0,),
    "Pad": (1, 3),
    "Slice": (1, 2, 3, 4),
    "Range": (0, 1, 2),
    "Resize": (1, 2, 3),
    "Upsample": (1,),
    "Col2Im": (1, 2),
    "MaxUnpool": (2,),
    "Loop": (0,),
    "Dropout": (1, 2),
    "AffineGrid": (1,),
    "DFT": (1, 2),
    "STFT": (1, 3),
    "BlackmanWindow": (0,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MelWeightMatrix": (0, 1, 2, 3, 4),
    "NonMaxSuppression": (2,),
}
"""Operands that are numbers while a graph is traced, by operator."""


def inputs_as_numbers(graph: Any) -> set[str]:
    """Names that such operands are computed from, through operators on numbers alone."""
    wanted: set[str] = set()
    for node in reversed(graph.node):
        if node.domain:
            continue
        wanted |= {node.input[k] for k in OPERANDS.get(node.op_type, ()) if k < len(node.input)}
        through = node.op_type in KNOWN and node.op_type not in ("Shape", "Size")
        if through and any(name in wanted for name in node.output):
            wanted |= set(node.input)
    return wanted - {""}
