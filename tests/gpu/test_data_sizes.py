"""Graphs whose sizes depend on data, on a GPU: the calls between the pieces wait for it, the pieces do not."""

import pytest
import torch

from mlirc.frontend import statistics
from tests.compare_stages import compare


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
@pytest.mark.parametrize("training", [False, True])
def test_rows_that_a_mask_chooses(training, mode):
    def program(x, w):
        y = x.sin()
        rows = torch.nonzero(y[:, 0] > 0).flatten()
        return torch.zeros_like(y).index_add(0, rows, (y[rows] @ w).relu()), y[y > 0.5] * 2

    torch._dynamo.reset()
    statistics.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error", "mode": mode})
        for _ in range(4):
            inputs = [torch.randn(n, 16, device="cuda", requires_grad=training) for n in (33, 16)]
            steps = []
            for call in (run, program):
                results = call(*inputs)
                loss = sum(r.square().sum() for r in results)
                steps.append(
                    [r.detach() for r in results] + (list(torch.autograd.grad(loss, inputs)) if training else [])
                )
            compare(*steps, rtol=1e-3, atol=1e-3)
    assert not statistics.fallbacks and all(g.cuda_graph != "recorded" for g in statistics.graphs)


def test_every_number_of_rows():
    def program(x, w):
        rows = torch.nonzero(x[:, 0] > 0).flatten()
        return (x[rows] @ w).relu(), x[x > 0.5] * 2

    torch._dynamo.reset()
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        run = torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error"})
        for chosen in (*range(34), *range(33, -1, -1)):
            x, w = (torch.rand(n, 16, device="cuda") for n in (33, 16))
            x[:chosen, 0], x[chosen:, 0] = 1, -1
            inputs = [x.requires_grad_(), w.requires_grad_()]
            steps = []
            for call in (run, program):
                results = call(*inputs)
                grads = torch.autograd.grad(sum(r.square().sum() for r in results), inputs)
                steps.append([*(r.detach() for r in results), *grads])
            compare(*steps, rtol=1e-3, atol=1e-3)
