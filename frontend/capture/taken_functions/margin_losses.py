"""Margin losses as their kernels compute them: PyTorch's own decompositions, which AOTAutograd takes, give other numbers.

    multilabel_margin_loss    counts labels after the first -1
    multi_margin_loss         gives one element for a 0-d target without reduction

A difference of 0 has no gradient in the kernels, and one of NaN counts for nothing. A graph of Dynamo's calls functions of this file.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.nn import functional


def write_out_losses(gm: GraphModule) -> None:
    """Rewrites a graph of Dynamo's in place, and the functions that its operators take."""
    for module in gm.modules():
        losses = [x for x in module.graph.nodes if is_loss(x)] if isinstance(module, GraphModule) else []
        for node in losses:
            node.target = LOSSES[node.target]
        if losses:
            module.recompile()  # type: ignore[reportCallIssue]


def is_loss(node: Node) -> bool:
    """Whether a node is such a loss of integers that eager takes."""
    if node.op != "call_function" or node.target not in LOSSES:
        return False
    target = node.args[1] if len(node.args) > 1 else node.kwargs.get("target")
    labels = target.meta.get("example_value") if isinstance(target, Node) else None
    return isinstance(labels, Tensor) and labels.dtype == torch.int64


def multilabel_margin_loss(
    input: Tensor,
    target: Tensor,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """torch.nn.functional.multilabel_margin_loss. input: [classes] or [rows, classes]; target: integers of the same sizes, of which those
    before the first -1 are a row's labels."""
    rows, labels = torch.atleast_2d(input), torch.atleast_2d(target)
    classes = torch.arange(rows.shape[1], device=input.device)
    ends = torch.where(labels == -1, classes, rows.shape[1]).amin(1, keepdim=True)
    counts = (classes < ends).unsqueeze(2)  # [rows, labels, 1]
    index = torch.where(labels == -1, 0, labels)
    is_label = ((index.unsqueeze(2) == classes) & counts).any(1, keepdim=True)  # [rows, 1, classes]
    z = 1 - rows.gather(1, index).unsqueeze(2) + rows.unsqueeze(1)
    z = torch.where((z > 0) & counts & ~is_label, z, 0)
    return reduced(z.sum((1, 2)) / rows.shape[1], input.shape[:-1], reduction, size_average, reduce)


def multi_margin_loss(
    input: Tensor,
    target: Tensor,
    p: int = 1,
    margin: float = 1,
    weight: Tensor | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> Tensor:
    """torch.nn.functional.multi_margin_loss. input: [classes] or [rows, classes]; target: [] or [rows], a class for each row;
    weight: [classes]; p: 1 or 2."""
    rows, labels = torch.atleast_2d(input), target.reshape(-1, 1)
    z = margin - rows.gather(1, labels) + rows
    z = torch.where((z > 0) & (torch.arange(rows.shape[1], device=input.device) != labels), z, 0)
    z = z if p == 1 else z * z
    z = z if weight is None else z * weight[labels]
    return reduced(z.sum(1) / rows.shape[1], target.shape, reduction, size_average, reduce)


def reduced(losses: Tensor, shape: Any, reduction: str, size_average: bool | None, reduce: bool | None) -> Tensor:
    """The losses of rows, reduced: `reduction`, unless one of the deprecated arguments is given."""
    if size_average is not None or reduce is not None:
        reduction = "none" if reduce is False else "sum" if size_average is False else "mean"
    if reduction == "none":
        return losses.reshape(shape)
    return losses.mean() if reduction == "mean" else losses.sum()


LOSSES: dict[Any, Callable[..., Tensor]] = {
    functional.multilabel_margin_loss: multilabel_margin_loss,
    functional.multi_margin_loss: multi_margin_loss,
}
