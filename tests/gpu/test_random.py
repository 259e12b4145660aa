"""Random numbers on a GPU: dropout is eager's bit for bit, in whatever order it is called, recorded or not."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import mlirc
from mlirc.frontend import statistics

OPTIONS = {"fallback": "error"}


def compiled(fn):
    torch._dynamo.reset()
    return torch.compile(fn, backend="mlirc", options=OPTIONS)


def seeded(fn, *inputs, calls: int = 2):
    """What several calls give from one seed on, and where the generator then is."""
    torch.manual_seed(1234)
    torch.rand(5, device="cuda")
    return [fn(*inputs) for _ in range(calls)], torch.cuda.default_generators[0].get_offset()


SHAPES = [(8,), (3, 1000), (33, 12), (16, 512, 768), (4_000_004,), (1, 300_000, 4)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
@pytest.mark.parametrize("shape", SHAPES)
def test_dropout_is_eagers(shape, dtype):
    x = torch.randn(shape, device="cuda").to(dtype)
    fn = lambda x: F.dropout(x, 0.3)
    wanted, offset = seeded(fn, x)
    have, after = seeded(compiled(fn), x)
    assert after == offset
    assert all(torch.equal(a, b) for a, b in zip(have, wanted, strict=True))
    assert not torch.equal(*have)


@pytest.mark.parametrize("x", ["transposed", "gaps", "odd", "double", "scalar", "empty"])
def test_what_is_drawn_otherwise_is_eagers_too(x):
    make = {
        "transposed": lambda: torch.randn(64, 96, device="cuda").t(),
        "gaps": lambda: torch.randn(64, 96, device="cuda")[:, ::2],
        "odd": lambda: torch.randn(7, 9, device="cuda"),
        "double": lambda: torch.randn(64, 96, device="cuda", dtype=torch.float64),
        "scalar": lambda: torch.randn((), device="cuda"),
        "empty": lambda: torch.randn(0, 4, device="cuda"),
    }
    tensor = make[x]()
    fn = lambda x: F.dropout(x, 0.5) + 1
    wanted, offset = seeded(fn, tensor)
    have, after = seeded(compiled(fn), tensor)
    assert after == offset and all(torch.equal(a, b) for a, b in zip(have, wanted, strict=True))


def test_other_random_numbers_in_between():
    def fn(x):
        a = F.dropout(x, 0.1) + torch.rand_like(x)
        b = F.dropout(a * 2, 0.5)
        return b, torch.randn(7, device=x.device), F.dropout(b, 0.2), torch.randint(9, (5,), device=x.device)

    x = torch.randn(128, 256, device="cuda")
    wanted, offset = seeded(fn, x)
    have, after = seeded(compiled(fn), x)
    assert after == offset
    for call, other in zip(have, wanted, strict=True):
        for a, b in zip(call, other, strict=True):  # a product and an addition in one kernel are rounded once
            torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(256, 256), nn.LayerNorm(256)

    def forward(self, x):
        return self.norm(F.dropout(self.linear(F.dropout(x, 0.2)), 0.1) + x)


@pytest.mark.parametrize("mode", ["default", "reduce-overhead"])
def test_training_with_dropout(mode):
    """Forward and backward use one mask; and with CUDA graphs each replay draws new numbers, the ones that eager would."""
    torch.manual_seed(0)
    module = Block().cuda()
    x = torch.randn(64, 256, device="cuda", requires_grad=True)

    def steps(call, count=10):
        torch.manual_seed(7)
        found = []
        for _ in range(count):
            x.grad = None
            module.zero_grad()
            out = call(x)
            out.sin().sum().backward()  # not a sum of squares, whose gradient is zero after a norm
            found += [out.detach().clone(), x.grad.clone(), module.linear.weight.grad.clone()]
        return found, torch.cuda.default_generators[0].get_offset()

    wanted, offset = steps(module)
    torch._dynamo.reset()
    have, after = steps(torch.compile(module, backend="mlirc", options=OPTIONS | {"mode": mode}))
    assert after == offset
    for a, b in zip(have, wanted, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(have[0], have[-3])
    if mode == "reduce-overhead":
        assert {g.cuda_graph for g in statistics.graphs[-2:]} == {"recorded"}


def test_dropout_addition_and_norm_are_one_kernel():
    norm = nn.LayerNorm(256).cuda()
    fn = lambda x, y: norm(F.dropout(x, 0.1) + y)
    x, y = (torch.randn(64, 256, device="cuda") for _ in range(2))
    before = torch.cuda.get_rng_state()
    (graph,) = mlirc.explain(fn, options=OPTIONS)(x, y.requires_grad_(False)).data["graphs"][:1]
    assert sum(k["launches"] for k in graph["kernels"]) == 1 and list(graph["aten"]) == ["mlirc.random_state.default"]
    assert not graph["through_python"] and torch.equal(torch.cuda.get_rng_state(), before)
