"""Hooks of saved tensors around a compiled call: gradients are eager's, wherever in memory lies what the hooks return."""

import copy
from contextlib import nullcontext

import pytest
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.nn import functional as F

from mlirc.frontend import statistics


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.project, self.dropout = nn.Linear(8, 24), 0.0

    def forward(self, x):
        q, k, v = self.project(x).view(2, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
        return F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2)


class Images(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution, self.norm = nn.Conv2d(2, 16, 3), nn.BatchNorm2d(16)

    def forward(self, x):
        x = x.view(2, -1, 2, 4).transpose(1, 2).contiguous(memory_format=torch.channels_last)
        return F.gelu(self.norm(self.convolution(x)))


class Views(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8, 3))

    def forward(self, x):
        first = x[0, 1:].t().exp() * x[1, 1:].t().as_strided((8, x.shape[1] - 1), (1, 8), x.storage_offset() + 8)
        return first.sin() @ x[1, 1:] @ self.weight * self.weight[3:4].expand(8, 3).tanh()


MODELS = {
    "linear": lambda: nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8)),
    "attention": Attention,
    "images": Images,
    "views": Views,
}


def floats(pack, unpack):
    """Hooks of floating-point tensors, which leave others as they are."""
    return saved_tensors_hooks(
        lambda x: (True, pack(x.detach())) if x.is_floating_point() else (False, x),
        lambda packed: unpack(packed[1]) if packed[0] else packed[1],
    )


def with_gaps(x):
    made = x.new_empty([*x.shape, 3])
    made[..., 1] = x
    return made[..., 1]


def in_larger(x):
    made = x.new_full((x.numel() + 20,), torch.nan)
    made[7 : 7 + x.numel()] = x.flatten()
    return made[7 : 7 + x.numel()].view(x.shape)


HOOKS = {
    "as they are": lambda: floats(lambda x: x, lambda x: x),
    "on the CPU": save_on_cpu,
    "contiguous": lambda: floats(lambda x: x.contiguous(), lambda x: x.clone(memory_format=torch.contiguous_format)),
    "transposed": lambda: floats(
        lambda x: x.permute(*range(x.dim())[::-1]).contiguous(), lambda x: x.permute(*range(x.dim())[::-1])
    ),
    "gaps": lambda: floats(lambda x: x, with_gaps),
    "in a larger one": lambda: floats(lambda x: x, in_larger),
    "widened": lambda: floats(lambda x: x.double(), lambda x: x.float()),
    "wider": lambda: floats(lambda x: x.double(), lambda x: x.double().float().contiguous()),
    "negated": lambda: floats(lambda x: torch.complex(x * 0, -x), lambda x: x.conj().imag),
    "numpy": lambda: floats(lambda x: x.numpy().copy(order="C"), torch.from_numpy),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("hooks", HOOKS)
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.thinned(6)
def test_what_hooks_return_is_read_where_it_lies(name, hooks, dynamic):
    statistics.reset()
    torch.manual_seed(0)
    model = MODELS[name]()
    plain = copy.deepcopy(model)
    call = torch.compile(model, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    for length in (6, 9):
        x = torch.randn(2, length, 8)
        found = []
        for run, its, around in (
            (call, model, HOOKS[hooks]),
            (plain, plain, nullcontext),
        ):  # of gaps eager reads some, too
            its.zero_grad()
            given = x.clone().requires_grad_()
            with around():
                results = run(given)
            results.square().sum().backward()
            found.append([given.grad, *(p.grad.clone() for p in its.parameters())])
        torch.testing.assert_close(*found, rtol=1e-4, atol=1e-4)
    assert not statistics.fallbacks


def test_numbers_that_hooks_change_are_what_gradients_are_computed_from():
    call = torch.compile(lambda x: x.exp(), backend="mlirc", options={"fallback": "error"})
    x = torch.randn(5, 6, requires_grad=True)
    with floats(lambda x: x.bfloat16(), lambda x: x):
        y = call(x)
    (made,) = torch.autograd.grad(y, x, torch.ones_like(y))
    torch.testing.assert_close(made, x.exp().bfloat16().float())


def test_other_sizes_are_an_error():
    call = torch.compile(lambda x: x.exp(), backend="mlirc", options={"fallback": "error"})
    x = torch.randn(5, 6, requires_grad=True)
    with floats(lambda x: x, lambda x: x[:2]):
        y = call(x)
    with pytest.raises(RuntimeError, match=r"returned sizes \[2, 6\] for \[5, 6\]"):
        y.sum().backward()
