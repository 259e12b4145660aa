"""Reductions and what is built of them, at every level of the dialect, against eager."""

import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from mlirc.dialects.core.context import context
from tests.compare_stages import check, prepare

pytestmark = pytest.mark.thinned

aten = torch.ops.aten
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def special(*shape, dtype=torch.float32):
    """Random numbers with a NaN, infinities and signed zeros among them."""
    x = torch.randn(*shape, dtype=dtype)
    x.view(-1)[:5] = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0, -0.0], dtype=dtype)
    return x


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dims", [[0], [1, -1], [-1], [], None])
@pytest.mark.parametrize("op", [aten.sum.dim_IntList, aten.mean.dim, aten.var.correction])
def test_dims(op, dims, keepdim, dynamic):
    check(lambda x: op(x, dims, keepdim=keepdim), torch.randn(3, 4, 5), dynamic=dynamic)


@pytest.mark.parametrize("dtype", DTYPES)
def test_float_dtypes(dtype):
    x = torch.randn(3, 40, dtype=dtype)
    for op in (aten.sum.dim_IntList, aten.mean.dim, aten.logsumexp.default, aten.linalg_vector_norm.default):
        args = (2, [1]) if op is aten.linalg_vector_norm.default else ([1],)
        check(lambda x, op=op, args=args: op(x, *args), x)
    check(lambda x: aten.var_mean.correction(x, [1], correction=0), x)
    check(lambda x: aten.std_mean.correction(x, [0], correction=0.5, keepdim=True), x)
    check(lambda x: (aten.sum.default(x, dtype=torch.float64), aten.prod.dim_int(x, 0), aten.argmax.default(x, 1)), x)


@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int8, torch.int32, torch.int64])
def test_integers(dtype):
    x = torch.randint(0, 2 if dtype == torch.bool else 100, (4, 6)).to(dtype)
    check(lambda x: (aten.sum.default(x), aten.prod.dim_int(x, 0), aten.sum.dim_IntList(x, [1], dtype=torch.int32)), x)
    check(
        lambda x: (aten.amax.default(x, [0]), aten.amin.default(x), *aten.max.dim(x, 1), *aten.min.dim(x, 0, True)), x
    )
    check(lambda x: (aten.any.default(x), aten.all.dim(x, 0), aten.any.dims(x, [0, 1], True), aten.all.dims(x, [])), x)
    check(lambda x: (aten.count_nonzero.default(x), aten.count_nonzero.dim_IntList(x, [1])), x)
    if dtype != torch.bool:
        check(lambda x: (aten.argmax.default(x), aten.argmin.default(x, 1, True), *aten.aminmax.default(x, dim=0)), x)
    check(lambda x: aten.mean.default(x, dtype=torch.float32), x)


@pytest.mark.parametrize("dynamic", [False, True])
def test_gamma_functions_of_several_dimensions(dynamic):
    for x in (
        torch.rand(3, 4) * 9 + 2,
        torch.rand(5, dtype=torch.float64) * 9,
        special(2, 3),
        torch.arange(6),
        torch.rand(0, 2),
    ):
        check(lambda x: [torch.mvlgamma(x, p) for p in (1, 2, 5)], x, dynamic=dynamic)
    for dtype in (torch.float16, torch.bfloat16):
        check(lambda x: torch.mvlgamma(x, 3), torch.rand(4).to(dtype) * 9 + 2, dynamic=dynamic)
    check(lambda x: torch.special.multigammaln(x, 2), torch.tensor(4.0))


@pytest.mark.parametrize("dynamic", [False, True])
def test_cross_products(dynamic):
    cross = torch.linalg.cross
    for dtype in (*DTYPES, torch.int64, torch.uint8):
        x, y = (torch.randint(-9, 9, (4, 5, 3)).to(dtype) for _ in range(2))
        check(lambda x, y: [cross(x, y), cross(x, y[:1]), cross(x[:, :1], y)], x, y, dynamic=dynamic)
    x, y = torch.randn(4, 3, 5), special(4, 3, 5)
    check(lambda x, y: [cross(x, y, dim=1), cross(x.mT, y.mT), cross(x, x, dim=-2)], x, y, dynamic=dynamic)
    check(cross, torch.randn(3), torch.randn(3))
    check(cross, torch.randn(0, 3), torch.randn(0, 3))


def test_nan_infinity_and_signed_zero():
    x = special(4, 6)
    check(
        lambda x: (aten.amax.default(x, [1]), aten.amin.default(x, [0]), *aten.max.dim(x, 1), aten.argmin.default(x)), x
    )
    check(
        lambda x: (aten.any.dim(x, 1), aten.all.default(x), aten.nansum.default(x, [1]), aten.count_nonzero.default(x)),
        x,
    )
    check(lambda x: (aten.logsumexp.default(x, [1]), aten._softmax.default(x, 1, False)), x)
    lowest = torch.full((2, 3), -float("inf"))
    check(
        lambda x: (
            aten.logsumexp.default(x, [1]),
            aten._softmax.default(x, 1, False),
            aten._safe_softmax.default(x, 1),
        ),
        lowest,
    )


@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (1,), (2, 1, 3)])
@pytest.mark.parametrize("dynamic", [False, True])
def test_small_shapes(shape, dynamic):
    x = torch.randn(shape)
    dim = 0 if len(shape) < 2 else 1
    check(lambda x: (aten.sum.default(x), aten.mean.default(x), aten.prod.default(x)), x, dynamic=dynamic)
    check(
        lambda x: (aten.sum.dim_IntList(x, [dim], True), aten.any.dim(x, dim), aten.all.dim(x, dim, True)),
        x,
        dynamic=dynamic,
    )
    check(lambda x: aten._softmax.default(x, dim, False), x, dynamic=dynamic)
    check(lambda x: aten.var.correction(x, [dim]), x, dynamic=dynamic)
    if x.numel():
        check(lambda x: (*aten.max.dim(x, dim), aten.argmax.default(x, None, True)), x, dynamic=dynamic)


ORDERS = [0, 1, 2, 2.0, 3, 0.5, -1, -2.5, float("inf"), -float("inf")]


@pytest.mark.parametrize("ord", ORDERS)
def test_norms(ord):
    check(lambda x: aten.linalg_vector_norm.default(x, ord, [1], True), torch.randn(3, 5))
    check(
        lambda x: (aten.norm.ScalarOpt_dim(x, ord, [0]), aten.norm.Scalar(x, ord)),
        torch.randn(3, 5, dtype=torch.bfloat16),
    )


@pytest.mark.parametrize("dims", [[0], [1], [0, 1], [], None])
@pytest.mark.parametrize("shape", [(1, 4), (4, 1), (2, 2), ()])
def test_norms_of_numbers_whose_powers_overflow(shape, dims):
    """Of one element eager gives the size; of more, an infinity or 0."""
    x = torch.tensor([1e30, -1e-30, -0.0, math.nan])[: math.prod(shape)].view(shape)
    if shape or not dims:
        check(lambda x: [aten.linalg_vector_norm.default(x, n, dims) for n in ORDERS], x)


@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_norms_of_as_many_numbers_as_the_data_says():
    torch.compiler.reset()
    norms = lambda x: [torch.linalg.vector_norm(x[x > 0], n) for n in (2, 3)]
    compiled = torch.compile(norms, backend="mlirc", fullgraph=True, options={"fallback": "error"})
    for x in ([1e30, -1.0], [1e-30, -1.0], [3.0, 4.0], [-1.0], [1e30, 1.0]):
        torch.testing.assert_close(compiled(torch.tensor(x)), norms(torch.tensor(x)), atol=0, rtol=1e-6)


def test_dot():
    check(aten.dot.default, torch.randn(9), torch.randn(9))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax(dtype, dynamic):
    x, grad = torch.randn(3, 4, 7, dtype=dtype), torch.randn(3, 4, 7, dtype=dtype)

    def function(x, grad):
        y, z = aten._softmax.default(x, -1, False), aten._log_softmax.default(x, 1, False)
        return (
            *(y, aten._softmax_backward_data.default(grad, y, -1, dtype)),
            *(z, aten._log_softmax_backward_data.default(grad, z, 1, dtype)),
        )

    check(function, x, grad, dynamic=dynamic)


def test_a_large_mean_does_not_spoil_the_variance():
    check(lambda x: aten.var.correction(x, [1]), torch.randn(3, 100) + 1e4)


def test_strides_follow_eager():
    check(
        lambda x: (aten.sum.dim_IntList(x, [0]), aten._softmax.default(x, 1, False)),
        torch.randn(4, 3, 5).transpose(0, 2),
    )


STEPS = {
    "softmax": lambda x: x.softmax(-1),
    "softmin": lambda x: F.softmin(x, -1),
    "normalise": lambda x: x.exp() / x.exp().sum(-1, keepdim=True),
    "wide softmax": lambda x: x.softmax(-1, dtype=torch.float64),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("columns", [5, 37, 3000])
def test_rows_in_steps(columns):
    """Every step is a result, in whose memory an earlier value of the row may have been until it is written."""

    def chains(x):
        found = []
        for names in itertools.product(STEPS, STEPS):
            first = STEPS[names[0]](x * (1 + len(found) / 100))
            second = STEPS[names[1]](first)
            found += [first, second, second.softmax(-1)] if names[0] == "softmax" else [first, second]
        return found

    x = torch.randn(4, columns)
    got = torch.compile(chains, backend="mlirc", dynamic=True)(x)
    for have, want in zip(got, chains(x), strict=True):
        torch.testing.assert_close(have, want, rtol=2e-5, atol=0)


ROWS = [((3, 4), (5, 4)), ((4, 1, 3, 9), (2, 5, 9)), ((0, 4), (3, 4)), ((2, 0), (3, 0)), ((1, 1), (1, 1))]
NORMS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0]
ATENS = (1.0, 2.0)  # whose gradients are calls


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("shapes", ROWS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", NORMS)
def test_distances_between_rows(p, dtype, shapes, dynamic):
    """Some rows and many elements are equal: distances and differences of 0, where a norm has no slope."""
    x, y = (torch.randint(-3, 4, shape).to(dtype) / 4 for shape in shapes)
    distance = torch.cdist(x, y, p=p)
    check(lambda x, y: aten._cdist_forward(x, y, p, None), x, y, dynamic=dynamic)
    dynamic &= x.dim() == 2  # PyTorch's meta function broadcasts no symbols
    if p not in ATENS:
        check(
            lambda *v: aten._cdist_backward(*v[:3], p, v[3]),
            torch.randn_like(distance),
            x,
            y,
            distance,
            dynamic=dynamic,
        )


@pytest.mark.parametrize("p", NORMS)
def test_distances_between_special_rows(p):
    x = torch.cartesian_prod(
        torch.tensor([0.0, -0.0, 1.0, math.inf, -math.inf, math.nan, 1e30]), torch.tensor([1.0, 3.0])
    )
    distance = torch.cdist(x, x, p=p)
    check(lambda x: aten._cdist_forward(x, x, p, None), x)
    if p not in ATENS:
        check(lambda grad, x, d: aten._cdist_backward(grad, x, x, p, d), torch.ones_like(distance), x, distance)


def test_the_gradient_of_the_commonest_distances_is_a_call():
    x = torch.randn(3, 2)
    for p in ATENS:
        with context():
            imported = prepare(lambda *v, p=p: aten._cdist_backward(*v[:3], p, v[3]), torch.ones(3, 3), x, x, x @ x.T)[
                1
            ]
        assert ["order 1 or 2" in why for _, why in imported.aten.values()] == [True]


def test_the_largest_difference_is_eagers():
    with context():
        imported = prepare(lambda x: torch.cdist(x, x, p=math.inf), torch.randn(3, 2))[1]
    assert [why for _, why in imported.aten.values()] == ["the largest difference, where eager passes over NaN"]


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.5, 1, 2, 3])
def test_renorm(p, dtype, dynamic):
    x = torch.randn(3, 4, 5, dtype=dtype)
    x[0] *= 1e-3
    for dim in (0, -1):
        check(lambda x, dim=dim: aten.renorm.default(x, p, dim, 1.5), x, dynamic=dynamic)
    check(lambda x: aten.renorm.default(x, p, 1, 0), x)
    check(lambda x: aten.renorm.default(x, p, 0, 1), special(3, 4, dtype=dtype))


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("p", [0, 0.5, 1, 2, 3, math.inf, -math.inf])
def test_dist(p, dynamic):
    for dtype in DTYPES:
        x, y = torch.randn(3, 4, dtype=dtype), torch.randn(4, dtype=dtype)
        check(lambda x, y: aten.dist.default(x, y, p), x, y, dynamic=dynamic)
    check(lambda x, y: aten.dist.default(x, y, p), torch.randn(2, 3), torch.randn(2, 3, dtype=torch.float64))
    check(lambda x, y: aten.dist.default(x, y, p), special(2, 3), torch.randn(2, 3))


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int64, torch.int8])
def test_addr(dtype):
    x, column, row = (torch.randint(-4, 4, shape).to(dtype) for shape in ((3, 5), (3,), (5,)))
    for numbers in ((1, 1), (2, -3), (0, 2), *(((0.5, 0.25),) if dtype.is_floating_point else ())):
        beta, alpha = numbers
        check(lambda *v, beta=beta, alpha=alpha: aten.addr.default(*v, beta=beta, alpha=alpha), x, column, row)
    check(lambda *v: aten.addr.default(*v), x[0], column, row, dynamic=True)
