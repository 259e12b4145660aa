"""Operators that have kernels on a GPU alone, computed on a CPU: as eager's formula gives, and in graphs whose passes are checked."""

import pytest
import torch
import torch.nn.functional as F
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx

from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.gpu_operators import NotOnACPU, call, never_draws, promised
from mlirc.frontend.importer.importer import import_graph
from tests.forked_programs import COMMANDS, python

aten = torch.ops.aten
EFFICIENT, FLASH, CUDNN = (
    getattr(aten, f"_scaled_dot_product_{kind}_attention").default for kind in ("efficient", "flash", "cudnn")
)
BACK = {f: getattr(aten, f.name().removeprefix("aten::") + "_backward").default for f in (EFFICIENT, FLASH, CUDNN)}


def drawn(dtype, heads=4, m=5, n=7, e=8, f=8):
    generator = torch.Generator().manual_seed(3)
    make = lambda *shape: torch.randn(shape, generator=generator).to(dtype)
    return make(2, 4, m, e), make(2, heads, n, e), make(2, heads, n, f), make(2, 1, m, n), make(2, 4, m, f)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("operator", [EFFICIENT, FLASH, CUDNN], ids=str)
def test_attention(operator, causal, dtype):
    """Output, rows' sums and gradients; a bias and values of another length where the operator takes them."""
    plain = operator is FLASH
    q, k, v, bias, grad = drawn(dtype, 2 if plain else 4, f=8 if plain else 6)
    bias = None if plain or causal else bias
    leaves = [x.double().clone().requires_grad_() for x in (q, k, v) + (() if bias is None else (bias,))]
    mask = leaves[3] if bias is not None else None
    expected = F.scaled_dot_product_attention(
        *leaves[:3], attn_mask=mask, is_causal=causal, scale=0.3, enable_gqa=plain
    )
    wanted = torch.autograd.grad(expected, leaves, grad.double())

    front = () if plain else (bias, True)
    out, total, *rest = call(operator, (q, k, v, *front, 0.0, causal), {"scale": 0.3})
    limit = {torch.float64: 1e-12, torch.float32: 1e-5, torch.bfloat16: 3e-2}[dtype]
    torch.testing.assert_close(out.double(), expected, rtol=limit, atol=limit)
    assert out.dtype == dtype and total.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
    saved = [x for x in rest if isinstance(x, torch.Tensor) and x.numel() <= 2 and not x.is_floating_point()][:2]
    if operator is EFFICIENT:
        given = (grad, q, k, v, bias, out, total, *saved, 0.0, [True, True, True, bias is not None], causal)
    elif plain:
        given = (grad, q, k, v, out, total, None, None, 5, 7, 0.0, causal, *saved)
    else:
        given = (grad, q, k, v, out, total, *saved, bias, None, None, 5, 7, 0.0, causal)
    found = [x for x in call(BACK[operator], given, {"scale": 0.3}) if x is not None]
    for ours, eager in zip(found, wanted, strict=operator is EFFICIENT):
        assert ours.dtype == dtype
        torch.testing.assert_close(ours.double(), eager, rtol=4 * limit, atol=4 * limit)


@pytest.mark.parametrize("operator", [EFFICIENT, FLASH, CUDNN], ids=str)
def test_results_are_as_the_meta_function_says(operator):
    q, k, v, _, _ = drawn(torch.bfloat16)
    args = (q, k, v) if operator is FLASH else (q, k, v, None, True)
    for ours, said in zip(call(operator, args, {}), promised(operator, args, {}), strict=True):
        assert type(ours) is type(said)
        if isinstance(ours, torch.Tensor):
            assert (ours.shape, ours.dtype) == (said.shape, said.dtype)


def test_dropout_draws_on_a_gpu():
    q, k, v, _, _ = drawn(torch.float32)
    assert never_draws(EFFICIENT, (q, k, v, None, True), {}) and never_draws(EFFICIENT, (q, k, v, None, True, 0.0), {})
    assert not never_draws(EFFICIENT, (q, k, v, None, True, 0.5), {}) and not never_draws(
        aten.bernoulli.p, (q, 0.5), {}
    )
    with pytest.raises(NotOnACPU, match="dropout"):
        call(EFFICIENT, (q, k, v, None, True, 0.5), {})


def test_what_a_gpu_alone_has():
    x, w, b = torch.randn(2, 3, 6, 6), torch.randn(4, 3, 3, 3), torch.randn(4)
    z = torch.randn(2, 4, 6, 6)
    made = F.conv2d(x, w, b, padding=1)
    torch.testing.assert_close(
        call(aten.cudnn_convolution_relu.default, (x, w, b, [1, 1], [1, 1], [1, 1], 1), {}), made.relu()
    )
    given = (x, w, z, 0.5, b, [1, 1], [1, 1], [1, 1], 1)
    torch.testing.assert_close(call(aten.cudnn_convolution_add_relu.default, given, {}), (made + 0.5 * z).relu())
    one = torch.ones(3)
    norm = call(aten.cudnn_batch_norm.default, (x, one, one, None, None, True, 0.1, 1e-5), {})
    leaf = x.clone().requires_grad_()
    expected = F.batch_norm(leaf, None, None, one, one, True)
    torch.testing.assert_close(norm[0], expected)
    given = (x, torch.full_like(x, 0.5), one, None, None, norm[1], norm[2], 1e-5, norm[3])
    (grad,) = torch.autograd.grad(expected, leaf, torch.full_like(x, 0.5))
    torch.testing.assert_close(call(aten.cudnn_batch_norm_backward.default, given, {})[0], grad, rtol=1e-4, atol=1e-5)
    with pytest.raises(NotImplementedError, match="CPU"):
        call(aten._thnn_fused_gru_cell.default, (x, x, x), {})


@pytest.mark.thinned(1)
@pytest.mark.parametrize("half", [False, True], ids=["float32", "bfloat16"])
def test_a_graph_with_attention_is_checked(half, tmp_path):
    """Forward and backward, drawn inputs, against float64: the graph of a GPU, where there is none."""

    def step(q, k, v, grad):
        out, total, seed, offset = EFFICIENT(q * 2, k, v, None, True)
        found = BACK[EFFICIENT](grad, q * 2, k, v, None, out, total, seed, offset, 0.0, [True, True, True, False])
        return [out.relu(), *(x + 1 for x in found[:3])]

    dtype = torch.bfloat16 if half else torch.float32
    with FakeTensorMode():
        graph = make_fx(step)(*(torch.empty(2, 4, 8, 8, device="cuda", dtype=dtype) for _ in range(4)))
    with context():
        (tmp_path / "step.mlir").write_text(str(import_graph(graph).module))
    done = python(
        "-m", "mlirc", "run", "step.mlir", "--pipeline", "gpu", "--check-each-pass", cwd=tmp_path, imported=COMMANDS
    )
    assert done.returncode == 0 and "compared with float64" in done.stderr, done.stderr
