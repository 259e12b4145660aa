"""DDPOptimizer compiles a graph in parts, one for each bucket of gradients, for fake tensors: eager's values, and each part compiled."""

from collections import Counter

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn.parallel import DistributedDataParallel

from mlirc.codegen.abi import lazy_tensors
from mlirc.frontend import statistics
from mlirc.frontend.capture.aot_autograd import refuse_zeros
from mlirc.frontend.torch_compat.aot_autograd.entry import entry

N = 512  # a square matrix fills a bucket of 1 MiB, the smallest


class Blocks(nn.Module):
    """Two buckets; between them pass a view, and a tensor with dimensions in another order."""

    def __init__(self):
        super().__init__()
        self.first, self.second = (nn.Parameter(torch.randn(N, N)) for _ in range(2))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        y = (x * self.first[0]).relu()
        view, turned = y[:, : N // 2], y.mT.contiguous().mT
        self.calls += 1
        return turned * self.second[1], view * 2, view


@pytest.fixture
def process_group(tmp_path):
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def data_parallel():
    torch.manual_seed(0)
    return DistributedDataParallel(Blocks(), bucket_cap_mb=1)


def steps(model, module, sizes):
    found = []
    for step, size in enumerate(sizes):
        x = torch.randn(size, N, generator=torch.Generator().manual_seed(step))
        results = model(x)
        if torch.is_grad_enabled():
            torch.stack([y.square().mean() for y in results]).sum().backward()
            found += [p.grad for p in module.parameters()]
            module.zero_grad()
        found += [y.detach() for y in results] + [b.clone() for b in module.buffers()]
        assert [type(y) for y in results] == [torch.Tensor] * 3
    return found


@pytest.mark.parametrize("training", [True, pytest.param(False, marks=pytest.mark.full)], ids=["training", "inference"])
def test_values_and_graphs(process_group, training):
    eager, module = data_parallel(), data_parallel()
    compiled = torch.compile(module, backend="mlirc", options={"fallback": "error"}, dynamic=True)
    statistics.reset()
    entry()
    torch._dynamo.utils.counters.clear()  # by which DDPOptimizer sees whether AOTAutograd was called
    with torch.set_grad_enabled(training):
        expected, actual = steps(eager, eager, [4, 7]), steps(compiled, module, [4, 7])
    for x, y in zip(actual, expected, strict=True):
        assert x.stride() == y.stride()
        torch.testing.assert_close(x, y)
    kinds = {"forward": 2, "backward": 2} if training else {"inference": 2}
    assert Counter(graph.kind for graph in statistics.graphs) == kinds and not statistics.fallbacks


def test_fake_inputs_have_no_address_to_look_at(monkeypatch):
    monkeypatch.setattr(lazy_tensors, "zero_test", lambda: None)
    with FakeTensorMode():
        x = torch.empty(3, dtype=torch.complex64)
        refuse_zeros([x, x[1:], x.conj()])
