"""flex_attention's kernel for CPUs: every size of blocks, tiles and panels, within twice the error of whole matrices of scores."""

import math
import random

import pytest
import torch
from torch._dynamo.source import ConstantSource
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, StatelessSymbolicContext, statically_known_true
from torch.nn.attention import flex_attention as library
from torch.nn.attention.flex_attention import AuxRequest, BlockMask, create_block_mask, flex_attention

import mlirc
from mlirc.dialects.ops.nn import flex_operators as operators
from tests.around.test_flex_attention import alibi, causal, compiled, constants, dilated, exact, late, soft_cap, window

pytestmark = pytest.mark.thinned

MODS = {"none": None, "soft cap": soft_cap, "alibi": alibi, "constants": constants}
MASKS = {"none": None, "causal": causal, "window": window, "dilated": dilated, "late": late}
TABLE = torch.linspace(-1, 1, 600)


@pytest.fixture(autouse=True)
def without_dynamo(monkeypatch):
    """Eager calls the operator."""
    monkeypatch.setattr(library, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)


def rule_of(fn, *inputs):
    torch._dynamo.reset()
    (graph,) = mlirc.explain(fn)(*inputs).data["graphs"]
    return next(x["rule"] for x in graph["ledger"] if x["subject"].startswith("flex"))


def case(seed):
    """Sizes around those of vectors, tiles, panels and blocks."""
    rng = random.Random(seed)
    batch, group, shared = rng.choice([1, 2, 3]), rng.choice([1, 2]), rng.choice([1, 2])
    rows, keys = (rng.choice([8, 15, 16, 17, 31, 32, 33, 64, 100, 129, 257, 300]) for _ in range(2))
    head, values = rng.choice([1, 8, 17, 64]), rng.choice([1, 8, 17, 64])
    block = rng.choice([16, 32, 48, 128])
    return batch, group * shared, shared, rows, keys, head, values, block, rng.choice([*MODS]), rng.choice([*MASKS])


def made_of(sizes, dtype):
    batch, heads, shared, rows, keys, head, values, block, mod, mask = sizes
    torch.manual_seed(rows * keys)
    q = torch.randn(batch, heads, rows, head, dtype=torch.float64)
    k, v = (torch.randn(batch, shared, keys, n, dtype=torch.float64) for n in (head, values))
    mask_mod = MASKS[mask]
    listed = mask_mod and create_block_mask(mask_mod, batch, heads, rows, keys, device="cpu", BLOCK_SIZE=block)
    return [x.to(dtype) for x in (q, k, v)], MODS[mod], mask_mod, listed


def attention(mod, listed):
    def fn(q, k, v):
        groups = q.shape[1] != k.shape[1]
        out, aux = flex_attention(q, k, v, mod, listed, enable_gqa=groups, return_aux=AuxRequest(lse=True))
        return out, aux.lse

    return fn


@pytest.mark.thinned(1)
@pytest.mark.parametrize("seed", [*range(5), *(pytest.param(k, marks=pytest.mark.full) for k in range(5, 24))])
def test_sizes(seed):
    sizes, dtype = case(seed), {3: torch.bfloat16, 1: torch.float16}.get(seed % 4, torch.float32)
    inputs, mod, mask_mod, listed = made_of(sizes, dtype)
    fn = attention(mod, listed)
    assert rule_of(fn, *inputs) == "ONE KERNEL", sizes
    wide = [x.double() for x in inputs]
    best = exact(*wide, mod, mask_mod)
    for made, own, wanted in zip(compiled(fn, dynamic=seed % 3 == 0)(*inputs), fn(*inputs), best, strict=True):
        assert (made.dtype, made.stride()) == (own.dtype, own.stride())
        assert torch.equal(made == -math.inf, wanted == -math.inf), sizes
        errors = [(x.double() - wanted).nan_to_num(0.0).norm() for x in (made, own)]
        assert errors[0] <= 2 * errors[1] + 1e-7 * wanted.nan_to_num(0.0, 0.0, 0.0).norm(), (sizes, errors)


def test_lengths_of_keys_and_values_have_one_name():
    """Of a graph with a size of 1, PyTorch's names of the two differ, and flex_attention compares them nowhere."""
    fn = attention(soft_cap, None)
    made = compiled(fn, dynamic=True)
    for batch, rows, keys in ((2, 20, 30), (1, 16, 16), (1, 24, 40), (3, 24, 9)):
        inputs = [torch.randn(batch, 4, n, 16) for n in (rows, keys, keys)]
        torch.testing.assert_close(made(*inputs), fn(*inputs))


def test_the_sizes_of_a_call_become_equal_ones():
    """PyTorch has several names for them where they change from call to call."""
    mode = FakeTensorMode(shape_env=ShapeEnv(duck_shape=False))

    def fake(name, *shape):
        dynamic = StatelessSymbolicContext([DimDynamic.DYNAMIC] * len(shape))
        return mode.from_tensor(torch.zeros(shape), source=ConstantSource(name), symbolic_context=dynamic)

    q, k, v = (fake(name, 2, 4, 40, 8) for name in "qkv")
    scores, lists = fake("s", 2, 4, 40, 40), [fake("counts", 2, 4, 3), fake("indices", 2, 4, 3, 3)]
    with mode:
        operators.fake_attend(scores, scores, q, k, v, lists, 16, 16, 1.0, [0, 1, 2, 3])
    for x, y in ((k, v), lists):
        assert all(statically_known_true(a == b) for a, b in zip(x.shape[:3], y.shape[:3], strict=True))


def test_blocks_that_are_not_listed_are_not_read():
    """Their keys are NaN, and so are the scores that mask_mod hides."""
    inputs = [torch.randn(1, 2, 64, 8) for _ in range(3)]
    mask = create_block_mask(causal, None, None, 64, 64, device="cpu", BLOCK_SIZE=16)
    fn = lambda q, k, v: flex_attention(q, k, v, block_mask=mask)
    want = compiled(fn)(*inputs)
    for x in inputs[1:]:
        x[:, :, 40:] = math.nan
    made = compiled(fn)(*inputs)
    torch.testing.assert_close(made[:, :, :32], want[:, :, :32])
    assert made[:, :, 48:].isnan().all()


def test_scores_that_are_not_finite_are_as_on_whole_matrices():
    inputs = [torch.randn(1, 1, 40, 8) for _ in range(3)]
    inputs[0][0, 0, 3], inputs[0][0, 0, 5] = math.nan, math.inf
    fn = attention(lambda s, b, h, i, j: torch.where(i == 7, -math.inf, s), None)
    for made, own in zip(compiled(fn)(*inputs), fn(*inputs), strict=True):
        torch.testing.assert_close(made, own, equal_nan=True)


def test_tables_that_a_body_reads():
    """By positions, of which one may be beyond the table: that is eager's error."""
    inputs = [torch.randn(2, 2, 50, 8) for _ in range(3)]
    near = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + TABLE[i - j + 60])
    assert rule_of(near, *inputs) == "ONE KERNEL"
    torch.testing.assert_close(compiled(near)(*inputs), near(*inputs))
    far = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s + TABLE[i + 12 * j])
    with pytest.raises(IndexError, match=r"index 6[0-9]\d is out of bounds .*600"):
        compiled(far)(*inputs)


@pytest.mark.parametrize("rows, keys", [(100, 90), (128, 96)])
def test_a_mask_that_is_cut_to_fewer_keys_lists_blocks_that_there_are_not(rows, keys):
    """As flex_attention cuts a mask that was made for more: the numbers beyond stay in its lists, and count for nothing."""
    inputs = [torch.randn(2, 2, n, 16, dtype=torch.float64) for n in (rows, keys, keys)]
    mask = create_block_mask(causal, None, None, 128, 128, device="cpu", BLOCK_SIZE=32)._adjust(rows, keys)
    fn = lambda q, k, v: flex_attention(q, k, v, block_mask=mask)
    made = compiled(fn)(*(x.float() for x in inputs))
    torch.testing.assert_close(made.double(), exact(*inputs, None, causal)[0], atol=1e-5, rtol=1e-5)


def test_lists_that_do_not_fit_read_nothing_beyond():
    """Numbers of blocks that there are not, and counts beyond the list."""
    inputs = [torch.randn(1, 1, 32, 8) for _ in range(3)]
    counts, indices = torch.tensor([[[9, -3]]]), torch.tensor([[[[1, 70], [0, -5]]]])
    torch._dynamo.reset()

    def fn(q, k, v, counts, indices):
        mask = BlockMask.from_kv_blocks(counts, indices, BLOCK_SIZE=16, mask_mod=causal, seq_lengths=(32, 32))
        return flex_attention(q, k, v, block_mask=mask)

    assert torch.compile(fn, backend="mlirc")(*inputs, counts, indices)[:, :, 16:].eq(0).all()


@pytest.mark.thinned(1)
@pytest.mark.parametrize(
    "rule, shape, dtype",
    [
        ("FEW QUERIES", (1, 1, 4, 8), torch.float32),
        ("HEAD SIZE", (1, 1, 16, 300), torch.float32),
        ("DTYPE", (1, 1, 16, 8), torch.float64),
    ],
)
def test_what_has_no_kernel_says_why(rule, shape, dtype):
    inputs = [torch.randn(shape).to(dtype) for _ in range(3)]
    fn = lambda q, k, v: flex_attention(q, k, v, soft_cap)
    assert rule_of(fn, *inputs) == rule
    torch.testing.assert_close(compiled(fn)(*inputs), fn(*inputs))


def test_heads_that_share_keys_read_them_where_they_are():
    """Few queries have no kernel: the matmuls of all heads that share one of the keys are one."""
    inputs = [torch.randn(2, heads, n, 16) for heads, n in ((8, 1), (2, 40), (2, 40))]
    fn = lambda q, k, v: flex_attention(q, k, v, soft_cap, enable_gqa=True)
    torch._dynamo.reset()
    (graph,) = mlirc.explain(fn)(*inputs).data["graphs"]
    assert all(int(kernel["written"]) < inputs[1].nbytes for kernel in graph["kernels"])
    torch.testing.assert_close(compiled(fn)(*inputs), fn(*inputs))


def test_scores_of_one_key_are_stored_nowhere():
    inputs = [torch.randn(1, 4, n, 16) for n in (24, 1, 1)]
    fn = lambda q, k, v: flex_attention(q, k, v, lambda s, b, h, i, j: s * h + i)
    torch._dynamo.reset()
    (graph,) = mlirc.explain(fn)(*inputs).data["graphs"]
    assert not graph["aten"]
    torch.testing.assert_close(compiled(fn)(*inputs), fn(*inputs))
