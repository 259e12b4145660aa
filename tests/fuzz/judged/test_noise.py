"""Where eager contradicts itself: what the judge takes either answer for is shown to have two in eager."""

import math
from contextlib import nullcontext

import pytest
import torch
import torch.nn.functional as F

from tests.fuzz import compare
from tests.fuzz.calls import in_thread
from tests.fuzz.compare import different
from tests.fuzz.judge import NOISY_RUNS, another_attention
from tests.fuzz.kinds.control_flow import in_python
from tests.fuzz.noise import Noise

IN_VECTORS = (
    math.nan if torch.backends.cpu.get_cpu_capability() == "AVX512" else math.inf
)  # gelu of infinity: wider ones differ


def both(f, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """In vectors, and one element at a time."""
    return f(x), f(torch.stack([x, x], -1)[..., 0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_gelu_of_infinity(dtype):
    in_vectors, alone = both(F.gelu, torch.full((64,), math.inf, dtype=dtype))
    known = (
        [IN_VECTORS] if dtype != torch.float16 else [math.nan, math.inf]
    )  # of float16 processors with AVX-512 differ
    same = [torch.equal(in_vectors[:32].isnan(), torch.full((32,), x).isnan()) for x in known]
    assert any(same) and (alone == math.inf).all()


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


def test_noise_multiplies_the_smallest_factors_first():
    """A row of 17, which a vector of lanes and a loop multiply in orders of their own, of which only few are NaN."""
    x = torch.full((17,), 2.0)
    x[1], x[9], x[15] = 1e-30, math.inf, 1e-30
    assert x.prod() == math.inf
    found = []
    for seed in range(NOISY_RUNS):
        with Noise(seed):
            found.append(x.prod().item())
    assert any(map(math.isnan, found)) and math.inf in found


def draws(f, *args) -> list:
    results = []
    for seed in range(10):
        with Noise(seed):
            results.append(f(*args))
    return results


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("product", [torch.mm, lambda x, y: F.conv2d(x[..., None, None], y.t()[..., None, None])])
def test_a_sum_of_products_is_rounded_by_its_largest(product, dtype):
    """Eager's own two orders differ by more than the last bit of the result: the noise reaches as far, and no farther."""
    torch.manual_seed(0)
    x, y = torch.randn(8, 40, dtype=dtype), torch.randn(40, 1, dtype=dtype)
    y[-1] -= 1000 * torch.sign(y[-1])
    x[:, -1] = -(x[:, :-1] @ y[:-1])[:, 0] / y[-1]  # little is left
    one, other = product(x, y), product(x.flip(1), y.flip(0))
    apart = (one - other).abs().flatten()
    assert (apart > 4 * torch.finfo(dtype).eps * one.abs().flatten()).any()
    found = draws(lambda: product(x, y))
    most = torch.finfo(dtype).eps * (x.abs() @ y.abs())[:, 0]
    assert not different(one, other, found).any()
    assert different(one, one + 8 * most.view_as(one), found).any()


def test_an_attention_is_rounded_by_its_scores():
    """Eager's own two ways, of float64 with scores near 30, differ by what the noise knows."""
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, 7, 8, dtype=torch.float64) * 1.5 for _ in range(3))
    flash = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
    one = flash(query, key, value, scale=2.0)[0]
    other = torch.ops.aten._scaled_dot_product_attention_math(query, key, value, scale=2.0)[0]
    assert different(one, other, None).any()
    found = draws(lambda: flash(query, key, value, scale=2.0)[0])
    assert not different(one, other, found).any()
    assert different(one, one + 1e-12, found).any()


def test_noise_knows_both_answers():
    x = torch.full((64,), math.inf)
    found = torch.stack(draws(F.gelu, x))
    assert found.isnan().any() == math.isnan(IN_VECTORS) and found.isinf().any()
    assert len({y.item() for y in draws(lambda x: torch.log2(x).view(torch.int32)[0], torch.full((8,), -1.0))}) == 3


def test_noise_knows_all_bits_of_nan():
    x = torch.tensor([math.nan, 1.0]).repeat(8)
    eager = torch.maximum(x, x).view(torch.uint8)
    found = draws(lambda x: torch.maximum(x, x).view(torch.uint8), x)
    assert not different(eager, torch.where(x.isnan(), math.nan, x).view(torch.uint8), found).any()
    assert different(eager, (x + 1).view(torch.uint8), found).any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_a_logarithm_of_a_sum_near_one(dtype):
    """It has the rounding of the sum: eager's float16 keeps the sum in float16."""
    x = torch.zeros(3, 400, dtype=dtype)
    x[:, 0] = -math.log(torch.finfo(dtype).eps)
    eager, found = F.log_softmax(x, 1), draws(lambda x: F.log_softmax(x, 1), x)
    exact = F.log_softmax(x.double(), 1)
    assert not different(eager, exact.to(dtype), found).any()
    assert different(eager, eager * 1.5 - 1, found).all()


def test_sums_have_any_order():
    x = torch.tensor([-1.8, -3e9, 0.25, 3e9, -0.5])
    found = torch.stack(draws(lambda x: x.sum() * math.inf, x))
    assert (found == math.inf).any() and (found == -math.inf).any()
    assert not different(found[0], torch.tensor(math.nan), list(found)).any()


def test_a_result_in_a_wider_type_is_rounded_as_it_was_computed():
    given = torch.tensor([True])
    out = torch.empty(1, dtype=torch.float64)
    found = draws(lambda x: torch.sin(x, out=torch.empty(1, dtype=torch.float64)), given)
    ours = torch.tensor([0.8414710164070129], dtype=torch.float64)
    assert not different(torch.sin(given, out=out), ours, found).any()
    assert different(out, ours + 1e-5, found).any()


def test_operations_in_place_keep_a_half_types_range():
    x = torch.full((4,), 40000.0).half()
    found = torch.stack(draws(lambda x: x.clone().add_(x), x))
    assert found.isinf().any() and found.isfinite().any()


def test_a_layer_norm_of_one_element():
    """Eager's is what is left of x * r - x * r."""
    x = torch.tensor([-0.29296875]).bfloat16()
    found = torch.stack(draws(lambda x: F.layer_norm(x, (1,)), x))
    assert F.layer_norm(x, (1,)) != 0 and (found == 0).any()


@pytest.mark.parametrize(
    "norm", [lambda x: F.layer_norm(x, (16,)), lambda x: F.group_norm(x.view(64, 1, 16), 1)], ids=["layer", "group"]
)
def test_a_norm_of_an_element_that_is_the_mean(norm):
    """Eager's is what is left of x * r - mean * r, which is true as a bool."""
    x = torch.randint(-2, 3, (64, 16), generator=torch.Generator().manual_seed(0)).float()
    mean = (x == x.double().mean(-1, keepdim=True)).view(norm(x).shape)
    found = torch.stack(draws(norm, x))[:, mean]
    assert mean.any() and (found == 0).all(1).any() and (found != 0).any()


def test_a_batch_norm_of_equal_numbers():
    """It is 0 in a formula of differences from the mean, and in eager what is left: a norm's gradient there is 0, or a direction."""
    x = torch.full((9, 3), 0.1)
    norm = lambda: F.batch_norm(torch.hypot(x, x + 1), None, None, training=True)
    found = []
    for seed in range(20):
        with Noise(seed):
            found.append(norm())
    assert any((y == 0).all() for y in found) and any((y != 0).any() for y in found)


def test_inference_mode_interpolates_as_eager_does():
    """Python's decomposition has positions of floating-point numbers, of which noise makes others."""
    x = torch.randn(1, 2, 7, 8)
    with torch.inference_mode():
        expected = F.interpolate(x, scale_factor=1.5, mode="nearest")
        found = draws(lambda: F.interpolate(x, scale_factor=1.5, mode="nearest"))
    for y in found:
        torch.testing.assert_close(y, expected)


def test_inference_mode_has_noise_inside_of_composite_operations():
    q, k, mask = torch.randn(2, 3, 17, 5), torch.zeros(2, 3, 1, 5), torch.eye(17, 1).bool()
    results = []
    for seed in range(4):
        with Noise(seed), torch.inference_mode():
            results.append(F.scaled_dot_product_attention(q, k, k, attn_mask=mask).signbit())
    assert torch.stack(results).any(0).any() and not torch.stack(results).all(0).all()


def test_noise_keeps_a_half_types_range():
    x = torch.full((4,), 40000.0).half()
    found = torch.stack(draws(lambda x: torch.sub(x, x, alpha=2.0), x))
    assert found.isinf().any() and found.isfinite().any()
    assert torch.stack(draws(lambda x: x * 1e-9, torch.ones(4).half())).ne(0).any()


def test_noise_leaves_what_overflows_by_itself():
    """One operation whose result is beyond the range, in float32 too, is infinite for everybody."""
    assert torch.stack(draws(torch.exp, torch.full((4,), 300.0).half())).isinf().all()


@pytest.mark.parametrize("form", ["whole", "transposed", "expanded", "conjugated", "a slice", "0-d", "empty"])
def test_noise_keeps_infinities_of_complex_numbers(form):
    """A gelu of their real parts has either answer: times a real number, two infinities would be NaN."""
    x = torch.tensor([[complex(math.inf, -math.inf), complex(1.0, math.inf)], [complex(-math.inf, 2.0), 3.0]])
    forms = {"whole": x, "transposed": x.T, "expanded": x[:, None].expand(2, 3, 2), "conjugated": x.conj()}
    x = (forms | {"a slice": x[:, ::2], "0-d": x[0, 0], "empty": x[:0]})[form]
    shaken = Noise(1).shake(x)
    assert shaken.stride() == x.clone().stride()
    torch.testing.assert_close(torch.view_as_real(shaken.resolve_conj()), torch.view_as_real(x.resolve_conj()))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
@pytest.mark.parametrize("written", ["in place", "out"])
def test_a_complex_zero_with_the_sign_of_a_nan(dtype, written):
    """C leaves the signs of exp(-inf + nan * i) open: eager's are those of the NaN, which a product made."""
    x = torch.tensor([complex(-math.inf, 0.5), 1.0], dtype=dtype)

    def f(x):
        x = x.clone().mul_(1) if written == "in place" else torch.mul(x, 1, out=torch.empty_like(x))
        return torch.exp(x, out=x)

    eager, found = f(x), draws(f, x)
    assert different(eager, eager.conj().resolve_conj(), found).tolist() == [False, True]
    assert different(eager, eager + 1, found).all()


INTEGERS = [torch.uint8, torch.int32, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
@pytest.mark.parametrize(
    "f", [torch.cosh, torch.sinh, torch.exp, torch.sin, torch.tan, torch.lgamma, lambda x: x / 3, lambda x: x * 0.1]
)
def test_functions_of_integers_are_those_of_exact_numbers(f, dtype):
    """Of 89 a vector of eager's has cosh infinite, which in float64 is 2.24e38. Another number, as of an integer that is not rounded to the
    result's dtype, has no excuse."""
    x = torch.tensor([89, 1, 0, 101, 2**24 + 1, 2**24 + 3] * 8).to(dtype)
    eager, found = f(x), draws(f, x)
    assert not different(eager, f(x.to(eager.dtype).double()).to(eager.dtype), found).any()
    sure = torch.stack(found).isfinite().all(0)
    assert sure.any() and different(eager, eager * 1.001 + 1e-3, found)[sure].all()


def test_integers_beside_real_numbers_stay_beside_them():
    """Repeated or apart, both are."""
    x, n = torch.linspace(0.5, 2, 64), torch.arange(64)
    for y in draws(torch.mul, x, n):
        torch.testing.assert_close(y, x * n)


def test_noise_keeps_signs_of_zeros():
    x = torch.tensor([-0.0, 0.0]).repeat(32)
    for seed in range(8):
        assert torch.equal(Noise(seed).shake(x).signbit(), x.signbit())


@pytest.mark.parametrize("mask", ["bool", "float", "rows hidden by the lowest number"])
def test_a_mask_replaces_scores_in_some_runs(mask):
    q, k, v = torch.rand(1, 2, 5, 4), torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4)
    shown = torch.ones(5, 5, dtype=torch.bool).tril()
    low = torch.where(shown, 0.0, torch.finfo(torch.float32).min)
    low[2] = torch.finfo(torch.float32).min
    given = {"bool": shown, "float": torch.where(shown, 0.0, -torch.inf)}.get(mask, low)
    expected = F.scaled_dot_product_attention(q, k, v, given)
    with another_attention(3):
        torch.testing.assert_close(F.scaled_dot_product_attention(q, k, v, attn_mask=given), expected)
        k[0, 0, 4] = torch.inf
        assert F.scaled_dot_product_attention(q, k, v, given)[0, 0, :2].isfinite().all()
    assert F.scaled_dot_product_attention(q, k, v, given)[0, 0].isnan().any()


def test_noise_leaves_inference_mode_as_a_thread_does():
    for mode in (nullcontext(), Noise(0)):
        with mode, torch.inference_mode():
            x = in_thread(torch.ones, 2, 3)
        assert not x.is_inference() and x.t_().shape == (3, 2)


def test_a_product_whose_largest_factors_come_first():
    """Of 16 factors 14 are small: hardly any random order overflows before the zero."""
    x = torch.tensor([1e-4] * 7 + [0.0] + [1e-4] * 7 + [3e38, 3e38], dtype=torch.float32)
    assert x.prod() == 0 and x.sort(descending=True).values.prod().isnan()
    assert any(y.isnan() for y in draws(lambda x: x.prod(), x))


def test_a_sum_that_cancels_may_be_zero():
    """Eager's has one rounding or another; a number that is more than rounding stays."""
    x = torch.tensor([1.0, 1e-7, -1.0]).repeat(5)
    found = torch.stack(draws(lambda x: x.sum(), x))
    assert (found == 0).any() and (found != 0).any()
    assert all(y != 0 for y in draws(lambda x: x.sum(), torch.tensor([1.0, 1e-3, -1.0])))


CANCELLING = {
    "std_mean": lambda x: torch.std_mean(x, 0)[1],
    "var_mean": lambda x: torch.var_mean(x)[1],
    "dot": lambda x: torch.dot(x, torch.ones_like(x)),
    "matmul": lambda x: x[None] @ torch.ones_like(x)[:, None],
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", CANCELLING)
def test_what_cancels_in_a_mean_or_a_product_may_be_zero(name, dtype):
    """Divided by itself it is 1 or NaN."""
    x = torch.tensor([0.3, 1.1, -0.7, -0.7, 1e-16], dtype=dtype)
    found = torch.stack(draws(CANCELLING[name], x))
    assert (found == 0).any() and (found != 0).any()
    x[-1] = 1e-3
    assert all(y != 0 for y in draws(CANCELLING[name], x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_bias_before_a_normalization_has_no_gradient(dtype):
    """It is what rounding leaves of a sum, of one sign or the other: an optimizer makes a step of it that is none of rounding."""
    torch.manual_seed(0)
    grad = torch.randn(2, 3, dtype=dtype)
    grad[1] = -grad[0] * (1 + torch.finfo(dtype).eps)
    x, saved = torch.randn(2, 3, dtype=dtype), torch.ones(3, dtype=dtype)

    def bias(grad):
        args = (grad, x, saved, saved, saved, saved, saved, True, 1e-5, [True, True, True])
        return torch.ops.aten.native_batch_norm_backward(*args)[2]

    assert bias(grad).abs().max() > 0
    assert any((y == 0).all() for y in draws(bias, grad))


def test_the_last_bit_of_a_subnormal_number():
    """Half a number's range is subnormal: what rounding takes from there decides a zero's sign."""
    x = torch.full((40,), 6e-8, dtype=torch.float16)
    found = torch.stack(draws(lambda x: x * 1, x))
    assert (found == 0).any() and (found > 6e-8).any()
    assert (torch.stack(draws(lambda x: x * 1, x * 0)) == 0).all()


def test_a_logarithm_near_the_smallest_number():
    """Eager's exponential in vectors ends before the smallest number; a remainder by x makes that 0 or x."""
    x = torch.full((64,), 103.0)
    found = [y[0].item() for y in draws(F.logsigmoid, x)]
    assert F.logsigmoid(x)[0] == 0 and any(y == 0 for y in found) and any(-1e-44 < y < 0 for y in found)


FUNCTIONS = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda p: (p.sin(), p + 1), lambda p: (p.cos(), p - 1), (x,)),
    "while_loop": lambda x: torch._higher_order_ops.while_loop(
        lambda i, p: i < 3, lambda i, p: (i + 1, p.sin()), (torch.zeros((), dtype=torch.int64), x)
    ),
    "while_loop, not once": lambda x: torch._higher_order_ops.while_loop(
        lambda p, q: p.sum() < -1e9, lambda p, q: (q.sin(), p.sin()), (x, x.exp())
    ),
    "scan": lambda x: torch._higher_order_ops.scan(lambda c, z: (c.sin() + z, c * z), x[0] + 1, x, reverse=True),
    "map": lambda x: torch._higher_order_ops.map(lambda z, y: z.exp() * y, x, x[0] + 1),
    "associative_scan": lambda x: torch._higher_order_ops.associative_scan(
        lambda p, q: p * q, x, 0, combine_mode="generic"
    ),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_noise_reaches_functions_that_operators_take(name, gradients):
    """Nearly eager's results, and not quite."""
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)) + 0.5
    x.requires_grad_(gradients and "while_loop" not in name)
    torch._dynamo.reset()
    expected = torch.utils._pytree.tree_leaves(FUNCTIONS[name](x))
    found = []
    for seed in range(6):
        with in_python(), Noise(seed):
            found.append(torch.utils._pytree.tree_leaves(FUNCTIONS[name](x)))
    for results in found:
        torch.testing.assert_close(results, expected)
    assert any(not torch.equal(a, b) for results in found for a, b in zip(results, expected, strict=True))


def test_what_cancels_in_a_half_type_may_be_what_is_left_in_a_wider_one():
    x = torch.full((4,), -8.71, dtype=torch.float16)
    target = x.sigmoid()

    def loss(x):
        return F.binary_cross_entropy_with_logits(x, target, reduction="none")

    wide = F.binary_cross_entropy_with_logits(x.double(), target.double(), reduction="none")
    assert (loss(x) < wide / 100).all()
    assert any(torch.allclose(y.double(), wide, rtol=0.05) for y in draws(loss, x))


@pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.int64])
def test_many_values_are_compared_in_parts(dtype, monkeypatch):
    one = torch.randn(7, 9).mul(4).to(dtype).mT
    other, found = one + (torch.arange(7) == 3).to(dtype), [one, one + (torch.arange(9) == 5).to(dtype)[:, None]]
    whole = [different(one, other, noisy) for noisy in (None, found)]
    monkeypatch.setattr(compare, "PART", 10)
    for noisy, expected in zip((None, found), whole, strict=True):
        assert torch.equal(different(one, other, noisy), expected) and expected.any()


@pytest.mark.parametrize("asked", [None, torch.float32], ids=str)
@pytest.mark.parametrize("order", [-2, 0.5, 1, 3])
def test_a_norm_is_that_of_a_wide_sum(order, asked):
    """Eager adds one number after another, which loses digits: some run with noise is as far from it as the exact norm, or farther."""
    x = torch.rand(20_000, generator=torch.Generator().manual_seed(0)) + 0.1
    norm = lambda x, dtype=asked: torch.linalg.vector_norm(x, order, dtype=dtype)
    exact, eager = norm(x.double(), None), norm(x)
    assert abs(eager - exact) > torch.finfo(torch.float32).eps * exact
    assert not different(eager, exact.float(), draws(norm, x)).any()
    assert different(eager, 1.01 * exact.float(), draws(norm, x)).all()


@pytest.mark.parametrize(("dtype", "exponent"), [(torch.complex128, 0.5), (torch.float64, 2), (torch.float64, 1)])
def test_a_norm_of_equal_numbers_in_float64(dtype, exponent):
    """Each addition rounds the same way: the norm is off by more than a few last bits, and the judge takes what is nearer for right."""
    x = torch.full((4, 65, 8), 2.1, dtype=dtype)
    norms = []
    for seed in range(20):
        with Noise(seed):
            norms.append(torch.linalg.vector_norm(x, exponent).item())
    exact = math.fsum([abs(2.1) ** exponent] * x.numel()) ** (1 / exponent)
    assert min(norms) <= exact <= max(norms)
    with Noise(0):
        assert torch.linalg.vector_norm(x, math.inf).item() == pytest.approx(2.1, rel=1e-15)
