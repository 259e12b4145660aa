"""Attention's gradients, from the op to machine code: against float64, over shapes, masks, dtypes, strides and threads."""

from collections.abc import Callable

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlirc
from mlirc.codegen.emit.emit import compile_module
from mlirc.dialects.core.bindings import ir
from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.dialects.ops.nn.attention import Attention, AttentionBackward, attention_backward
from mlirc.lowering.module.rules import StageError
from mlirc.lowering.pipeline.pass_manager import run_pipeline
from mlirc.lowering.verify.stage import verify_stage
from tests.lowering.cpu.attention.test_attention import FLOOR, LOWER, calls, graph_of, like, on_threads, score_rounding

sdpa = torch.nn.functional.scaled_dot_product_attention


def heads_last(x: torch.Tensor) -> torch.Tensor:
    """Laid out as ATen's gradients are."""
    return torch.empty_like(x.transpose(1, 2).contiguous()).transpose(1, 2)


def module_of(operands: list[torch.Tensor], scale: float, causal: str, lay: Callable = heads_last) -> ir.Module:
    """A module whose @graph is the gradients. Operands: dout, q, k, v, out, lse, a mask or none."""
    infos = [like(lay(x)) for x in operands[1:4]]
    return graph_of(operands, lambda arguments: attention_backward(arguments, infos, scale, causal)[:3])


def compiled(operands: list[torch.Tensor], scale: float, causal: str):
    with context():
        module = module_of(operands, scale, causal)
        run_pipeline(module, "to-kernels,plan-memory,lower-kernels")
        return compile_module(module)


def operands_of(dout: torch.Tensor, inputs: list[torch.Tensor], scale: float, causal: str) -> list[torch.Tensor]:
    """With what the forward pass gives for `inputs`: q, k, v, a mask or none."""
    return [dout, *inputs[:3], *Attention.reference(*inputs, scale=scale, causal=causal), *inputs[3:]]


def wide(x: torch.Tensor) -> torch.Tensor:
    return x if x.dtype == torch.bool else x.double()


def check(dout: torch.Tensor, inputs: list[torch.Tensor], scale: float, causal: str, threads: int = 1) -> None:
    """At most twice the error of the same in eager."""
    operands = operands_of(dout, inputs, scale, causal)
    made = on_threads(compiled(operands, scale, causal), operands, threads)
    exact_operands = operands_of(wide(dout), list(map(wide, inputs)), scale, causal)
    exact = AttentionBackward.reference(*exact_operands, scale=scale, causal=causal)[:3]
    eager = AttentionBackward.reference(*operands, scale=scale, causal=causal)[:3]
    floor = max(FLOOR[dout.dtype], score_rounding(inputs, scale))
    largest = max(x.abs().max() for x in exact if x.numel()) if any(x.numel() for x in exact) else 0.0
    for have, right, other in zip(made, exact, eager, strict=True):
        assert have.shape == right.shape and have.dtype == dout.dtype
        if right.numel():
            error, theirs = ((x.double() - right).abs().max() for x in (have, other))
            assert error <= 2 * theirs + floor * largest, (error, theirs)


@st.composite
def backward_calls(draw):
    inputs, scale, causal = draw(calls())
    q, v = inputs[0], inputs[2]
    shape = *q.shape[:3], v.shape[3]
    lay = draw(st.sampled_from(["plain", "heads last", "one number"]))
    if lay == "one number":
        return torch.randn((), dtype=torch.float32).to(q.dtype).expand(shape), inputs, scale, causal
    dout = torch.randn(shape)
    dout = dout if lay == "plain" else dout.transpose(1, 2).contiguous().transpose(1, 2)
    return dout.to(q.dtype), inputs, scale, causal


QUICK = settings(
    max_examples=8, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@QUICK
@given(backward_calls(), st.integers(1, 3))
def test_any_call(call, threads):
    check(*call, threads=threads)


@pytest.mark.full
@settings(QUICK, max_examples=500)
@given(backward_calls(), st.integers(1, 3))
def test_any_of_many_calls(call, threads):
    check(*call, threads=threads)


@pytest.mark.parametrize("causal", ["none", "upper_left", "lower_right"])
def test_the_reference_gives_autograds_gradients(causal):
    shapes = (2, 4, 9, 8), (2, 2, 13, 8), (2, 2, 13, 5)
    q, k, v = (torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)
    mask = torch.rand(2, 1, 9, 13) > 0.3
    mask[..., 0] = True
    out, lse = Attention.reference(q, k, v, mask, scale=0.3, causal=causal)
    dout = torch.randn_like(out)
    operands = [dout, *(x.detach() for x in (q, k, v, out, lse)), mask]
    made = AttentionBackward.reference(*operands, scale=0.3, causal=causal)
    torch.testing.assert_close(made[:3], torch.autograd.grad(out, (q, k, v), dout))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_several_blocks_and_the_same_bits_with_any_number_of_threads(dtype):
    torch.manual_seed(0)
    inputs = [torch.randn(2, 300, heads, 24).to(dtype).transpose(1, 2) for heads in (4, 2, 2)]
    dout = torch.randn(2, 4, 300, 24).to(dtype)
    check(dout, inputs, 0.2, "upper_left")
    operands = operands_of(dout, inputs, 0.2, "upper_left")
    program = compiled(operands, 0.2, "upper_left")
    one, *others = (on_threads(program, operands, threads) for threads in (1, 2, 3, 7))
    for other in others:
        for x, y in zip(one, other, strict=True):
            assert torch.equal(x, y)


@pytest.mark.parametrize(("which", "spoiled"), [(2, float("nan")), (3, float("inf"))])
def test_what_a_hidden_key_or_value_holds(which, spoiled):
    """Queries before it, and their keys, get the same gradients; but for dq, where a key counts 0 times."""
    dout, *inputs = (torch.randn(1, 2, 40, 16) for _ in range(4))
    operands = operands_of(dout, inputs, 0.25, "upper_left")
    program = compiled(operands, 0.25, "upper_left")
    clean = program(list(operands))
    operands[which] = operands[which].clone()
    operands[which][:, :, 30:] = spoiled
    for name, made, right in zip(("dq", "dk", "dv"), program(operands), clean, strict=True):
        assert (name, which) == ("dq", 2) or torch.equal(made[:, :, :30], right[:, :, :30])


def test_nan_and_rows_that_see_nothing():
    q, k, v, dout = (torch.randn(1, 2, 20, 16) for _ in range(4))
    mask = torch.ones(1, 1, 20, 20, dtype=torch.bool)
    mask[:, :, 7] = False
    q[0, 0, 7], q[0, 1, 3, 2] = float("inf"), float("nan")
    operands = operands_of(dout, [q, k, v, mask], 0.25, "none")
    dq, dk, dv = compiled(operands, 0.25, "none")(list(operands))
    assert (dq[:, :, 7] == 0).all() and dq[0, 1, 3].isnan().all() and not dq[0, 1, 4].isnan().any()
    assert dk[0, 1].isnan().all() and dv[0, 1].isnan().all() and not dv[0, 0].isnan().any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_every_form_can_be_interpreted(dtype):
    inputs = [torch.randn(2, 4, 9, 8), torch.randn(2, 2, 11, 8), torch.randn(2, 2, 11, 8), torch.randn(1, 4, 1, 11)]
    operands = operands_of(torch.randn(2, 4, 9, 8).to(dtype), [x.to(dtype) for x in inputs], 0.5, "lower_right")
    right = AttentionBackward.reference(*operands, scale=0.5, causal="lower_right")[:3]
    with context():
        module = module_of(operands, 0.5, "lower_right")
        for step in ("canonicalize", "select-attention,to-kernels", "plan-memory", "lower-kernels"):
            run_pipeline(module, step)
            torch.testing.assert_close(run(module.body.operations[0], operands), list(right))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda x: [*x[:4], torch.empty(2, 4, 9, 7), *x[5:]], "a result"),
        (lambda x: [torch.empty(2, 4, 8, 8), *x[1:]], "a gradient is alike"),
        (lambda x: [*x, torch.empty(2, 4, 3, 9)], "a mask"),
    ],
)
def test_the_verifier(change, why):
    operands = [*(torch.empty(2, 4, 9, 8) for _ in range(5)), torch.empty(2, 4, 9)]
    with context():
        module = module_of(change(operands), 0.5, "none")
        with pytest.raises(StageError, match=why):
            verify_stage(module.body.operations[0], "graph")


# ---- from PyTorch


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_training_with_changing_lengths_calls_no_kernel_of_atens(dtype):
    def function(q, k, v):
        return sdpa(q, k, v, is_causal=True)

    def tensors(length: int) -> list[torch.Tensor]:
        return [torch.randn(2, length, 4, 16).to(dtype).transpose(1, 2).requires_grad_() for _ in range(3)]

    torch.manual_seed(0)
    call = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for length in (33, 50, 300):
        inputs = tensors(length)
        made, right = (torch.autograd.grad(f(*inputs).sin().sum(), inputs) for f in (call, function))
        tolerance = 1e-5 if dtype == torch.float32 else 0.05
        torch.testing.assert_close(made, right, rtol=tolerance, atol=tolerance)
    data = mlirc.explain(lambda *x: function(*x).sum())(*tensors(40)).data
    kernels = [kernel["name"] for graph in data["graphs"] for kernel in graph["kernels"]]
    assert "attention" in kernels and "attention_backward" in kernels
    assert not any(graph["aten"] for graph in data["graphs"])


@pytest.mark.parametrize(
    ("queries", "dtype", "causal", "aten"),
    [
        (1, torch.float32, "none", True),
        (8, torch.float32, "none", False),
        (1, torch.bfloat16, "none", False),
        (1, torch.float32, "lower_right", False),  # which ATen does not have
    ],
)
def test_gradients_of_few_queries_are_atens(queries, dtype, causal, aten):
    inputs = [torch.randn(1, 2, rows, 8).to(dtype) for rows in (queries, 64, 64)]
    operands = operands_of(torch.randn(1, 2, queries, 8).to(dtype), inputs, 0.5, causal)
    with context():
        module = module_of(operands, 0.5, causal)
        run_pipeline(module, "select-attention")
        assert ("mlircx.aten" in str(module)) == aten


def test_gradients_whose_rows_do_not_lie_side_by_side_are_atens():
    operands = operands_of(torch.randn(1, 2, 9, 8), [torch.randn(1, 2, 9, 8) for _ in range(3)], 0.5, "none")
    right = AttentionBackward.reference(*operands, scale=0.5, causal="none")[:3]
    with context():
        module = module_of(operands, 0.5, "none", lambda x: torch.empty(1, 2, 8, 9).transpose(2, 3))
        run_pipeline(module, f"select-attention,{LOWER}")
        assert "flash_attention_for_cpu_backward" in str(module)
        made = compile_module(module)(list(operands))
    torch.testing.assert_close(made, list(right))
    assert all(x.stride() == (144, 72, 1, 9) for x in made)
