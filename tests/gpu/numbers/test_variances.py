"""Variances, means beside them and norms of rows whose sum overflows, and of rows of one number, on a real GPU."""

import pytest
import torch
import torch.nn.functional as F

from tests.dialects.numbers.test_variance import MOMENTS, in_long_doubles, rows_whose_sum_overflows

LENGTHS = (3, 70, 768, 5000, 16411, 20000, 200000)


@pytest.fixture(autouse=True)
def forget():
    torch._dynamo.reset()


def compiled(fn, dynamic):
    return torch.compile(fn, backend="mlirc", fullgraph=True, dynamic=dynamic, options={"fallback": "error"})


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", MOMENTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
def test_variances_of_rows_whose_sum_overflows(dtype, name, dynamic):
    """The limit is as in tests/dialects/numbers/test_variance.py: rounding, whatever the length, in registers, in a loop and in parts."""
    run = compiled(MOMENTS[name], dynamic)
    eps = torch.finfo(dtype).eps
    for n in LENGTHS if dynamic else LENGTHS[1:6:2]:
        x = rows_whose_sum_overflows(n, dtype)
        right = in_long_doubles(x)
        for got, exact in zip(run(x.cuda()), right[-1:] if name == "mean alone" else right, strict=True):
            wrong = ~torch.isclose(got.cpu().double(), exact.double(), rtol=64 * eps, atol=64 * eps, equal_nan=True)
            assert not wrong.any(), (n, wrong.nonzero()[:4].tolist(), got[wrong.cuda()][:4], exact[wrong][:4])


def norms(x, weight, bias):
    image = x[:, :, None, None]
    return (
        F.layer_norm(x, x.shape[1:], weight, bias),
        F.group_norm(image, 1, weight, bias).flatten(1),
        F.batch_norm(x.t()[None], None, None, None, None, True)[0].t(),
        F.instance_norm(x[None])[0],
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [70, 768, 20000])
def test_norms_of_rows_of_one_number(n, dtype):
    """Forward and backward: eager's results where they are numbers."""
    x = (
        torch.tensor([0.1, 1000.1, -33.3, 1e-3, 0.0, torch.finfo(dtype).max, 1e30], dtype=dtype)[:, None]
        .expand(-1, n)
        .cuda()
    )
    weight, bias = torch.randn(n, device="cuda").to(dtype), torch.randn(n, device="cuda").to(dtype)
    found = []
    for f in (norms, compiled(norms, False)):
        given = [v.clone().requires_grad_() for v in (x, weight, bias)]
        made = f(*given)
        loss = sum((v.float().clamp(-9, 9) * 0.5).sum() for v in made[:2])
        found.append([*made, *torch.autograd.grad(loss, given)])
    limit = 2e-5 if dtype == torch.float32 else 2e-2
    for k, (eager, ours) in enumerate(zip(*found, strict=True)):
        ours = torch.where(eager.isfinite(), ours, eager)
        torch.testing.assert_close(
            ours, eager, rtol=limit, atol=limit, equal_nan=True, msg=lambda text, k=k: f"{k}: {text}"
        )


@pytest.mark.parametrize("shape", [(8192, 768), (512, 4096), (4, 300000), (65536, 64)], ids=str)
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_variances_of_plain_rows(shape, shift):
    """Within twice eager's error of float64, or a rounding."""
    x = torch.randn(shape, device="cuda") + shift
    exact = torch.var_mean(x.double(), 1)
    for got, eager, right in zip(compiled(MOMENTS["rows"], False)(x), torch.var_mean(x, 1), exact, strict=True):
        error, own = ((v.double() - right).norm() / right.norm() for v in (got, eager))
        assert error <= 2 * own + 2e-7, (error, own)
