"""LSTMs as steps of linear layers, for training: PyTorch traces those of a CPU to oneDNN's layer for inference, which keeps nothing for gradients.

Formulas and the order of gates (input, forget, cell, output): torch.nn.LSTM's documentation; projections: https://arxiv.org/abs/1402.1128.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
Tensors = Sequence[torch.Tensor]


def lstm(
    x: torch.Tensor,
    state: Tensors,
    weights: Tensors,
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten.lstm.input: the hidden states of all steps, and the last hidden and cell state of each layer and direction."""
    hidden, cell = state
    each = (4 if has_biases else 2) + (hidden.size(2) != cell.size(2))
    directions = 2 if bidirectional else 1
    rows = x.transpose(0, 1) if batch_first else x
    last = []
    for layer in range(layers):
        given, found = rows, []
        for k in range(layer * directions, (layer + 1) * directions):
            own = weights[k * each : (k + 1) * each]
            out, *ends = one_layer(given, hidden[k], cell[k], own, has_biases, backwards=k % directions == 1)
            found.append(out)
            last.append(ends)
        rows = torch.cat(found, -1) if bidirectional else found[0]
        if dropout and train and layer < layers - 1:
            rows = F.dropout(rows, dropout)
    ends = [torch.stack([pair[n] for pair in last]) for n in range(2)]
    return rows.transpose(0, 1) if batch_first else rows, ends[0], ends[1]


def one_layer(
    x: torch.Tensor, h: torch.Tensor, c: torch.Tensor, weights: Tensors, has_biases: bool, backwards: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """One direction of one layer: [steps, batch, size] and the last states. `weights` are those of inputs and of states, their biases,
    and the projection. PyTorch exports an LSTM for a number of steps that is known."""
    of_x, of_h = weights[:2]
    bias_x, bias_h = weights[2:4] if has_biases else (None, None)
    projection = weights[-1] if len(weights) % 2 else None
    inputs = F.linear(x, of_x, bias_x).unbind(0)
    rows = []
    for given in reversed(inputs) if backwards else inputs:
        i, f, g, o = (F.linear(h, of_h, bias_h) + given).chunk(4, -1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        h = o.sigmoid() * c.tanh()
        if projection is not None:
            h = F.linear(h, projection)
        rows.append(h)
    return torch.stack(rows[::-1] if backwards else rows), h, c


def onednn_layer(
    x: torch.Tensor,
    of_x: torch.Tensor,
    of_h: torch.Tensor,
    bias_x: torch.Tensor,
    bias_h: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    backwards: bool,
    *rest: Any,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """aten.mkldnn_rnn_layer, as PyTorch's decomposition of an LSTM calls it: one layer in one direction."""
    out, h, c = one_layer(x, h[0], c[0], (of_x, of_h, bias_x, bias_h), True, backwards)
    return out, h[None], c[None], x.new_empty(0, dtype=torch.uint8)


IN_STEPS: dict[Any, Callable] = {aten.lstm.input: lstm, aten.mkldnn_rnn_layer.default: onednn_layer}
"""What stands for an operator in training."""
