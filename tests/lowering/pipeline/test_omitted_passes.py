"""Each pass of the CPU's pipeline that may be left out, is: the graph compiles all the same, and is right."""

import pytest
import torch
from torch import nn

from mlirc.lowering.pipeline.parser import parse
from mlirc.lowering.pipeline.pipelines import pipeline
from mlirc.lowering.pipeline.standard_steps import NEEDED

OMITTED = sorted({step.name for step in parse(pipeline("cpu"))} - NEEDED.keys())


class Net(nn.Module):
    """Something for most passes: convolutions, batch and group norms, attention, an embedding, a concatenation, a rotary part."""

    def __init__(self):
        super().__init__()
        self.image = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.GroupNorm(2, 8)
        )
        self.words, self.norm = nn.Embedding(11, 8), nn.LayerNorm(8)
        self.project, self.out = nn.Linear(8, 24), nn.Linear(8, 11)

    def forward(self, image, words):
        x = torch.cat([self.image(image).flatten(2).mT, self.words(words)], 1)
        q, k, v = self.project(self.norm(x)).unflatten(2, (3, 2, 4)).permute(2, 0, 3, 1, 4)
        q, k = (torch.cat([-y[..., 2:], y[..., :2]], -1) * 0.5 + y for y in (q, k))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)
        return nn.functional.gelu(self.out(attended + x))[:, -words.shape[1] :].log_softmax(-1), attended.mean(1)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", OMITTED)
def test_a_graph_without_it_is_right(name):
    torch.manual_seed(0)
    net = Net().eval()
    inputs = torch.randn(2, 3, 8, 8), torch.randint(0, 11, (2, 5))
    options = {"omit": name, "fallback": "error", "cache": False}
    with torch.no_grad():
        torch.testing.assert_close(torch.compile(net, backend="mlirc", options=options)(*inputs), net(*inputs))
