"""flex_attention: every kind of mask and score_mod that its users write, forward and backward, within twice eager's error."""

import math

import pytest
import torch
from torch.nn.attention import flex_attention as library
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import mlirc
from mlirc.frontend.capture import flex_attention as capture

HEADS, ROWS, SIZE, BLOCK = 4, 37, 8, 16
DOCUMENTS = torch.arange(64) // 11
SLOPES = torch.exp2(-2.0 * torch.arange(1, HEADS + 1))


def causal(b, h, i, j):
    return i >= j


def window(b, h, i, j):
    return (i >= j) & (i - j <= 9)


def prefix(b, h, i, j):
    return (j < 5) | (i >= j)


def dilated(b, h, i, j):
    return (i - j) % 3 == 0


def documents(b, h, i, j):
    return (DOCUMENTS[i] == DOCUMENTS[j]) & (i >= j)


def late(b, h, i, j):
    """The first queries see nothing, and heads and batches differ."""
    return (i >= j) & (i > 6 + h) & (j >= b)


def soft_cap(s, b, h, i, j):
    return 2 * torch.tanh(s / 2)


def alibi(s, b, h, i, j):
    return s + SLOPES[h] * (j - i)


def constants(s, b, h, i, j):
    return torch.where(h < 2, s * torch.tensor(0.5), s + b)


def exact(q, k, v, score_mod, mask_mod):
    """The result and the logarithms of the sums, by broadcasting."""
    shape = (*q.shape[:3], k.shape[2])
    places = [torch.arange(n).view([-1 if d == k else 1 for k in range(4)]) for d, n in enumerate(shape)]
    k, v = (x.repeat_interleave(q.shape[1] // x.shape[1], 1) for x in (k, v))
    scores = q @ k.mT / math.sqrt(q.shape[3])
    scores = score_mod(scores, *places) if score_mod else scores
    seen = mask_mod(*places).expand(shape) if mask_mod else torch.ones(shape, dtype=torch.bool)
    scores, none = scores.masked_fill(~seen, -math.inf), ~seen.any(-1)
    lse = scores.masked_fill(none.unsqueeze(-1), 0).logsumexp(-1)
    weights = scores.masked_fill(none.unsqueeze(-1), 0).softmax(-1).masked_fill(none.unsqueeze(-1), 0)
    return weights @ v, lse.masked_fill(none, -math.inf)


def tensors(dtype, rows=ROWS, keys=ROWS, shared=HEADS, values=SIZE, batches=(2, 2)):
    torch.manual_seed(0)
    sizes = ((batches[0], HEADS, rows, SIZE), (batches[1], shared, keys, SIZE), (batches[1], shared, keys, values))
    return [torch.randn(x, dtype=torch.float64).to(dtype) for x in sizes]


def blocks(mask_mod, q, k):
    if mask_mod is None:
        return None
    return create_block_mask(mask_mod, q.shape[0], HEADS, q.shape[2], k.shape[2], device="cpu", BLOCK_SIZE=BLOCK)


def attention(q, k, v, score_mod, mask):
    groups = q.shape[1] != k.shape[1]
    out, aux = flex_attention(q, k, v, score_mod, mask, enable_gqa=groups, return_aux=AuxRequest(lse=True))
    return out, aux.lse


def call(score_mod, mask_mod, inputs):
    mask = blocks(mask_mod, *inputs[:2])
    return lambda q, k, v: attention(q, k, v, score_mod, mask)


def compiled(fn, **how):
    torch._dynamo.reset()
    return torch.compile(fn, backend="mlirc", fullgraph=True, options={"fallback": "error"}, **how)


@pytest.fixture(autouse=True)
def without_dynamo(monkeypatch):
    """Eager calls the operator. PyTorch refuses gradients of flex_attention on a CPU, where the operator has them."""
    monkeypatch.setattr(library, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(library, "_validate_device", lambda q, k, v: None)


def check(made, eager, best, norm=math.inf):
    """Within twice eager's error: the largest one, or by another norm."""
    for have, own, wanted in zip(made, eager, best, strict=True):
        assert (have.dtype, have.stride()) == (own.dtype, own.stride())
        errors = [torch.nan_to_num(x.double() - wanted, math.inf, 0, 0).flatten().norm(norm) for x in (have, own)]
        least = 1e-13 if have.dtype == torch.float64 else 0
        assert errors[0] <= 2 * errors[1] + least and torch.equal(have == -math.inf, wanted == -math.inf)


PATTERNS = {
    "nothing": (None, None, {}),
    "causal": (None, causal, {}),
    "window": (None, window, {"keys": 29}),
    "prefix": (None, prefix, {"shared": 2}),
    "dilated": (None, dilated, {"rows": 5, "keys": 40}),
    "documents": (None, documents, {"values": 4}),
    "late": (None, late, {}),
    "soft cap": (soft_cap, causal, {"batches": (3, 1)}),
    "alibi": (alibi, causal, {}),
    "constants": (constants, None, {}),
}


def kinds(names, short):
    """The short run has those in `short`."""
    return [name if name in short else pytest.param(name, marks=pytest.mark.full) for name in names]


@pytest.mark.parametrize("name", kinds(PATTERNS, ("late", "soft cap")))
def test_patterns(name):
    score_mod, mask_mod, sizes = PATTERNS[name]
    inputs = tensors(torch.float32, **sizes)
    fn = call(score_mod, mask_mod, inputs)
    check(compiled(fn)(*inputs), fn(*inputs), exact(*(x.double() for x in inputs), score_mod, mask_mod))


@pytest.mark.parametrize("dtype", kinds([torch.bfloat16, torch.float16, torch.float64], [torch.float64]), ids=str)
def test_dtypes(dtype):
    """The logarithms of the sums are float32 or wider, though PyTorch promises float32 whatever there is."""
    inputs = tensors(dtype)
    fn = call(alibi, late, inputs)
    check(compiled(fn)(*inputs), fn(*inputs), exact(*(x.double() for x in inputs), alibi, late))


def test_symbolic_lengths():
    fn = lambda q, k, v, mask: attention(q, k, v, soft_cap, mask)
    made = compiled(fn, dynamic=True)
    for rows in (37, 50):
        inputs = tensors(torch.float32, rows, rows)
        mask = blocks(documents, *inputs[:2])
        best = exact(*(x.double() for x in inputs), soft_cap, documents)
        check(made(*inputs, mask), fn(*inputs, mask), best)


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True])
def test_a_mask_made_within(dynamic):
    fn = lambda q, k, v: attention(q, k, v, None, blocks(documents, q, k))
    inputs = tensors(torch.float32)
    check(compiled(fn, dynamic=dynamic)(*inputs), fn(*inputs), exact(*(x.double() for x in inputs), None, documents))


def table_bias(table, length=ROWS):
    return lambda s, b, h, i, j: s + table[h, i - j + length - 1]


def scaled_by_head(table):
    return lambda s, b, h, i, j: s * table[h, 3] + table[0, 0]


TRAINED = {
    "causal": (None, causal, {}, torch.float32),
    "late": (lambda table: alibi, late, {}, torch.bfloat16),
    "groups": (lambda table: soft_cap, window, {"shared": 2, "keys": 29}, torch.float32),
    "one batch of keys": (None, causal, {"batches": (3, 1), "values": 4}, torch.float32),
    "a table": (table_bias, causal, {}, torch.float32),
    "a table of heads": (scaled_by_head, None, {}, torch.float64),
}


@pytest.mark.parametrize("name", kinds(TRAINED, ("groups", "a table")))
def test_gradients(name):
    of_table, mask_mod, sizes, dtype = TRAINED[name]
    torch.manual_seed(2)
    table = torch.randn(HEADS, 2 * ROWS, dtype=torch.float64).to(dtype)
    inputs = [*tensors(dtype, **sizes), *([table] if of_table in (table_bias, scaled_by_head) else [])]

    mask = blocks(mask_mod, *inputs[:2])

    def fn(q, k, v, table=None):
        return attention(q, k, v, of_table and of_table(table), mask)

    def best(q, k, v, table=None):
        return exact(q, k, v, of_table and of_table(table), mask_mod)

    own = gradients(best if len(inputs) > 3 else fn, inputs)  # this way eager has no gradients of tables
    # weights that are computed again from a rounded logarithm have errors of eager's size, but not at eager's places
    check(gradients(compiled(fn), inputs), own, gradients(best, [x.double() for x in inputs]), norm=2)


def gradients(fn, inputs):
    """Of both results, one of which is -inf in places."""
    leaves = [x.detach().clone().requires_grad_() for x in inputs]
    results = fn(*leaves)
    weights = torch.Generator().manual_seed(3)
    loss = sum(
        (x.masked_fill(x == -math.inf, 0) * torch.randn(x.shape, generator=weights, dtype=torch.float64)).sum()
        for x in results
    )
    loss.backward()
    return [*(x.detach() for x in results), *(x.grad for x in leaves)]


def test_blocks_that_are_not_listed_are_hidden():
    """Also where mask_mod says nothing; in a block that is listed full, mask_mod is not asked."""
    counts, indices = torch.tensor([[[1, 2, 1]]]), torch.tensor([[[[2, 1, 0], [1, 0, 2], [0, 1, 2]]]])
    full = torch.tensor([[[0, 0, 1]]]), torch.tensor([[[[0, 1, 2], [2, 1, 0], [2, 0, 1]]]])
    blocks = torch.tensor([[0, 0, 1], [1, 1, 0], [1, 0, 2]])

    def by_blocks(b, h, i, j):
        kind = blocks[i // BLOCK, j // BLOCK]
        return (kind == 2) | (kind == 1) & dilated(b, h, i, j)

    inputs = tensors(torch.float32)
    mask = BlockMask.from_kv_blocks(counts, indices, *full, BLOCK, dilated, (ROWS, ROWS))
    made = compiled(lambda q, k, v: flex_attention(q, k, v, block_mask=mask))(*inputs)
    torch.testing.assert_close(
        made.double(), exact(*(x.double() for x in inputs), None, by_blocks)[0], atol=1e-6, rtol=0
    )


def test_another_mask_compiles_another_graph():
    inputs = tensors(torch.float32)
    torch._dynamo.reset()
    fn = torch.compile(lambda q, k, v, mask: flex_attention(q, k, v, block_mask=mask), backend="mlirc", fullgraph=True)
    for mask_mod in (causal, window):
        mask = create_block_mask(mask_mod, None, None, ROWS, ROWS, device="cpu", BLOCK_SIZE=BLOCK)
        best = exact(*(x.double() for x in inputs), None, mask_mod)[0]
        torch.testing.assert_close(fn(*inputs, mask).double(), best, atol=1e-6, rtol=0)


def test_the_graph_and_its_trace_are_kept_on_disk(tmp_path, monkeypatch):
    """The second process is a second compilation here; another score_mod is another trace."""
    from mlirc.codegen.cache import folder

    monkeypatch.setenv(folder.VARIABLE, str(tmp_path))
    q, k, v = tensors(torch.float32)
    mask = blocks(causal, q, k)
    for expected, mod in (("miss", soft_cap), ("miss", constants), ("hit", soft_cap)):
        fn = lambda q, k, v, mod=mod: flex_attention(q, k, v, mod, mask)
        torch._dynamo.reset()
        report = mlirc.explain(fn)(q, k, v)
        assert f"tracing: {expected}" in str(report) and not report.data["graphs"][0]["aten"], report
    torch.testing.assert_close(compiled(fn)(q, k, v), fn(q, k, v), atol=1e-6, rtol=0)


def test_what_cannot_be_rewritten_runs_in_eager_and_is_counted(monkeypatch):
    def fails(*args):
        raise NotImplementedError("not this one")

    monkeypatch.setattr(capture, "forward_call", fails)
    inputs = tensors(torch.float32)
    (graph,) = mlirc.explain(lambda q, k, v: flex_attention(q, k, v, soft_cap))(*inputs).data["graphs"]
    assert "higher_order.flex_attention" in graph["aten"]
