"""Attention masks made of positions: dropped before AOTAutograd, in inference and training; every other one stays."""

import pytest
import torch

from mlirc.codegen.cache.folder import folder
from mlirc.frontend.capture.attention_masks import SDPA, drop_known_masks

pytestmark = pytest.mark.thinned

sdpa = torch.nn.functional.scaled_dot_product_attention


def positions(x: torch.Tensor) -> torch.Tensor:
    return torch.arange(x.shape[2])


def always_true(q, k):
    mask = (positions(k) + 0 >= 0)[None, None, :, None].expand(q.shape[0], 1, k.shape[2], k.shape[2])
    return sdpa(q, k, k, attn_mask=mask)


def key_before_query(q, k):
    return sdpa(q, k, k, attn_mask=positions(k)[None, :] <= positions(q)[:, None])


def lower_triangle(q, k):
    return sdpa(q, k, k, positions(q)[:, None] > positions(k) - 1)


def numbers_to_add(q, k):
    hidden = positions(k)[None, :] > positions(q)[:, None]
    mask = torch.where(hidden, float("-inf"), 0.0).to(q.dtype)
    return sdpa(q, k, k, attn_mask=mask[None])


def lowest_number(q, k):
    mask = torch.where(positions(k) <= positions(q)[:, None], 0.0, torch.finfo(q.dtype).min)
    return sdpa(q, k, k, attn_mask=mask)


def packed(q, k):
    """Transformers' test for sequences packed into one: where positions do not go up by one, a new one starts."""
    place = positions(q)[None].expand(q.shape[0], -1)
    number = (torch.diff(place, prepend=place[:, :1] - 1, dim=-1) != 1).cumsum(-1)
    batch = torch.arange(q.shape[0])[:, None, None, None]
    rows, keys = positions(q)[None, None, :, None], positions(k)[None, None, None, :]
    mask = (number[batch, rows] == number[batch, keys]) & (place[batch, keys] <= place[batch, rows])
    return sdpa(q, k, k, attn_mask=mask.expand(q.shape[0], -1, q.shape[2], k.shape[2]))


def window(q, k):
    near = positions(k)[None, :] > positions(q)[:, None] - 3
    return sdpa(q, k, k, attn_mask=near & (positions(k)[None, :] <= positions(q)[:, None]))


def later_keys(q, k):
    return sdpa(q, k, k, attn_mask=positions(k)[None, :] >= positions(q)[:, None])


def one_more(q, k):
    return sdpa(q, k, k, attn_mask=positions(k)[None, :] <= positions(q)[:, None] + 1)


def bias(q, k):
    return sdpa(q, k, k, attn_mask=-(positions(q)[:, None] - positions(k)).abs().to(q.dtype))


def of_data(q, k):
    return sdpa(q, k, k, attn_mask=(positions(k) <= positions(q)[:, None]) & (k[0, 0, :, 0] > -10))


def overwritten(q, k):
    mask = positions(k)[None, :] <= positions(q)[:, None]
    mask[:, 0] = True
    mask.logical_not_().logical_not_()
    mask[2, 3] = False
    return sdpa(q, k, k, attn_mask=mask)


def overwritten_by_a_view(q, k):
    mask = positions(k)[None, :] <= positions(q)[:, None]
    mask.t()[0].fill_(True)
    mask.t()[3, 3:].fill_(False)
    return sdpa(q, k, k, attn_mask=mask)


KNOWN = [always_true, key_before_query, lower_triangle, numbers_to_add, lowest_number, packed]
OTHER = [window, later_keys, one_more, bias, of_data, overwritten, overwritten_by_a_view]


def dropped_and_result(function, *args, dynamic: bool, cache: bool = False):
    """How many masks went from Dynamo's graph, which attention calls there are then, and what the graph gives."""
    found = []

    def backend(gm, example_inputs):
        found.append(drop_known_masks(gm, cache))
        found.extend(n.kwargs.get("is_causal", False) for n in gm.graph.nodes if n.target is SDPA)
        gm.graph.lint()
        return gm.forward

    torch._dynamo.reset()
    for x in args:
        torch._dynamo.mark_static(x, 3)  # our kernels know the size of a head
    result = torch.compile(function, backend=backend, dynamic=dynamic)(*args)
    return found[0], found[1:], result


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", KNOWN)
def test_masks_that_positions_decide(function, dynamic):
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    dropped, causal, result = dropped_and_result(function, q, k, dynamic=dynamic)
    assert dropped == 1 and causal == [function is not always_true]
    torch.testing.assert_close(result, function(q, k))


@pytest.mark.parametrize("function", OTHER)
def test_other_masks_stay(function):
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    dropped, _, result = dropped_and_result(function, q, k, dynamic=False)
    assert dropped == 0
    torch.testing.assert_close(result, function(q, k))


OURS, OF_ATEN = (
    [(torch.bfloat16, 8, False)],
    [(torch.float32, 8, True), (torch.float32, 300, False), (torch.float64, 8, False)],
)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype, head, dynamic", OURS + OF_ATEN)
@pytest.mark.parametrize("function", [always_true, lower_triangle])
def test_a_row_of_nan_shows(function, dtype, head, dynamic):
    """ATen's kernel has 0 for it where there is no mask, and NaN where there is one."""
    q, k = torch.randn(2, 3, 7, head, dtype=dtype), torch.randn(2, 3, 7, head, dtype=dtype)
    q[0, 1, 2, 3] = torch.nan
    expected = function(q, k)
    assert expected[0, 1, 2].isnan().all() and expected.isnan().sum() == head
    with torch.no_grad():
        found = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})(q, k)
    assert torch.equal(found.isnan(), expected.isnan())


@pytest.mark.parametrize("hidden", [torch.inf, torch.nan])
def test_a_known_mask_hides_as_the_causal_call_does(hidden):
    """A key that is not finite reaches the rows that see it. Eager adds -inf to its other scores, which gives NaN for all rows."""

    def function(q, k, v):
        return sdpa(q, k, v, attn_mask=positions(k)[None, :] <= positions(q)[:, None])

    q, k, v = (torch.randn(2, 3, 7, 8) for _ in range(3))
    q[0, 1], k[0, 1, 4] = q[0, 1].abs(), hidden
    assert function(q, k, v)[0, 1].isnan().all()
    with torch.no_grad():
        found = torch.compile(function, backend="mlirc", options={"fallback": "error"})(q, k, v)
    torch.testing.assert_close(found, sdpa(q, k, v, is_causal=True), equal_nan=True)
    assert found[0, 1, :4].isfinite().all()


def test_queries_after_a_cache_stay():
    """For as many keys as queries plus 5, query i sees the keys up to i + 5: no is_causal of PyTorch's."""

    def function(q, k):
        return sdpa(q, k, k, attn_mask=positions(k)[None, :] <= positions(q)[:, None] + 5)

    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 12, 8)
    assert dropped_and_result(function, q, k, dynamic=False)[0] == 0
    with torch.no_grad():
        compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
        torch.testing.assert_close(compiled(q, k), function(q, k))


@pytest.mark.thinned(4)
@pytest.mark.parametrize("function", [*KNOWN, window, overwritten])
def test_training(function):
    q, k = (torch.randn(2, 3, 7, 8, requires_grad=True) for _ in range(2))
    compiled = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    for f in (compiled, function):
        out = f(q, k)
        gradients = torch.autograd.grad(out.sin().sum(), (q, k))
        if f is compiled:
            ours = (out, *gradients)
    torch.testing.assert_close(ours, (out, *gradients))


def test_layers_share_one_mask():
    def function(q, k):
        mask = positions(k)[None, :] <= positions(q)[:, None]
        return sdpa(sdpa(q, k, k, attn_mask=mask), k, k, attn_mask=mask), mask

    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    dropped, causal, result = dropped_and_result(function, q, k, dynamic=False)
    assert dropped == 2 and causal == [True, True]
    torch.testing.assert_close(result, function(q, k))


@pytest.mark.thinned(1)
@pytest.mark.parametrize("dynamic", [False, True])
def test_what_is_known_of_a_mask_is_kept_on_disk(dynamic, tmp_path, monkeypatch):
    """Masks that differ in one operator or one number are told apart; with the cache off nothing is asked."""
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    q, k = torch.randn(2, 3, 7, 8), torch.randn(2, 3, 7, 8)
    functions = [key_before_query, later_keys, one_more, packed]
    first = [dropped_and_result(f, q, k, dynamic=dynamic, cache=True)[:2] for f in functions]
    place = folder()
    assert place is not None and place.counts["mask", "found"] == 0 and place.counts["mask", "written"] == 4
    monkeypatch.setattr("mlirc.frontend.capture.mask_meaning.meaning", None)  # nothing is found out again
    assert [dropped_and_result(f, q, k, dynamic=dynamic, cache=True)[:2] for f in functions] == first
    assert [n for n, _ in first] == [1, 0, 0, 1]
    with pytest.raises(Exception, match="NoneType"):
        dropped_and_result(KNOWN[0], q, k, dynamic=dynamic)


def test_a_mask_by_a_function_that_may_change_is_not_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("MLIRC_CACHE_DIR", str(tmp_path))
    lower = torch._dynamo.allow_in_graph(lambda n: torch.arange(n) <= torch.arange(n)[:, None])
    q = torch.randn(2, 3, 7, 8)
    assert (
        dropped_and_result(lambda q: sdpa(q, q, q, attn_mask=lower(q.shape[2])), q, dynamic=False, cache=True)[0] == 1
    )
    assert not list(tmp_path.rglob("*.mask"))


@pytest.mark.parametrize("transform", [torch.func.hessian, torch.func.grad])
def test_a_mask_beside_a_transform(transform):
    """The tensors of torch.func's transforms have no storage, and a write to them is none to the mask."""

    def function(q, k):
        slope = transform(lambda z: (z * z.mean()).square().clone().mul_(2).sum())(q[0, 0, 0])
        return key_before_query(q, k) + slope.sum()

    torch.manual_seed(0)
    q, k = torch.randn(2, 2, 5, 8), torch.randn(2, 2, 5, 8)
    made = torch.compile(function, backend="mlirc", options={"fallback": "error", "cache": False})(q, k)
    torch.testing.assert_close(made, function(q, k))
