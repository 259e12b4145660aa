"""Attention, from the op to machine code: against float64, over shapes, masks, dtypes, strides and numbers of threads."""

from collections.abc import Callable, Sequence

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlirc
from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core.bindings import func, ir
from mlirc.dialects.core.context import context
from mlirc.dialects.core.tensor_types import TensorInfo, type_of
from mlirc.dialects.interpreter.interpreter import run
from mlirc.dialects.ops.nn.attention import Attention, attention
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import PassError, run_pipeline
from mlirc.lowering.verify.stage import verify_stage

pytestmark = pytest.mark.thinned

LOWER = "to-kernels,plan-memory,lower-kernels"  # without select-attention: every call is ours
FLOOR = {torch.float32: 1e-6, torch.bfloat16: 1e-2}  # where eager happens to be exact


def like(x: torch.Tensor) -> TensorInfo:
    return TensorInfo(x.dtype, tuple(x.shape), x.stride())


def module_of(operands: list[torch.Tensor], scale: float, causal: str, lse=torch.float32) -> ir.Module:
    """A module whose @graph is one attention, with the results laid out as ATen's are."""
    q, v = operands[0], operands[2]
    batch, heads, rows, size = *q.shape[:3], v.shape[3]
    out = torch.empty(batch, rows, heads, size, dtype=q.dtype).transpose(1, 2)
    sums = torch.empty(batch, rows, heads, dtype=lse).transpose(1, 2)
    infos = [like(out), like(sums)]
    return graph_of(operands, lambda arguments: attention(arguments, infos, scale, causal))


def graph_of(operands: list[torch.Tensor], build: Callable[[list[ir.Value]], Sequence[ir.Value]]) -> ir.Module:
    """A module whose @graph returns what `build` makes of arguments like `operands`."""
    module = ir.Module.create()
    with ir.InsertionPoint(module.body):
        function = func.FuncOp("graph", ([type_of(like(x)) for x in operands], []))
    block = function.add_entry_block()
    with ir.InsertionPoint(block):
        results = build(list(block.arguments))
        func.ReturnOp(results)
    types = [x.type for x in block.arguments], [x.type for x in results]
    function.attributes["function_type"] = ir.TypeAttr.get(ir.FunctionType.get(*types))
    return module


def compiled(operands: list[torch.Tensor], scale: float, causal: str):
    with context():
        module = module_of(operands, scale, causal)
        run_pipeline(module, LOWER)
        assert "mlircx.aten" not in str(module)
        return compile_module(module)


def wanted(operands: list[torch.Tensor], scale: float, causal: str) -> tuple[torch.Tensor, torch.Tensor]:
    wide = [x if x.dtype == torch.bool else x.double() for x in operands]
    return Attention.reference(*wide, scale=scale, causal=causal)


def check(operands: list[torch.Tensor], scale: float, causal: str, threads: int = 1) -> None:
    """At most twice the error of the same in eager, rounded to the dtype at the end as ours is."""
    dtype, made = operands[0].dtype, on_threads(compiled(operands, scale, causal), operands, threads)
    exact, eager = wanted(operands, scale, causal), Attention.reference(*operands, scale=scale, causal=causal)
    for have, right, other in zip(made, exact, eager, strict=True):
        assert (have.isnan() == right.isnan()).all()
        error, theirs = ((x.double() - right).nan_to_num().abs().max() for x in (have, other))
        floor = max(FLOOR[dtype], score_rounding(operands, scale)) * right.nan_to_num().abs().max().clamp(min=1e-30)
        assert error <= 2 * theirs + floor, (error, theirs)


def on_threads(program: Callable, operands: list[torch.Tensor], threads: int) -> list[torch.Tensor]:
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        return program(list(operands))
    finally:
        torch.set_num_threads(before)


def score_rounding(operands: list[torch.Tensor], scale: float) -> float:
    """What one rounding of the largest score, a sum in float32, does to its weight: of a few rows, eager's error may be luck."""
    q, k = (x.double().nan_to_num() for x in operands[:2])
    scores = q @ k.repeat_interleave(q.shape[1] // max(k.shape[1], 1), 1).transpose(2, 3) * scale
    return torch.finfo(torch.float32).eps * scores.abs().max().item() if scores.numel() else 0.0


@st.composite
def calls(draw):
    """Operands, scale and `causal`."""
    torch.manual_seed(draw(st.integers(0, 1 << 20)))
    dtype = draw(st.sampled_from([torch.float32, torch.float32, torch.bfloat16]))
    batch, shared, group = draw(st.integers(1, 2)), draw(st.integers(1, 3)), draw(st.integers(1, 3))
    heads = shared * group
    rows = draw(st.sampled_from([1, 1, 2, 15, 16, 17, 31, 33, 70]))
    keys = draw(st.sampled_from([rows, 1, 2, 13, 14, 15, 97, 113, 140, 600]))
    head = draw(st.sampled_from([1, 3, 8, 16, 17, 32, 64, 100]))
    values = draw(st.sampled_from([head, head, 5, 40]))
    lay = draw(st.sampled_from(["plain", "heads last", "one projection", "transposed"]))

    def tensor(heads: int, rows: int, size: int) -> torch.Tensor:
        if lay == "plain":
            x = torch.randn(batch, heads, rows, size)
        elif lay == "heads last":
            x = torch.randn(batch, rows, heads, size).transpose(1, 2)
        elif lay == "one projection":
            x = torch.randn(batch, rows, heads, 3, size)[:, :, :, 1].transpose(1, 2)
        else:
            x = torch.randn(batch, heads, size, rows).transpose(2, 3)
        return x.to(dtype)

    operands = [tensor(heads, rows, head), tensor(shared, keys, head), tensor(shared, keys, values)]
    if draw(st.booleans()):
        shape = [n if draw(st.booleans()) else 1 for n in (batch, heads, rows, keys)]
        mask = torch.rand(shape) > 0.3
        if draw(st.booleans()):
            hidden = draw(st.sampled_from([float("-inf"), torch.finfo(dtype).min]))
            mask = torch.randn(shape).masked_fill(~mask, hidden).to(dtype)
        if draw(st.booleans()):
            mask = mask.transpose(2, 3).contiguous().transpose(2, 3)
        operands.append(mask)
    return (
        operands,
        draw(st.sampled_from([head**-0.5, 1.0])),
        draw(st.sampled_from(["none", "upper_left", "lower_right"])),
    )


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(calls(), st.integers(1, 3))
def test_any_call(call, threads):
    check(*call, threads=threads)


@pytest.mark.full
@settings(max_examples=600, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(calls(), st.integers(1, 3))
def test_any_of_many_calls(call, threads):
    check(*call, threads=threads)


@pytest.mark.parametrize("causal", ["none", "upper_left"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_evict_each_other(dtype, causal):
    """4096 bytes apart: copied first."""
    check([torch.randn(1, 50, 16, 64).to(dtype).transpose(1, 2) for _ in range(3)], 0.125, causal)


@pytest.mark.parametrize("rows", [1, 20])
def test_scores_beyond_every_power(rows):
    """Large differences of scores, and rows of nothing but large negative ones."""
    q, k, v = torch.randn(1, 2, rows, 16) * 100, torch.randn(1, 2, 90, 16) * 100, torch.randn(1, 2, 90, 16)
    check([q, k, v], 1.0, "none")
    check([q, k, v, torch.full((1, 1, 1, 90), -1e30)], 1.0, "none")


@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_nan_and_inf(rows, bad):
    q, k, v = torch.rand(1, 2, rows, 16), torch.rand(1, 2, 40, 16), torch.rand(1, 2, 40, 16)
    k[0, 1, 30, 3] = bad
    out, lse = compiled([q, k, v], 0.25, "none")([q, k, v])
    assert out[0, 1].isnan().all() and not out[0, 0].isnan().any() and not lse[0, 0].isnan().any()


def test_a_hidden_key_may_be_nan():
    q = torch.rand(1, 2, 20, 16)
    k, v = q.clone(), q.clone()
    k[:, :, 19] = float("nan")
    out, _ = compiled([q, k, v], 0.25, "upper_left")([q, k, v])
    assert not out[:, :, :19].isnan().any()


@pytest.mark.parametrize("rows", [1, 20])
def test_rows_that_see_nothing_give_0(rows):
    q, k, v = torch.rand(1, 2, rows, 16), torch.rand(1, 2, 40, 16), torch.rand(1, 2, 40, 16)
    mask = torch.ones(1, 1, rows, 40, dtype=torch.bool)
    mask[:, :, rows - 1] = False
    out, lse = compiled([q, k, v, mask], 0.25, "none")([q, k, v, mask])
    assert (out[:, :, rows - 1] == 0).all() and (lse[:, :, rows - 1] == 0).all()


def test_every_form_can_be_interpreted():
    operands = [torch.randn(2, 4, 9, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 8), torch.randn(1, 4, 1, 11)]
    right = Attention.reference(*operands, scale=0.5, causal="lower_right")
    with context():
        module = module_of(operands, 0.5, "lower_right")
        for step in ("canonicalize", "select-attention,to-kernels", "plan-memory", "lower-kernels"):
            run_pipeline(module, step)
            torch.testing.assert_close(run(module.body.operations[0], operands), list(right))


def test_what_our_kernels_do_not_cover_is_atens():
    operands = [torch.randn(2, 4, 9, 8, dtype=torch.float64) for _ in range(3)]
    with context():
        module = module_of(operands, 0.5, "upper_left", torch.float64)
        run_pipeline(module, f"select-attention,{LOWER}")
        assert "_scaled_dot_product_flash_attention_for_cpu" in str(module)
        made = compile_module(module)(list(operands))
    torch.testing.assert_close(made, list(Attention.reference(*operands, scale=0.5, causal="upper_left")))
    with context(), pytest.raises(PassError, match="neither ATen nor a kernel of ours"):
        run_pipeline(module_of(operands, 0.5, "lower_right", torch.float64), f"select-attention,{LOWER}")


@pytest.mark.parametrize(
    ("shapes", "causal", "why"),
    [
        ([(2, 4, 9, 8), (2, 3, 9, 8), (2, 3, 9, 8)], "none", "4 heads share 3"),
        ([(2, 4, 9, 8), (2, 4, 9, 7), (2, 4, 9, 8)], "none", "keys"),
        ([(2, 4, 9, 8), (2, 4, 9, 8), (2, 4, 7, 8)], "none", "values"),
        ([(2, 4, 9, 8), (2, 4, 9, 8), (2, 4, 9, 8), (2, 4, 3, 9)], "none", "a mask"),
        ([(2, 4, 9, 8), (2, 4, 9, 8), (2, 4, 9, 8)], "left", "causal = 'left'"),
    ],
)
def test_the_verifier(shapes, causal, why):
    with context():
        module = module_of([torch.empty(shape) for shape in shapes], 0.5, causal)
        with pytest.raises(StageError, match=why):
            verify_stage(module.body.operations[0], "graph")


# ---- from PyTorch

sdpa = torch.nn.functional.scaled_dot_product_attention


def report_of(function, *args) -> dict:
    with torch.no_grad():
        return mlirc.explain(function)(*args).data["graphs"][0]


def causal_by_hand(q, k, v):
    """As transformers writes it."""
    rows, keys = torch.arange(q.shape[2]), torch.arange(k.shape[2])
    seen = (keys[None, :] <= rows[:, None])[None, None].expand(q.shape[0], 1, -1, -1)
    return sdpa(q, k, v, attn_mask=seen)


def always_true(q, k, v):
    seen = (torch.arange(k.shape[2]) + 0 >= 0)[None, None, :, None].expand(q.shape[0], 1, k.shape[2], k.shape[2])
    return sdpa(q, k, v, attn_mask=seen)


def lowest(q, k, v):
    mask = torch.full((q.shape[2], k.shape[2]), torch.finfo(q.dtype).min).triu(1)
    return sdpa(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("function", [causal_by_hand, always_true])
def test_masks_by_position_are_dropped(function, dynamic):
    q, k, v = (torch.randn(2, 19, 4, 16).transpose(1, 2) for _ in range(3))
    call = torch.compile(function, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    with torch.no_grad():
        torch.testing.assert_close(call(q, k, v), function(q, k, v))
    if not dynamic:
        graph = report_of(function, q, k, v)
        assert [kernel["name"] for kernel in graph["kernels"]] == ["attention"] and not graph["aten"]


def test_other_masks_are_right_too():
    q, k, v = (torch.randn(2, 19, 4, 16).transpose(1, 2) for _ in range(3))
    with torch.no_grad():
        call = torch.compile(lowest, backend="mlirc", options={"fallback": "error"})
        torch.testing.assert_close(call(q, k, v), lowest(q, k, v))


def shared_keys(q, k, v):
    k, v = (x[:, :, None].expand(-1, -1, 2, -1, -1).reshape(x.shape[0], -1, *x.shape[2:]) for x in (k, v))
    return sdpa(q, k, v)


@pytest.mark.parametrize("rows", [1, 30])
def test_repeated_keys_are_read_in_place(rows):
    q, k, v = torch.randn(2, 6, rows, 16), torch.randn(2, 3, 30, 16), torch.randn(2, 3, 30, 16)
    call = torch.compile(shared_keys, backend="mlirc", options={"fallback": "error"})
    with torch.no_grad():
        torch.testing.assert_close(call(q, k, v), shared_keys(q, k, v))
    assert [kernel["name"] for kernel in report_of(shared_keys, q, k, v)["kernels"]] == ["attention"]


@pytest.mark.thinned(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("form", ["plain", "causal", "mask", "dropout", "shared"])
def test_training(form, dtype):
    torch.manual_seed(1)
    q, k, v = (torch.randn(2, 24, 4, 16, dtype=dtype).transpose(1, 2).requires_grad_() for _ in range(3))
    if form == "shared":
        k, v = (x.detach()[:, :2].requires_grad_() for x in (k, v))
    mask = torch.randn(1, 4, 24, 24, dtype=dtype) if form == "mask" else None

    def function(q, k, v):
        dropout = 0.5 if form == "dropout" else 0.0
        return sdpa(q, k, v, mask, dropout, form == "causal", enable_gqa=form == "shared").sin()

    call = torch.compile(function, backend="mlirc", options={"fallback": "error"})
    gradients = []
    for f in (call, function):
        torch.manual_seed(2)
        out = f(q, k, v)
        gradients.append((out, *torch.autograd.grad(out.sum(), (q, k, v))))
    tolerance = {torch.bfloat16: 0.05, torch.float32: 1e-5, torch.float64: 1e-9}[dtype]
    for ours, eager in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, eager, rtol=tolerance, atol=tolerance)
