"""Convolutions by cuDNN from native code: as exact as eager, whatever lies where, with graphs and threads."""

import threading

import pytest
import torch
from torch import nn

from mlirc.codegen.libraries import cudnn
from tests.gpu.test_graphs import check, compiled


@pytest.fixture(autouse=True)
def plans(monkeypatch):
    """Descriptions of the plans that are made."""
    made, make_plan = [], cudnn.make_plan
    monkeypatch.setattr(cudnn, "make_plan", lambda wanted: made.append(wanted) or make_plan(wanted))
    return made


class Block(nn.Module):
    """A bottleneck's end, with a shortcut that is a convolution, and one that is none."""

    def __init__(self, stride: int):
        super().__init__()
        self.first, self.norm = nn.Conv2d(16, 32, 3, stride, 1, bias=False), nn.BatchNorm2d(32)
        self.last, self.last_norm = nn.Conv2d(32, 64, 1, bias=False), nn.BatchNorm2d(64)
        self.short, self.short_norm = nn.Conv2d(16, 64, 1, stride, bias=False), nn.BatchNorm2d(64)
        for statistic in self.buffers():
            if statistic.is_floating_point():
                statistic.uniform_(0.5, 2)

    def forward(self, x):
        y = self.norm(self.first(x)).relu()
        return (self.last_norm(self.last(y)) + self.short_norm(self.short(x))).relu()


def block(dtype: torch.dtype, stride: int) -> Block:
    torch.manual_seed(0)
    return Block(stride).cuda().to(dtype).eval()


def error(x, exact):
    return ((x.double() - exact).norm() / exact.norm()).item()


@pytest.mark.parametrize(("dtype", "stride"), [(torch.bfloat16, 1), (torch.float16, 2)])
@torch.no_grad()
def test_a_residual_block(plans, dtype, stride):
    module = block(dtype, stride)
    x = torch.randn(3, 16, 14, 10, device="cuda", dtype=dtype)
    memory = torch.randn(x.numel() + 1, device="cuda", dtype=dtype)[1:].view_as(x)  # begins at no multiple of 16 bytes
    call = compiled(module)
    for given in (x, memory, x):
        made = call(given)
        exact = block(dtype, stride).double()(given.double())
        assert made.stride() == module(given).stride()
        assert error(made, exact) <= 2 * error(module(given), exact)
    assert {(p.adds, p.shifts, p.relu) for p in plans} == {
        (False, True, True),
        (True, True, True),
        (False, False, False),
    }


@torch.no_grad()
def test_in_threads_and_graphs():
    module, x = block(torch.bfloat16, 1), torch.randn(2, 16, 9, 9, device="cuda", dtype=torch.bfloat16)
    call, recorded = compiled(module), torch.compile(module, backend="mlirc", mode="reduce-overhead")
    expected = call(x)
    for _ in range(4):
        torch.testing.assert_close(recorded(x), expected)
    results: list[torch.Tensor] = []

    def work():
        with torch.no_grad(), torch.cuda.stream(torch.cuda.Stream()):
            results.extend(call(x) for _ in range(50))
            torch.cuda.synchronize()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert len(results) == 200
    for made in results:
        torch.testing.assert_close(made, expected)


@pytest.mark.parametrize(("dtype", "stride"), [(torch.bfloat16, 1), (torch.float16, 2)])
def test_gradients(plans, dtype, stride):
    x = torch.randn(3, 16, 14, 10, device="cuda", dtype=dtype)
    made = {}
    for name in ("mlirc", "eager", "exact"):
        module = block(torch.float64 if name == "exact" else dtype, stride).train()
        given = (x.double() if name == "exact" else x.clone()).requires_grad_()
        (compiled(module) if name == "mlirc" else module)(given).square().sum().backward()
        made[name] = [given.grad, *(p.grad for p in module.parameters())]
    for ours, eager, exact in zip(*made.values(), strict=True):
        assert ours.stride() == eager.stride()
        assert error(ours, exact) <= 2 * error(eager, exact) + 1e-6
    assert {p.kind for p in plans} == {cudnn.FORWARD, cudnn.DATA, cudnn.FILTER}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_relu_of_nan_and_infinities(plans, dtype):
    module = block(dtype, 1)
    x = torch.randn(3, 16, 14, 10, device="cuda", dtype=dtype)
    x[0, 1, 2, 3], x[1, 4, 5, 6], x[2, 7, 8, 9] = float("nan"), float("inf"), -float("inf")
    made, expected = compiled(module)(x), module(x)
    assert expected.isnan().any() and not expected.isnan().all()
    assert torch.equal(made.isnan(), expected.isnan())
    assert torch.equal(made.isinf(), expected.isinf())
    assert any(plan.relu for plan in plans)


@torch.no_grad()
def test_what_is_left_to_aten(plans):
    x, w = (torch.randn(s, device="cuda", dtype=torch.bfloat16) for s in ((2, 8, 6, 6), (8, 4, 3, 3)))
    check(lambda x, w: nn.functional.conv2d(x, w, groups=2) * 2, x, w)
    with torch.backends.cudnn.flags(enabled=True, benchmark=True):
        check(lambda x, w: nn.functional.conv2d(x, w) * 2, x, w.repeat(1, 2, 1, 1))
    assert not plans
