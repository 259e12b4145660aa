"""Parameters that become other tensors, are tied, not contiguous, of half types, parametrized, pruned or averaged: each call sees them."""

import warnings

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize, prune
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Conv1D(nn.Module):
    """GPT-2's: packed, and kept."""

    def __init__(self, weight=None, dtype=torch.float32):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(64, 96, dtype=dtype) if weight is None else weight)
        self.bias = nn.Parameter(torch.randn(96, dtype=dtype))

    def forward(self, x):
        return torch.addmm(self.bias, x, self.weight)


def follows(module, x, *changes, limit=1e-5):
    """Before and after each change, in every call, the compiled module gives what the module gives."""
    torch._dynamo.reset()
    compiled = torch.compile(module, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for number, change in enumerate((lambda _: None, *changes)):
            change(module)
            for _ in range(2):
                expected = module(x).double()
                apart = (compiled(x).double() - expected).abs().max() / expected.abs().max()
                assert apart < limit, f"change {number} of {len(changes)}: {apart}"


def other(module):
    return {name: torch.rand_like(x) + 0.5 if x.is_floating_point() else x for name, x in module.state_dict().items()}


def replaced(module):
    module.weight = nn.Parameter(torch.randn_like(module.weight))


def deleted(module):
    weight = module.weight.detach() * 2
    del module.weight
    module.weight = nn.Parameter(weight)


def averaged(module):
    for p in module.parameters():
        p.data.lerp_(torch.randn_like(p), 0.5)


WAYS = [
    replaced,
    lambda m: m.load_state_dict(other(m)),
    lambda m: m.load_state_dict(other(m), assign=True),
    lambda m: torch.utils.swap_tensors(m.weight, nn.Parameter(torch.randn_like(m.weight))),
    deleted,
    lambda m: (m.share_memory(), m.weight.data.add_(1)),
    lambda m: (m.requires_grad_(False), m.weight.data.add_(1)),
    averaged,
    lambda m: torch._foreach_mul_([p.data for p in m.parameters()], 1.5),
    lambda m: nn.utils.vector_to_parameters(nn.utils.parameters_to_vector(m.parameters()) * 1.5, m.parameters()),
    lambda m: nn.init.normal_(m.weight),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_ways_to_give_other_parameters(dtype):
    follows(Conv1D(dtype=dtype), torch.randn(2, 64).to(dtype), *WAYS, limit=1e-5 if dtype is torch.float32 else 2e-2)


def test_weights_that_are_views():
    rows, columns, x = torch.randn(200, 96), torch.randn(64, 200), torch.randn(2, 64)
    double = lambda m: m.weight.data.mul_(2)
    follows(Conv1D(rows[::2][:64]), x, double, lambda m: rows.mul_(2), lambda m: rows.data[2].add_(5))
    follows(Conv1D(columns[:, 3:99]), x, double, lambda m: columns.numpy().__imul__(3))
    follows(Conv1D(torch.randn(96, 64).t()), x, double, replaced)
    follows(Conv1D(torch.randn(64, 1).expand(64, 96)), x, lambda m: m.weight.data[:, :1].mul_(2))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.p, self.q, self.back = Conv1D(), Conv1D(), nn.Linear(96, 64)
        self.q.weight = self.p.weight

    def forward(self, x):
        return self.p(self.back(self.q(x)))


def test_tied_weights():
    double = lambda m: m.p.weight.data.mul_(1.5)

    def untie(module):
        module.q.weight = nn.Parameter(torch.randn(64, 96))

    def tie(module):
        module.q.weight = module.p.weight

    alone = lambda m: m.q.weight.data.mul_(2)
    follows(Tied(), torch.randn(3, 64), double, untie, double, alone, tie, double, limit=1e-4)


class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = 1.0
        self.register_buffer("shift", torch.randn(64, 96))

    def forward(self, weight):
        return weight * self.factor + self.shift


def test_parametrized_and_pruned_weights():
    def factor(module):
        module.parametrizations.weight[0].factor = 3.0

    follows(
        Conv1D(),
        torch.randn(2, 64),
        lambda m: parametrize.register_parametrization(m, "weight", Shifted()),
        lambda m: m.parametrizations.weight[0].shift.data.mul_(2),
        lambda m: m.parametrizations.weight.original.data.add_(1),
        factor,
        lambda m: parametrize.remove_parametrizations(m, "weight"),
        lambda m: m.weight.data.add_(1),
        lambda m: prune.l1_unstructured(m, "weight", 0.5),
        lambda m: m.weight_mask.data.bernoulli_(0.3),
        lambda m: prune.remove(m, "weight"),
        lambda m: m.weight.data.add_(1),
    )


def test_an_averaged_model():
    source = Conv1D()
    model = AveragedModel(Conv1D(), multi_avg_fn=get_ema_multi_avg_fn(0.5))
    update = lambda m: (source.weight.data.mul_(2), m.update_parameters(source))
    follows(model, torch.randn(2, 64), update, update, lambda m: m.module.weight.data.zero_())


class Captures(nn.Module):
    """Tensors in closures, attributes, lists and dicts."""

    def __init__(self, captured):
        super().__init__()
        self.plain, self.listed, self.named = torch.randn(64, 96), [torch.randn(64, 96)], {"k": torch.randn(64, 96)}
        self.of_closure = lambda x: x @ captured[0].exp()

    def forward(self, x):
        return self.of_closure(x) + x @ self.plain.exp() + x @ self.listed[0].exp() + x @ self.named["k"].exp()


def test_tensors_that_are_no_parameters():
    captured = [torch.randn(64, 96)]
    follows(
        Captures(captured),
        torch.randn(2, 64),
        lambda m: captured[0].data.mul_(2),
        lambda m: captured.__setitem__(0, torch.randn(64, 96)),
        lambda m: captured[0].numpy().__imul__(0.5),
        lambda m: m.plain.data.mul_(2),
        lambda m: setattr(m, "plain", torch.randn(64, 96)),
        lambda m: m.listed[0].data.zero_(),
        lambda m: m.listed.__setitem__(0, torch.randn(64, 96)),
        lambda m: m.named.update(k=torch.randn(64, 96)),
        limit=1e-4,
    )
