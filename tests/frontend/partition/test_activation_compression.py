"""What forward graphs on a GPU save in fewer bytes: here the rewritten graphs run on the CPU."""

import pytest
import torch
from torch import nn

from mlirc.frontend.partition import recomputation

F = nn.functional


@pytest.fixture
def saved(monkeypatch):
    """dtype -> elements of the tensors of more than one dimension that the forward graph saves."""
    monkeypatch.setattr(recomputation, "is_on_gpu", lambda x: True)
    found: dict[torch.dtype, list[int]] = {}
    plain = recomputation.partition

    def noted(joint, inputs, *, num_fwd_outputs, **options):
        graphs = plain(joint, inputs, num_fwd_outputs=num_fwd_outputs, **options)
        for node in graphs[0].graph.output_node().args[0][num_fwd_outputs:]:
            found.setdefault(node.meta["val"].dtype, []).append(node.meta["val"].numel())
        return graphs

    monkeypatch.setattr(recomputation, "partition", noted)
    return found


def step(fn, x):
    x = x.detach().clone().requires_grad_()
    out = fn(x)
    out.backward()
    return out.detach(), x.grad


def check(fn, x):
    for have, want in zip(step(torch.compile(fn, backend="mlirc"), x), step(fn, x), strict=True):
        torch.testing.assert_close(have, want, equal_nan=True)


POOLS = {
    "overlapping": {"kernel_size": 3, "stride": 2, "padding": 1},
    "apart": {"kernel_size": 2},
    "uneven": {"kernel_size": (3, 2), "stride": (2, 3), "padding": (1, 0), "dilation": (2, 1)},
    "ceil": {"kernel_size": 3, "stride": 2, "ceil_mode": True},
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("name", POOLS)
def test_a_pool_saves_a_byte_for_each_window(name, saved):
    torch.manual_seed(0)
    x = torch.randint(-2, 3, (2, 3, 12, 10)).float()  # with ties
    x[0, 0, :3, :5], x[1, 2, 4:, 3:], x[0, 1] = float("nan"), float("-inf"), float("inf")
    pooled = F.max_pool2d(x, **POOLS[name])
    factor = torch.arange(1.0, pooled.numel() + 1).view(pooled.shape)
    x[0, 1] = 7
    check(lambda x: (F.max_pool2d(x.flip(0), **POOLS[name]) * factor).sum(), x)
    assert saved == {torch.float32: [pooled.numel()], torch.int8: [pooled.numel()]}  # factor, and places


def test_an_index_that_is_a_result_is_saved_as_it_is(saved):
    def fn(x):
        pooled, index = F.max_pool2d(x, 3, 2, return_indices=True)
        return (pooled * index).sum()

    check(fn, torch.randn(1, 2, 9, 9))
    assert torch.int8 not in saved


def test_a_relu_saves_whether_it_is_zero(saved):
    x = torch.tensor([[1.0, -1.0, 0.0, float("nan")], [-0.0, float("inf"), float("-inf"), 3.0]])
    w, factor = torch.eye(4), torch.arange(1.0, 5)
    check(lambda x: (F.relu(torch.cumsum(x @ w, 0)) * factor).sum(), x)
    assert saved == {torch.float32: [4, 16], torch.bool: [8]}


def test_a_relu_that_is_needed_saves_no_mask(saved):
    torch.manual_seed(0)
    w = torch.randn(5, 3).requires_grad_()
    check(lambda x: (F.relu(x @ w.T) @ w).square().sum(), torch.randn(4, 3))
    assert torch.bool not in saved
