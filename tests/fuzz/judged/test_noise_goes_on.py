"""Programs with noise run where eager does: a run that ends early says nothing of what comes after."""

import pytest
import torch
import torch.nn.functional as F

from tests.fuzz import judge, tensors
from tests.fuzz.compare import different
from tests.fuzz.judge import another_attention, broken_noise
from tests.fuzz.judged.test_noise import draws
from tests.fuzz.kinds.control_flow import in_python
from tests.fuzz.noise import Noise
from tests.fuzz.observe import Trace


def test_attention_without_a_mask_is_as_it_was():
    q, k, v = torch.rand(3, 1, 2, 5, 4)
    expected = F.scaled_dot_product_attention(q, k, v)
    with another_attention(3):
        assert torch.equal(F.scaled_dot_product_attention(q, k, v), expected)


OF_EQUALS = {
    "unique": torch.unique,
    "unique_consecutive": torch.unique_consecutive,
    "unique of rows": lambda x: torch.unique(x, dim=0),
    "median": lambda x: x.median(),
    "mode": lambda x: x.mode().values,
    "kthvalue": lambda x: x.kthvalue(2).values,
    "isin": lambda x: torch.isin(x, torch.full((1,), 0.1)),
    "bucketize": lambda x: torch.bucketize(x, torch.full((1,), 0.1)),
    "searchsorted": lambda x: torch.searchsorted(torch.full((1,), 0.1), x),
}


@pytest.mark.parametrize("name", OF_EQUALS)
def test_what_rounds_nothing_has_no_noise(name):
    """Of equal numbers it would make several, and another size."""
    x = torch.full((30,), 0.1)
    expected = OF_EQUALS[name](x)
    assert all(torch.equal(y, expected) for y in draws(OF_EQUALS[name], x))


@pytest.mark.parametrize("values", ["special", "extreme"])
def test_inputs_are_drawn_once(values):
    """Those of another draw would explain any difference."""
    x = tensors.tensor((200,), torch.float32, 1, values)
    for y in draws(tensors.tensor, (200,), torch.float32, 1, values):
        torch.testing.assert_close(y, x, equal_nan=True)


@pytest.mark.parametrize("shape", [(), (3, 4)])
def test_a_sum_with_a_zero_without_memory(shape):
    """Eager asks meta tensors for its shape."""
    zero, x = torch._efficientzerotensor(shape, dtype=torch.float32), torch.randn(shape)
    for y in draws(torch.add, zero, x):
        torch.testing.assert_close(y, x)


def test_a_scan_of_another_half_type_than_autocasts():
    scan = lambda x: torch._higher_order_ops.scan(lambda c, z: (c.sin() + z, c * z), x[0] + 1, x)
    x = torch.rand(4, 3, generator=torch.Generator().manual_seed(0)).half()
    with torch.autocast("cpu", torch.bfloat16):
        expected = scan(x)
        with in_python(), Noise(0):
            torch.testing.assert_close(scan(x), expected, rtol=0.01, atol=0.01)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.complex64], ids=str)
@pytest.mark.parametrize("sizes", [(1, 2), (2, 1), (2, 3)])
def test_noise_runs_where_a_convolution_gives_nothing(sizes, dtype):
    """Eager refuses such a transposed convolution in float64, and in float16 on processors for which oneDNN has none."""
    x, weight = torch.ones(2, 3, *sizes, dtype=dtype), torch.ones(3, 4, 2, 2, dtype=dtype)
    found = lambda: F.conv_transpose2d(x, weight, stride=2, padding=1)
    try:
        shape = found().shape
    except RuntimeError:
        assert dtype == torch.float16
        with pytest.raises(RuntimeError, match="Output size is too small"):
            draws(found)
    else:
        assert [y.shape for y in draws(found)] == [shape] * 10


def test_the_judge_says_where_its_noise_ends():
    """A difference may be rounding then."""
    whole, early = Trace([[], []]), Trace([[]], ValueError("no"))
    (told,) = broken_noise(whole, [early, early])
    assert told.kind == "error of the judge" and "ValueError: no" in told.text
    assert not broken_noise(whole, [early, whole]) and not broken_noise(early, [early]) and not broken_noise(whole, [])


@pytest.mark.parametrize("value", [1.0, 1.0001, 1.1])
def test_a_write_that_eager_refuses_is_a_limit_beside_a_rounding(value, monkeypatch):
    def run(program, backend, options=None, noise=None):
        trace = Trace()
        trace.see(torch.tensor(value if backend == "mlirc" else 1.0 + 1e-3 * (noise or 0)))
        if backend != "mlirc":
            trace.error = RuntimeError("a variable has been modified by an inplace operation")
        return trace

    monkeypatch.setattr(judge, "run", run)
    monkeypatch.setattr(judge, "NOISY_RUNS", 2)
    monkeypatch.setattr(judge, "MORE_RUNS", 2)
    verdict = judge.judge("OPTIONS = {}")
    assert verdict.kind == ("bug" if value == 1.1 else "limit")


def test_digamma_near_its_zero_has_the_rounding_of_its_terms():
    """At 1.377 terms from ln 10 on make -0.085: two right kernels differ by 9e-16."""
    x = torch.full((4, 4), 1.3773076577944747, dtype=torch.float64)
    found = torch.stack(draws(torch.digamma, x))
    assert (found.amax(0) - found.amin(0)).max() >= 8e-16
    assert (found - torch.digamma(x)).abs().max() < 3e-15


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128], ids=str)
def test_parts_of_complex_products_are_rounded_as_the_number_is(dtype):
    """A part that cancels has any sign, or is zero; one that is a sum of zeros stays, and so does a number of normal size but for its last bits."""
    tiny = torch.finfo(dtype).tiny
    x = torch.tensor([1.5 + 0.75j, complex(tiny, 0), 2, 3j, 1.5 + 0.75j], dtype=dtype)
    y = torch.tensor([1.5 + 0.75j, complex(-tiny, 0.1), 5, 4j, 0.3 - 2j], dtype=dtype)
    eager, found = x / y, draws(lambda x: x / y, x)
    other = torch.view_as_real(eager.clone())
    other[0, 1], other[1, 0] = -torch.finfo(dtype).tiny, 0.0
    assert not different(eager, torch.view_as_complex(other), found).any()
    assert different(eager, torch.view_as_complex(-other).conj().resolve_conj(), found)[2:].all()
    assert different(eager, eager * (1 + 100 * torch.finfo(dtype).eps), found)[4]
    sums = draws(lambda x: 1 / torch.addcdiv(torch.full_like(x, -1), x, x), x[:1])
    assert any(s.isinf().any() or s.isnan().any() for s in sums)
    assert all(s.isfinite().all() for s in draws(lambda x: 1 / torch.addcdiv(torch.ones_like(x), x, x), x[:1]))


WRITTEN = {
    "cond": lambda x: torch.cond(x.sum() > 0, lambda p: p.softmax(-1), lambda p: p.exp(), (x,)),
    "scan": lambda x: torch._higher_order_ops.scan(lambda c, z: (c.softmax(-1), z.exp()), x[0] * 2, x)[0],
    "scanned": lambda x: torch._higher_order_ops.scan(lambda c, z: (c.softmax(-1), z.exp()), x[0] * 2, x)[1],
    "associative_scan": lambda x: torch._higher_order_ops.associative_scan(
        lambda p, q: p * q, x, 0, combine_mode="generic"
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_results_of_control_flow_that_are_written_to(name):
    """Eager keeps none of them for the gradient, so that it goes on."""

    def program():
        x = torch.linspace(-1, 2, 12).reshape(3, 4).requires_grad_()
        y = WRITTEN[name](x)
        y.square_()
        return torch.autograd.grad(y.sum(), x)[0]

    expected = program()
    for seed in range(3):
        with in_python(), Noise(seed):
            torch.testing.assert_close(program(), expected)


def test_a_zero_of_a_least_squares_solution_has_any_sign(monkeypatch):
    """A last bit of the matrix decides in eager, and whether it is one of two."""
    matrix = torch.tensor([[1.2156, -0.7617, 0], [-0.7617, 2.525, 0], [0, 0, 2.1]])
    x = torch.tensor([[1.0139, -1.5, 0.0]]).mT
    signs = set()
    for k in range(64):
        other = matrix * (1 + (torch.arange(9).reshape(3, 3) * k % 3 - 1) * 2**-23)
        signs |= {bool(torch.linalg.lstsq(y, x).solution[2].signbit()) for y in (other, other.mT)}
    assert signs == {False, True}
    monkeypatch.setattr(Noise, "shake", lambda self, x: x)
    found = draws(lambda: torch.linalg.lstsq(matrix, x).solution)
    assert {bool(y[2].signbit()) for y in found} == {False, True}


@pytest.mark.parametrize("function", [torch.addcmul, torch.addcdiv])
def test_real_factors_are_added_to_complex_numbers(function):
    x, y = torch.tensor([1.0 + 2.0j, -3.0 - 1.0j]), torch.tensor([1.1, 0.7])
    found = draws(lambda: function(x, y, y + 1, value=3.0))
    assert any(not torch.equal(one, found[0]) for one in found)
    for one in found:
        torch.testing.assert_close(one, function(x, y, y + 1, value=3.0))


def test_a_product_of_all_vanishes_where_its_small_factors_come_first():
    """Neighbours are small and large: only an order of all dimensions parts them."""
    x = torch.tensor([[1e-3, 1e2]]).repeat(30, 1)
    for seed, vanishes in ((17, True), (0, False)):
        with Noise(seed):
            assert (torch.prod(x) == 0) == vanishes
            assert (torch.prod(x.flatten(), 0, True) == 0) == vanishes
