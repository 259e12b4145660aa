"""Attention under any scale, and any mask: finite where eager is, zeros for a row that sees nothing, NaN where the softmax has none.

is_causal   ATen's causal kernels multiply their -inf by the scale: eager's own NaN for a scale of 0 or less; ours masks
            first. A mask that is causal must not become such a call (frontend/capture/attention_masks.py, simplify-attention).
infinities  a row with a score of +inf has no softmax. Eager's kernel gives NaN in float32, and in bfloat16 NaN or 0: ours
            gives NaN.
"""

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F

pytestmark = pytest.mark.thinned

INFINITE = (math.inf, -math.inf)
WIDE = torch.backends.cpu.get_cpu_capability() == "AVX512"  # eager has kernels of its own there
SCALES = (None, -1.5, 0.0, -0.0, 1e-40, 1e30, -1e30, *INFINITE)
QUICK_SCALES = (-1.5, 0.0, math.inf)
DTYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64)
SIZES = ((8, 8), (1, 16), (3, 70), (19, 40))  # tiles, decoding, ATen's few queries, rows beyond the tile
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9, torch.bfloat16: 4e-2, torch.float16: 5e-3}


def hidden(rows: int, keys: int) -> torch.Tensor:
    return torch.arange(keys) > torch.arange(rows)[:, None]


def masks(rows: int, keys: int, dtype: torch.dtype) -> dict:
    """Tensors, or functions that make them of positions within the graph."""
    generator = torch.Generator().manual_seed(rows)
    seen = torch.rand(rows, keys, generator=generator) > 0.4
    seen[:, 0] = True
    numbers = torch.randn(rows, keys, generator=generator).to(dtype)
    nothing = torch.zeros(rows, 1, dtype=torch.bool).index_fill(0, torch.tensor([0]), True)
    made = {
        "none": None,
        "booleans": seen,
        "booleans, a row that sees nothing": seen & ~nothing,
        "numbers": numbers,
        "-inf": numbers.masked_fill(~seen, -math.inf),
        "-inf in a row": numbers.masked_fill(~seen | nothing, -math.inf),
        "+inf": numbers.masked_fill(nothing & (torch.arange(keys) == 1), math.inf),
        "NaN": numbers.masked_fill(nothing & (torch.arange(keys) == 1), math.nan),
        "positions": lambda: ~hidden(rows, keys),
        "numbers of positions": lambda: torch.zeros(rows, keys, dtype=dtype).masked_fill(hidden(rows, keys), -math.inf),
        "everything seen": lambda: torch.arange(keys)[None].expand(rows, keys) >= 0,
    }
    if rows <= keys:
        made["positions behind a cache"] = lambda: torch.arange(keys) <= torch.arange(rows)[:, None] + (keys - rows)
    return made


def answer(q, k, v, mask, scale):
    """In float64: a row that sees nothing is 0, and masks come after the scale."""
    scale = q.shape[-1] ** -0.5 if scale is None else scale
    scores = (q @ k.transpose(-1, -2)) * scale
    if mask is not None:
        scores = scores.masked_fill(~mask, -math.inf) if mask.dtype == torch.bool else scores + mask.double()
    nothing = (scores == -math.inf).all(-1, keepdim=True)
    return scores.softmax(-1).masked_fill(nothing, 0.0) @ v


def run(f, tensors, gradients: bool):
    inputs = [x.clone().requires_grad_(gradients) for x in tensors]
    out = f(*inputs)
    if not gradients:
        return [out]
    return [out, *torch.autograd.grad(out.sum(), inputs)]


def check(dtype, sizes, gradients, scales, names=None):
    rows, keys = sizes
    generator = torch.Generator().manual_seed(7)
    tensors = [torch.randn(2, 2, n, 16, generator=generator).to(dtype) for n in (rows, keys, keys)]
    given = masks(rows, keys, dtype)
    cases = [(name, scale) for name in names or given for scale in scales]

    def program(inputs):
        results = []
        for (name, scale), (q, k, v) in zip(cases, inputs, strict=True):
            mask = given[name]
            made = mask() if callable(mask) else mask
            results.append(F.scaled_dot_product_attention(q, k, v, attn_mask=made, scale=scale))
        return results

    torch.compiler.reset()
    compiled = torch.compile(program, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    inputs = [[x.clone().requires_grad_(gradients) for x in tensors] for _ in cases]
    found = compiled(inputs)
    if gradients:
        torch.autograd.backward([x.sum() for x in found])
    for (name, scale), got, own in zip(cases, found, inputs, strict=True):
        mask = given[name]() if callable(given[name]) else given[name]
        eager = run(partial(F.scaled_dot_product_attention, attn_mask=mask, scale=scale), tensors, gradients)
        exact = run(partial(answer, mask=mask, scale=scale), [x.double() for x in tensors], gradients)
        ours = [got, *(x.grad for x in own)] if gradients else [got]
        for kind, a, e, x in zip(("out", "dq", "dk", "dv"), ours, eager, exact, strict=False):
            text = f"{name}, scale {scale}: {kind}"
            lost = a.isnan() & ~e.isnan() & ~x.isnan()
            assert not lost.any(), f"{text} has {int(lost.sum())} NaN more than eager and the formula"
            steep = abs(scale) if kind != "out" and scale and math.isfinite(scale) else 0.0
            limit = TOLERANCE[dtype] * (1 + steep)
            both = torch.isclose(a.double(), e.double(), rtol=limit, atol=limit, equal_nan=True)
            both |= torch.isclose(a.double(), x, rtol=limit, atol=limit, equal_nan=True)
            assert both.all(), (
                f"{text}: {a[~both][:3].tolist()}, eager {e[~both][:3].tolist()}, exact {x[~both][:3].tolist()}"
            )


@pytest.mark.thinned(2)
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_masks_of_positions(dtype, gradients):
    """What is dropped from the graph, or becomes a kernel's own, for scales that turn its -inf around."""
    check(dtype, (8, 8), gradients, QUICK_SCALES, ["positions", "numbers of positions", "everything seen"])


def test_decoding_and_rows():
    check(torch.float32, (1, 16), False, (-1.5, math.inf))
    check(torch.bfloat16, (19, 40), False, (-1.5,))


@pytest.mark.full
@pytest.mark.parametrize("gradients", [False, True])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_all(dtype, sizes, gradients):
    check(dtype, sizes, gradients, SCALES)


@pytest.mark.parametrize("scale", [-1.5, 0.0, None])
def test_a_causal_call_is_no_nan(scale):
    """Better than eager, which gives NaN for -1.5 and 0: float32 and bfloat16 on a CPU mask first."""
    torch.compiler.reset()
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    compiled = torch.compile(F.scaled_dot_product_attention, backend="mlirc")
    with torch.no_grad():
        got = compiled(q, k, v, is_causal=True, scale=scale)
    exact = answer(q.double(), k.double(), v.double(), ~hidden(8, 8), scale)
    torch.testing.assert_close(got.double(), exact, rtol=1e-4, atol=1e-4, equal_nan=True)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("spoiled", ["q", "k"])
@pytest.mark.parametrize("dtype", DTYPES[:3], ids=str)
def test_a_score_of_infinity_loses_no_nan(dtype, spoiled):
    """The row has no softmax: its result is NaN, and so are the gradients of all keys that it meets, those at -inf too."""
    for sizes in ((8, 8), (1, 16), (19, 40)):
        generator = torch.Generator().manual_seed(3)
        q, k, v = (torch.randn(1, 2, n, 16, generator=generator).to(dtype) for n in (sizes[0], sizes[1], sizes[1]))
        (q if spoiled == "q" else k)[0, 0, 0, 0] = math.inf
        torch.compiler.reset()
        got = run(torch.compile(F.scaled_dot_product_attention, backend="mlirc"), (q, k, v), True)
        exact = run(partial(answer, mask=None, scale=None), [x.double() for x in (q, k, v)], True)
        eager = run(F.scaled_dot_product_attention, (q, k, v), True)
        for kind, a, x, e in zip(("out", "dq", "dk", "dv"), got, exact, eager, strict=True):
            lost = x.isnan() & ~a.isnan() & (a != e)
            assert not lost.any(), f"{sizes}: {kind} has {int(lost.sum())} numbers where there is none"
            assert not (a.isnan() & ~x.isnan() & ~e.isnan()).any(), f"{sizes}: {kind} has more NaN"


def test_a_scale_that_is_no_number():
    """NaN, as the formula has it. Eager has NaN for few queries, and numbers for more, in one dtype."""
    q, k, v = (torch.randn(1, 2, 8, 16) for _ in range(3))
    attention = partial(F.scaled_dot_product_attention, scale=math.nan)
    few = attention(q[:, :, :1], k.repeat(1, 1, 2, 1), v.repeat(1, 1, 2, 1))
    assert not WIDE or (not attention(q, k, v).isnan().any() and few.isnan().all())
    torch.compiler.reset()
    assert torch.compile(lambda q, k, v: attention(q, k, v), backend="mlirc")(q, k, v).isnan().all()


@pytest.mark.skipif(not WIDE, reason="eager's kernel for narrower vectors has one answer")
def test_eagers_bfloat16_has_either_answer_to_a_score_of_infinity():
    """Zeros for one query, NaN for eight: ours are NaN, as float32's are."""
    q, k, v = (torch.rand(1, 2, 8, 16).add(0.5).bfloat16() for _ in range(3))
    k[0, 0, 3, 0] = math.inf
    few = F.scaled_dot_product_attention(q[:, :, :1], torch.cat([k, k], 2), torch.cat([v, v], 2))
    assert not few.isnan().any() and F.scaled_dot_product_attention(q, k, v)[0, 0].isnan().all()
