"""Products whose groups of warps take tiles in turns, against float64: tails, layouts of the weight, NaN."""

import pytest
import torch
import torch.nn.functional as F

from mlirc.lowering.gpu import kernel as triton_kernel
from tests.gpu.test_cublas import check, random

bf16, f16 = torch.bfloat16, torch.float16


@pytest.fixture(autouse=True)
def written(monkeypatch):
    """Every graph has such a product."""
    found, write = [], triton_kernel.write_ping_pong
    monkeypatch.setattr(triton_kernel, "write_ping_pong", lambda *args: found.append(1) or write(*args))
    torch._dynamo.reset()
    yield found
    assert found


def factors(m, n, k, dtype):
    return random(m, k, dtype=dtype), random(n, k, dtype=dtype) / k**0.5, random(n, dtype=dtype)


@pytest.mark.parametrize(
    ("m", "n", "k", "dtype"), [(8192, 3072, 768, bf16), (4100, 5000, 776, f16), (5000, 4104, 72, bf16)]
)
def test_gelu(m, n, k, dtype):
    check(lambda x, w, b: F.gelu(F.linear(x, w, b)), *factors(m, n, k, dtype))


def test_a_weight_that_lies_along_n():
    x, w, b = factors(4224, 4096, 320, bf16)
    check(lambda x, w, b: F.gelu(torch.addmm(b, x, w)), x, w.t().contiguous(), b)


def test_what_is_no_number_stays_in_its_row():
    def fn(x, w, b):
        return F.gelu(F.linear(x, w, b))

    x, w, b = factors(4096, 8200, 264, bf16)
    x[1001], x[3000, 7] = float("nan"), float("inf")
    call = torch.compile(fn, backend="mlirc", options={"fallback": "error"})
    torch.testing.assert_close(call(x, w, b), fn(x, w, b), rtol=2e-2, atol=2e-2, equal_nan=True)
    for _ in range(20):  # the same bits each time
        assert call(x, w, b).nan_to_num().equal(call(x, w, b).nan_to_num())
