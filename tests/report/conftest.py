"""A capture with a backward, a graph break and a recompilation."""

import pytest
import torch


def model(x, w):
    y = (x @ w).relu().softmax(-1)
    torch._dynamo.graph_break()
    return (y * 2 + x.sum(-1, keepdim=True)).tanh().sum()


@pytest.fixture(scope="session")
def captured(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    torch._dynamo.reset()
    compiled = torch.compile(model, backend="mlirc", options={"dump": folder, "cache": False}, dynamic=False)
    compiled(torch.randn(8, 16), torch.randn(16, 16, requires_grad=True)).backward()
    with torch.no_grad():
        compiled(torch.randn(4, 16), torch.randn(16, 16))
    return folder
