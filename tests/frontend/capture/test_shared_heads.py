"""Keys and values that heads share: attention calls of Dynamo's graphs that are given them unrepeated."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention as attention

from mlirc.frontend.capture import shared_heads
from mlirc.frontend.capture.attention_masks import SDPA


def repeat(x, times):
    b, heads, rows, size = x.shape
    return x[:, :, None, :, :].expand(b, heads, times, rows, size).reshape(b, heads * times, rows, size)


def interleave(x, times):
    b, heads, rows, size = x.shape
    return x[:, None].expand(b, times, heads, rows, size).reshape(b, heads * times, rows, size)


def overwrite(q, k, v):
    keys, values = repeat(k, 4), repeat(v, 4)
    k.mul_(2)
    return attention(q, keys, values)


CASES = {
    "repeated": (lambda q, k, v: attention(q, repeat(k, 4), repeat(v, 4), is_causal=True, scale=0.5), 1),
    "the keys are used again": (lambda q, k, v: attention(q, x := repeat(k, 4), repeat(v, 4)) + x, 1),
    "one head for all": (lambda q, k, v: attention(q, repeat(k[:, :1], 8), repeat(v[:, 1:], 8)), 1),
    "heads in another order": (lambda q, k, v: attention(q, interleave(k, 4), interleave(v, 4)), 0),
    "the values are not repeated": (lambda q, k, v: attention(q, repeat(k, 4), q), 0),
    "a mask": (lambda q, k, v: attention(q, repeat(k, 4), repeat(v, 4), q[0, 0] @ k[0, 0].mT), 0),
    "overwritten between": (overwrite, 0),
}


@pytest.mark.parametrize("name", CASES)
def test_attention_is_given_what_heads_share(name, monkeypatch):
    f, expected = CASES[name]
    monkeypatch.setattr(shared_heads, "is_taken", lambda x: True)
    found = []

    def backend(gm, inputs):
        found.append(shared_heads.share_heads(gm))
        calls = gm.graph.find_nodes(op="call_function", target=SDPA)
        found.append([node.kwargs["key"].meta["example_value"].shape[1] for node in calls if "key" in node.kwargs])
        return gm.forward

    q, k, v = torch.randn(2, 8, 5, 16), torch.randn(2, 2, 5, 16), torch.randn(2, 2, 5, 16)
    result = torch.compile(f, backend=backend)(q, k.clone(), v)
    torch.testing.assert_close(result, f(q, k.clone(), v))
    assert found[0] == expected
    assert not expected or found[1][0] < 8


def test_tensors_that_no_such_kernel_takes_stay_repeated():
    x = torch.empty(2, 2, 5, 16, dtype=torch.bfloat16)
    assert not shared_heads.is_taken(x)  # on a CPU a kernel of ours reads shared heads where they are
