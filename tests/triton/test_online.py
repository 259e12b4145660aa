"""Rows that go in a loop: a maximum and the sum of exponentials, a mean and the squares around it, are folded in one pass."""

import pytest
import torch

from tests.kernel_runner import info
from tests.triton.runner import TritonKernel, small

f32, bf16 = torch.float32, torch.bfloat16
INF, NAN = float("inf"), float("nan")


def rows(dtype=f32, length=70) -> torch.Tensor:
    x = torch.randn(9, length) * 30
    x[1, 5], x[2, :40], x[3], x[4, 69], x[5, 3], x[5, 60] = INF, -INF, -INF, NAN, INF, -INF
    x[6], x[7] = torch.finfo(dtype).min, torch.linspace(-80, 3e38, length)
    x[8, 0], x[8, 1] = INF, NAN
    return x.to(dtype)


def total(k, value, safe):
    top = k.reduce("max", value)
    centre = k.select(k.isinf(top), 0.0, top) if safe else top
    return top, k.reduce("sum", k.exp(k.sub(value, centre)))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize(
    ("length", "limit", "lanes"),
    [(70, 4, ""), (70, 64, "[2, x.shape[0] // 2]"), (72, 32, "[x.shape[0] // "), (128, 32, "[x.shape[0] // ")],
    ids=["lane by lane", "groups apart", "groups side by side", "whole blocks"],
)
@pytest.mark.parametrize("safe", [False, True])
@pytest.mark.parametrize("dtype", [f32, bf16])
@pytest.mark.thinned
def test_rows(dtype, safe, length, limit, lanes, symbolic):
    def build(k, x):
        top, sum_ = total(k, k.read(x, k.dims), safe)
        return [(top, k.parallel_dims, info(f32, sizes[0])), (sum_, k.parallel_dims, info(f32, sizes[0]))]

    sizes = ("s0", "s1") if symbolic else ("9", str(length))
    kernel = TritonKernel([info(dtype, ", ".join(sizes))], *sizes, build, shrink=small(limit))
    if not symbolic:
        assert kernel.source.count("for start") == 1 + (length % limit != 0)
        assert lanes in kernel.source and ("tl.reshape" in kernel.source) == bool(lanes)
    kernel.check(rows(dtype, length), **({"s0": 9, "s1": length} if symbolic else {}))


@pytest.mark.parametrize("limit", [4, 32])
def test_columns(limit):
    """Side by side lie the columns: a block has two dimensions. The softmax itself is a second pass."""

    def build(k, x):
        (p,), (r,) = k.parallel_dims, k.inner_dims
        value = k.read(x, (r, p))
        top, sum_ = total(k, value, False)
        return [(k.div(k.exp(k.sub(value, top)), sum_), (r, p), info(f32, "70, 9"))]

    kernel = TritonKernel([info(f32, "70, 9")], "9", "70", build, shrink=small(limit))
    assert kernel.source.count("for start") == 2
    kernel.check(rows().t().contiguous())


def test_empty_rows():
    def build(k, x):
        top, sum_ = total(k, k.read(x, k.dims), False)
        return [(top, k.parallel_dims, info(f32, "s0")), (sum_, k.parallel_dims, info(f32, "s0"))]

    kernel = TritonKernel([info(f32, "s0, s1")], "s0", "s1", build, shrink=small(16))
    top, sum_ = kernel.check(torch.empty(3, 0), s0=3, s1=0)
    assert (top == -INF).all() and (sum_ == 0).all()


def test_a_centre_that_is_no_maximum():
    """Powers beneath something else are summed as they are."""

    def build(k, x, y):
        value = k.read(x, k.dims)
        top = k.reduce("max", value)
        return [
            (k.reduce("sum", k.exp(k.sub(value, k.read(y, k.parallel_dims)))), k.parallel_dims, info(f32, "9")),
            (top, k.parallel_dims, info(f32, "9")),
        ]

    kernel = TritonKernel([info(f32, "9, 70"), info(f32, "9")], "9", "70", build, shrink=small(32))
    assert "exponentials" not in kernel.source
    kernel.check(torch.randn(9, 70), torch.randn(9))


@pytest.mark.parametrize("symbolic", [False, True])
@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize(("length", "limit"), [(70, 4), (70, 32), (64, 16)])
@pytest.mark.thinned
def test_moments(length, limit, across, symbolic):
    """A mean of 1000 takes nothing off the squares; infinities and NaN are where eager has them."""

    def build(k, x):
        (p,), (r,) = k.parallel_dims, k.inner_dims
        value = k.read(x, (r, p) if across else (p, r))
        sum_ = k.reduce("sum", value)
        rest = k.sub(value, k.mul(sum_, 1 / length))
        squares = k.reduce("sum", k.mul(rest, rest))
        return [(sum_, (p,), info(f32, sizes[0])), (squares, (p,), info(f32, sizes[0]))]

    sizes = ("s0", "s1") if symbolic else ("8", str(length))
    shape = f"{sizes[1]}, {sizes[0]}" if across else ", ".join(sizes)
    kernel = TritonKernel([info(f32, shape)], *sizes, build, shrink=small(limit))
    assert "fold_moments" in kernel.source
    x = torch.randn(8, length) + 1000
    x[1, 5], x[2, 6], x[3, 0], x[3, 9], x[4] = INF, NAN, INF, -INF, 3.0
    x[5, 0] = 1e6
    values = {"s0": 8, "s1": length} if symbolic else {}
    given = x.t().contiguous() if across else x
    sum_, squares = (torch.empty(8) for _ in range(2))
    kernel([given], [sum_, squares], **values)
    exact = x.double()
    torch.testing.assert_close(sum_.double(), exact.sum(1), rtol=1e-6, atol=0, equal_nan=True)
    mean = exact.sum(1, keepdim=True) / length
    torch.testing.assert_close(squares.double(), (exact - mean).square().sum(1), rtol=1e-5, atol=1e-6, equal_nan=True)
