"""The option compile_seconds on a GPU: recorded CUDA graphs, training, and random numbers, before and after the swap."""

import pytest
import torch
from torch import nn

import mlirc
from mlirc.frontend import statistics


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Dropout(0.5), nn.Linear(64, 10)).cuda()


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("train", [False, True], ids=["inference", "training"])
@pytest.mark.parametrize("when", ["between steps", "within a step"])
def test_before_and_after_the_swap(mode, train, when):
    model = net().train(train)
    statistics.reset()
    call = torch.compile(model, backend="mlirc", options={"compile_seconds": 0, "mode": mode, "fallback": "error"})
    for k in range(10):
        if k == 5:
            with torch.no_grad():
                model[0].weight.mul_(2)
        x = torch.randn(16, 32, device="cuda")
        found = []
        for run in (call, model):
            torch.manual_seed(k)
            model.zero_grad()
            with torch.set_grad_enabled(train):
                result = run(x)
                if run is call and k == 2 and when == "within a step":
                    mlirc.finish_compiling()
                if train:
                    result.sum().backward()
            found.append([result.detach().clone(), *(p.grad.clone() for p in model.parameters() if train)])
        torch.testing.assert_close(*found, rtol=1e-3, atol=1e-4)
        if k == 1:
            assert not any(graph.cuda_graph == "recorded" for graph in statistics.graphs if graph.quick)
        if k == 2 and when == "between steps":
            mlirc.finish_compiling()
    mlirc.finish_compiling()
    assert all(graph.quick_calls and not graph.quick for graph in statistics.graphs)
    assert len(statistics.graphs) == (2 if train else 1) and not statistics.fallbacks
    if mode == "reduce-overhead":
        assert [graph.cuda_graph for graph in statistics.graphs] == ["recorded"] * len(statistics.graphs)
