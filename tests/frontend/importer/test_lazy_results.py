"""Results that conjugate or negate what is in memory, by random chains of views of computed tensors; and complex results that are no views."""

import random

import pytest
import torch

from mlirc.frontend.torch_compat.fake_tensors import is_view

STEPS = {
    "conj": lambda x: x.conj(),
    "neg": lambda x: torch._neg_view(x),  # pyright: ignore[reportPrivateImportUsage]
    "mH": lambda x: x.mH,
    "t": lambda x: x.transpose(-2, -1),
    "rows": lambda x: x[..., 1:, :],
    "one row": lambda x: x[1:2],
    "imag": lambda x: x.imag if x.is_complex() else x,
    "real": lambda x: x.real if x.is_complex() else x,
    "unsqueeze": lambda x: x.unsqueeze(1).squeeze(1),
    "expand": lambda x: x[:1].expand(3, *x.shape[1:]),
    "detach": lambda x: x.detach(),
    "split": lambda x: x.split(2)[-1],
}
COMPUTED = {
    "a product": lambda x: x * 2,
    "parts": lambda x: (x.exp() * 2 + 1) * x,
    "of a library": lambda x: x @ x,
    "real": lambda x: x.abs() - 1,
}


def facts(x):
    lies = (x.stride(), x.storage_offset()) if x.numel() else ()
    return x.is_conj(), x.is_neg(), x.dtype, x.shape, lies, x.requires_grad


def program(seed):
    rng = random.Random(seed)
    make = COMPUTED[rng.choice(list(COMPUTED))]
    chains = [[STEPS[rng.choice(list(STEPS))] for _ in range(rng.randint(1, 5))] for _ in range(rng.randint(1, 2))]
    apart = rng.random() < 0.7

    def run(x):
        y, results = make(x), []
        for chain in chains:
            z = y
            for step in chain:
                z = step(z)
            results.append(z)
            y = make(x + 1) if apart else y
        return results

    return run


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("seed", range(6))
def test_chains_of_views(seed, dynamic):
    f = program(seed)
    torch._dynamo.reset()
    compiled = torch.compile(f, backend="mlirc", dynamic=dynamic)
    for size in (4, 6) if dynamic else (4, 4):
        x = torch.randn(size, size, dtype=torch.complex64, generator=torch.Generator().manual_seed(size))
        for needs in (False, True):
            made, wanted = compiled(x.clone().requires_grad_(needs)), f(x.clone().requires_grad_(needs))
            for y, z in zip(made, wanted, strict=True):
                assert facts(y) == facts(z)
                torch.testing.assert_close(y.resolve_conj().resolve_neg(), z.resolve_conj().resolve_neg())
        for y, z in zip(compiled(x), f(x), strict=True):
            if 0 not in z.stride():  # what the user writes goes to the memory behind the flags
                torch.testing.assert_close(y.mul_(3).clone(), z.mul_(3).clone())


CHAINS = {
    "products": lambda x: x * 2j + x,
    "exponentials": lambda x: torch.exp(x * 1j) * 2 + 1,
    "complex()": lambda x: torch.complex(x.sin(), x.cos()) * 1j * x,
    "beside a real one": lambda x: (torch.exp(x * 1j) * x, x * 3)[0],
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode, torch.enable_grad])
@pytest.mark.parametrize("name", CHAINS)
def test_computed_parts_are_no_views(name, mode):
    """A view that is made without gradients must not be written to with gradients."""
    f = CHAINS[name]
    torch._dynamo.reset()
    with mode():
        x = torch.ones(16, 16)
        y = torch.compile(f, backend="mlirc", options={"fallback": "error"})(x)
    assert not is_view(y)
    torch.testing.assert_close(y, f(x))
    if not y.is_inference():
        y.mul_(torch.ones((), requires_grad=True)).real.sum().backward()
