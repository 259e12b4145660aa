"""What a model cannot do without, counted without a GPU."""

from types import SimpleNamespace

import pytest
import torch
from torch import nn

from benchmarks.on_gpu.limits import Work, work
from benchmarks.on_gpu.models import GpuModel

N, M, K, S = 3, 5, 7, 16


class Attention(nn.Module):
    """A linear layer, attention of one head, and a loss."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(K, M, bias=False)

    def forward(self, x, labels=None):
        y = self.linear(x)
        logits = nn.functional.scaled_dot_product_attention(y, y, y, is_causal=True)
        return SimpleNamespace(logits=logits, loss=logits.sum())


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_operations_and_bytes(training, causal):
    def inputs(batch, device):
        x = torch.randn(batch, S, K, device=device, dtype=torch.bfloat16)
        return {"x": x, "labels": torch.zeros(1, device=device)}

    found = work(GpuModel("attention", Attention, inputs, N, causal), N, training)
    linear, attention = 2 * N * S * K * M, 2 * 2 * N * S * S * M
    # backward: of the linear layer the weight's gradient alone, as its input has none; of attention two products for each
    times = (2, 3) if training else (1, 1)
    assert found.operations == times[0] * linear + times[1] * attention / (2 if causal else 1)
    assert found.bytes == 2 * K * M * (3 if training else 1)


def test_the_slower_of_operations_and_bytes_is_the_limit():
    assert Work(200, 10).seconds(100, 10) == 2 and Work(200, 30).seconds(100, 10) == 3
