"""flex_attention on a GPU, forward and backward, against float64: the limit is twice eager's own error in the same dtype."""

import math

import pytest
import torch
from torch.nn.attention.flex_attention import AuxRequest, create_block_mask, flex_attention

import mlirc
from tests.gpu.test_graphs import compiled, distance

HEADS, ROWS, SIZE = 4, 200, 64
DTYPES = [torch.float32, torch.bfloat16, torch.float16]


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j <= 70)


def prefix(b, h, i, j):
    return (j < 33) | (i >= j)


def late(b, h, i, j):
    """The first queries see nothing."""
    return (i >= j) & (i > 6 + h)


def of_documents(b, h, i, j):
    return (i // 61 == j // 61) & (i >= j)


def soft_cap(table):
    return lambda s, b, h, i, j: 5 * torch.tanh(s / 5)


def alibi(table):
    return lambda s, b, h, i, j: s + torch.exp2(-2.0 * (h + 1)) * (j - i)


def table_bias(table):
    return lambda s, b, h, i, j: s + table[h, i - j + ROWS - 1]


def exact(q, k, v, score_mod, mask_mod):
    """The result and the logarithms of the sums, by broadcasting."""
    shape = (*q.shape[:3], k.shape[2])
    places = [torch.arange(n, device="cuda").view([-1 if d == k else 1 for k in range(4)]) for d, n in enumerate(shape)]
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[3])
    scores = score_mod(scores, *places) if score_mod else scores
    hidden = ~mask_mod(*places).expand(shape) if mask_mod else torch.zeros(shape, dtype=torch.bool, device="cuda")
    none = hidden.all(-1, keepdim=True)
    scores = scores.masked_fill(hidden, -math.inf).masked_fill(none, 0)
    lse = scores.logsumexp(-1).masked_fill(none.squeeze(-1), -math.inf)
    return scores.softmax(-1).masked_fill(none, 0) @ v, lse


def gradients(fn, inputs):
    """Both results, and the gradients of all inputs."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = fn(*leaves)
    generator = torch.Generator("cuda").manual_seed(3)
    weights = [torch.randn(x.shape, generator=generator, device="cuda", dtype=torch.float64) for x in results]
    sum((x.masked_fill(x == -math.inf, 0) * w).sum() for x, w in zip(results, weights, strict=True)).backward()
    return [*(x.detach() for x in results), *(x.grad for x in leaves)]


CASES = {
    "causal": (None, causal, HEADS),
    "window": (None, window, HEADS),
    "prefix, groups": (None, prefix, 2),
    "late": (None, late, HEADS),
    "documents": (None, of_documents, HEADS),
    "soft cap": (soft_cap, causal, HEADS),
    "alibi": (alibi, causal, HEADS),
    "a table": (table_bias, causal, HEADS),
}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", CASES)
def test_gradients(name, dtype):
    of_table, mask_mod, shared = CASES[name]
    torch.manual_seed(0)
    shapes = [(2, HEADS, ROWS, SIZE), (2, shared, ROWS, SIZE), (2, shared, ROWS, SIZE), (HEADS, 2 * ROWS)]
    inputs = [torch.randn(x, device="cuda").to(dtype) for x in (shapes if of_table is table_bias else shapes[:3])]
    mask = create_block_mask(mask_mod, None, HEADS, ROWS, ROWS, device="cuda")

    def fn(q, k, v, table=None):
        how = {"enable_gqa": shared != HEADS, "return_aux": AuxRequest(lse=True)}
        out, aux = flex_attention(q, k, v, of_table and of_table(table), mask, **how)
        return out, aux.lse

    def best(q, k, v, table=None):
        return exact(q, k, v, of_table and of_table(table), mask_mod)

    torch._dynamo.reset()
    own = gradients(torch.compile(fn, backend="aot_eager", fullgraph=True), inputs)
    made = gradients(compiled(fn, fullgraph=True), inputs)
    for have, eager, wanted in zip(made, own, gradients(best, [x.double() for x in inputs]), strict=True):
        assert (have.dtype, have.stride()) == (eager.dtype, eager.stride())
        assert distance(have, wanted) <= 2 * distance(eager, wanted) + 1e-7


def test_largest_scores():
    q, k, v = torch.randn(3, 2, HEADS, ROWS, SIZE, device="cuda")
    fn = lambda q, k, v: flex_attention(q, k, v, return_aux=AuxRequest(lse=True, max_scores=True))
    out, aux = compiled(fn, fullgraph=True)(q, k, v)
    scores = (q.double() @ k.double().mT) / math.sqrt(SIZE)
    torch.testing.assert_close(aux.max_scores.double(), scores.amax(-1), atol=2e-3, rtol=0)
    torch.testing.assert_close(aux.lse.double(), scores.logsumexp(-1), atol=2e-3, rtol=0)
    torch.testing.assert_close(out.double(), scores.softmax(-1) @ v.double(), atol=2e-3, rtol=0)


def heads_of_a_model(dtype, sizes=(64, 64), rows=300, shared=2):
    """Heads as a model has them: rows of all heads, seen as [B, H, L, D]."""
    torch.manual_seed(1)
    shapes = [(2, rows, n, d) for n, d in ((HEADS, sizes[0]), (shared, sizes[0]), (shared, sizes[1]))]
    return [torch.randn(x, device="cuda").to(dtype).transpose(1, 2) for x in shapes]


@pytest.mark.parametrize(
    ("sizes", "dynamic"), [((64, 64), True), ((96, 40), False), ((128, 128), False), ((256, 256), False)]
)
def test_heads_and_lengths(sizes, dynamic):
    """Kernels for each size of a head, masked edges, groups, and strides of a model; symbolic sizes."""

    def fn(q, k, v, mask):
        out, aux = flex_attention(q, k, v, soft_cap(None), mask, enable_gqa=True, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    torch._dynamo.reset()
    made = compiled(fn, fullgraph=True, dynamic=dynamic)
    for rows in (300, 417) if dynamic else (300,):
        inputs = heads_of_a_model(torch.bfloat16, sizes, rows)
        mask = create_block_mask(window, None, None, rows, rows, device="cuda")
        have = gradients(lambda *x, mask=mask: made(*x, mask), inputs)
        wanted = gradients(lambda *x: exact(*x, soft_cap(None), window), [x.double() for x in inputs])
        eager = gradients(lambda *x: exact(*x, soft_cap(None), window), inputs)
        for x, own, best in zip(have, eager, wanted, strict=True):
            assert distance(x, best) <= 2 * distance(own, best) + 1e-4


def test_one_kernel_forward_and_two_backward():
    q, k, v = (x.requires_grad_() for x in heads_of_a_model(torch.bfloat16, shared=HEADS))
    mask = create_block_mask(causal, None, None, 300, 300, device="cuda")
    torch._dynamo.reset()
    forward, backward = mlirc.explain(lambda q, k, v: flex_attention(q, k, v, alibi(None), mask))(q, k, v).data[
        "graphs"
    ]
    assert "flex_attention" in [x["name"] for x in forward["kernels"]]
    names = {x["name"] for x in backward["kernels"]}
    assert {"flex_attention_query_gradient", "flex_attention_key_gradients"} <= names
    assert not forward["aten"] and not backward["aten"] and not forward["library"]
