"""Attention of a few queries in training, whose scores are large: gradients compute the scores again, and exp(scores - lse) has the
error of a score where the two are summed in different orders. Errors are against float64, and eager's are the measure.
"""

import pytest
import torch
import torch.nn.functional as F

QUERIES, KEYS, HEAD = (1, 2, 3, 4, 7), (5, 70), (32, 64)
SCORE, EPS = 100, 2**-22  # scores are about this large; sums of a head in either order have about this error
KINDS = ("plain", "shared heads", "repeated heads", "booleans", "numbers", "causal", "symbols")


def tensors(queries: int, keys: int, head: int, shared: int) -> list[torch.Tensor]:
    """Scores of about 100, of which several are near the largest."""
    generator = torch.Generator().manual_seed(queries * keys + head)
    q, k, v = (
        torch.randn(2, heads, n, head, generator=generator)
        for heads, n in ((8, queries), (shared, keys), (shared, keys))
    )
    return [10 * q, 10 * (0.1 * k + 0.9 * k[:, :, :1]), v]


def program(kind: str, queries: int, keys: int):
    mask = torch.ones(queries, keys, dtype=torch.bool)
    mask[:, ::3] = False
    mask[:, :1] = True

    def attention(q, k, v):
        if kind == "repeated heads":
            k, v = (x.repeat_interleave(4, 1) for x in (k, v))
        given = mask if kind == "booleans" else mask.to(q.dtype) if kind == "numbers" else None
        shared = kind == "shared heads"
        return F.scaled_dot_product_attention(q, k, v, attn_mask=given, is_causal=kind == "causal", enable_gqa=shared)

    return attention


def results(function, given: list[torch.Tensor]) -> list[torch.Tensor]:
    inputs = [x.clone().requires_grad_() for x in given]
    out = function(*inputs)
    return [out, *torch.autograd.grad(out, inputs, torch.arange(out.numel(), dtype=out.dtype).sin().view(out.shape))]


def wrong(kind: str, queries: int, keys: int, head: int) -> list[str]:
    """Results of more than twice eager's error."""
    torch._dynamo.reset()
    function = program(kind, queries, keys)
    given = tensors(queries, keys, head, 2 if "heads" in kind else 8)
    options = {"fallback": "error"}
    ours = results(torch.compile(function, backend="mlirc", dynamic=kind == "symbols", options=options), given)
    eager, exact = results(function, given), results(function, [x.double() for x in given])
    found = []
    for name, a, e, x in zip(("out", "dq", "dk", "dv"), ours, eager, exact, strict=True):
        mine, its, size = ((y.double() - x).norm() for y in (a, e, torch.zeros_like(x)))
        if mine > 2 * its + SCORE * EPS * size:
            found.append(f"{kind} {queries}x{keys}x{head} {name}: {mine / size:.1e} for {its / size:.1e}")
    return found


@pytest.mark.thinned(10)
@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("kind", KINDS)
def test_gradients_have_eagers_error(kind, queries, keys):
    found = [text for head in HEAD for text in wrong(kind, queries, keys, head)]
    assert not found, "\n".join(found)
