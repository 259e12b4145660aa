"""Variances, means beside them and norms of rows whose sum overflows, and of rows of one number, on a real GPU."""

import pytest
import torch
import torch.nn.functional as F

from tests.dialects.numbers.test_variance import MOMENTS, check_moments, rows_whose_sum_overflows

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
    for n in LENGTHS if dynamic else LENGTHS[1:6:2]:
        x = rows_whose_sum_overflows(n, dtype)
        check_moments(name, run(x.cuda()), x)


def norms(x, weight, bias):
    grouped = F.group_norm(x[:, :, None, None], 1, weight, bias).flatten(1)
    return F.layer_norm(x, x.shape[1:], weight, bias), grouped, F.batch_norm(x[None], None, None, training=True)[0]


NUMBERS = (0.1, 1000.1, -33.3, 1e-3, 0.0, 1e30, 3e38)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("n", [70, 768, 20000])
def test_norms_of_rows_of_one_number(n, dtype):
    """They are their bias, their gradient is that of the distance from the mean, and a weight has none: eager's has, of its mean's rounding."""
    x = torch.tensor(NUMBERS, dtype=dtype)[:, None].expand(-1, n).cuda()
    weight, bias = torch.randn(n, device="cuda").to(dtype), torch.randn(n, device="cuda").to(dtype)
    given = [v.clone().requires_grad_() for v in (x, weight, bias)]
    layer, group, _ = compiled(norms, False)(*given)
    for k, ours in enumerate((layer, group)):
        assert torch.equal(ours, bias.expand_as(ours)), (k, (ours - bias).abs().amax(1))
    found = torch.autograd.grad((layer.float() * 0.5 + group.float().sin()).sum(), given)
    of_bias = 0.5 + bias.double().cos()
    scaled = of_bias * weight.double()
    right = ((scaled - scaled.mean()) / 1e-5**0.5).expand(len(NUMBERS), -1), scaled * 0, of_bias * len(NUMBERS)
    limit = 1e-4 if dtype == torch.float32 else 4e-2
    for ours, exact in zip(found, right, strict=True):
        torch.testing.assert_close(ours.double(), exact, rtol=limit, atol=limit * exact.abs().max().item())


@pytest.mark.parametrize("shape", [(8192, 768), (512, 4096), (4, 300000), (65536, 64)], ids=str)
@pytest.mark.parametrize("shift", [0.0, 1e3])
def test_variances_of_plain_rows(shape, shift):
    """Within twice eager's error of float64, or a rounding."""
    x = torch.randn(shape, device="cuda") + shift
    exact = torch.var_mean(x.double(), 1)
    for got, eager, right in zip(compiled(MOMENTS["rows"], False)(x), torch.var_mean(x, 1), exact, strict=True):
        error, own = ((v.double() - right).norm() / right.norm() for v in (got, eager))
        assert error <= 2 * own + 2e-7, (error, own)
