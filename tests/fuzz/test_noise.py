"""Where eager contradicts itself: what the judge takes either answer for is shown to have two in eager."""

import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from tests.fuzz.calls import in_thread
from tests.fuzz.compare import different
from tests.fuzz.noise import Noise


def both(f, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In vectors, and one element at a time."""
    return f(x), f(torch.stack([x, x], -1)[..., 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gelu_of_infinity(dtype):
    in_vectors, alone = both(F.gelu, torch.full((64,), math.inf, dtype=dtype))
    assert in_vectors[:32].isnan().all() and (alone == math.inf).all()


def test_the_gradient_of_logit_at_minus_zero():
    in_vectors, alone = both(lambda x: torch.ops.aten.logit_backward(torch.ones_like(x), x), torch.full((64,), -0.0))
    assert (in_vectors[:32] == -math.inf).all() and (alone == math.inf).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("f", [F.elu, F.celu, F.selu])
def test_the_gradient_of_elu_at_nan(f, dtype):
    """The last elements of 81 are not in a vector: the judge takes either answer for each."""

    def gradient(x):
        x = x.detach().requires_grad_()
        return torch.autograd.grad(f(x), x, torch.ones_like(x))[0]

    x = torch.full((81,), math.nan, dtype=dtype)
    in_vectors, alone = both(gradient, x)
    assert in_vectors[:64].isnan().all() and not in_vectors[80].isnan() and not alone.isnan().any()
    found = torch.stack(draws(gradient, x))
    assert (found.isnan().any(0) & found.isfinite().any(0)).all()


def test_both_infinities_will_do():
    x, weight = torch.tensor([-0.0, 0.5]).repeat(20), torch.full((40,), -1.0)
    found = draws(lambda x: torch.ops.aten.logit_backward(weight, x), x)
    eager = torch.ops.aten.logit_backward(weight, x)
    assert eager[0] == math.inf and any(y[0] == -math.inf for y in found)
    ours = eager.clone()
    ours[0] = -math.inf
    assert different(eager, ours, None)[0] and not different(eager, ours, found).any()
    ours[1] = math.inf  # of a number
    assert different(eager, ours, found)[1]


def test_remainders_of_quotients_that_overflow():
    in_vectors, alone = both(lambda x: torch.fmod(x, torch.full_like(x, 1e-44)), torch.full((64,), 1.1))
    assert in_vectors[:32].isnan().all() and not alone.isnan().any()


def test_products_have_an_order():
    x = torch.tensor([1e-30, 1e-30, math.inf])
    assert x.prod().isnan() and x.flip(0).prod() == math.inf
    rows = torch.ones(2, 64)
    rows[:, 0], rows[:, 1], rows[:, -1] = 1e-30, 1e-30, math.inf
    assert {
        rows.prod(1)[0].isnan().item(),
        rows.t().contiguous().prod(0)[0].isnan().item(),
        rows.flip(1).prod(1)[0].isnan().item(),
    } == {
        True,
        False,
    }


def draws(f, *args) -> list:
    results = []
    for seed in range(10):
        with Noise(seed):
            results.append(f(*args))
    return results


def test_noise_knows_both_answers():
    x = torch.full((64,), math.inf)
    found = torch.stack(draws(F.gelu, x))
    assert found.isnan().any() and found.isinf().any()
    assert len({y.item() for y in draws(lambda x: torch.log2(x).view(torch.int32)[0], torch.full((8,), -1.0))}) == 2


def test_noise_keeps_a_half_types_range():
    x = torch.full((4,), 40000.0).half()
    found = torch.stack(draws(lambda x: torch.sub(x, x, alpha=2.0), x))
    assert found.isinf().any() and found.isfinite().any()
    assert torch.stack(draws(lambda x: x * 1e-9, torch.ones(4).half())).ne(0).any()


def test_noise_leaves_what_overflows_by_itself():
    """One operation whose result is beyond the range, in float32 too, is infinite for everybody."""
    assert torch.stack(draws(torch.exp, torch.full((4,), 300.0).half())).isinf().all()


def test_noise_leaves_inference_mode_as_a_thread_does():
    for mode in (nullcontext(), Noise(0)):
        with mode, torch.inference_mode():
            x = in_thread(torch.ones, 2, 3)
        assert not x.is_inference() and x.t_().shape == (3, 2)
