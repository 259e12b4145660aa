"""Indexing, concatenation, padding and other rearrangements, at every level of the dialect, against eager."""

import pytest
import torch

from mlirc.dialects.core.context import context
from mlirc.dialects.interpreter.interpreter import run
from mlirc.dialects.ops.movement.reindex import repeats_evenly
from tests.compare_stages import check, make_kernels, prepare

pytestmark = pytest.mark.thinned

aten = torch.ops.aten
DYNAMIC = pytest.mark.parametrize("dynamic", [False, True])


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
def test_index(dtype, dynamic):
    x = (torch.randn(4, 5, 6) * 3).to(dtype)
    i, j = torch.tensor([[0, -1], [3, 2]]), torch.tensor([1, 4], dtype=torch.int32)
    check(lambda x, i: aten.index.Tensor(x, [i]), x, i, dynamic=dynamic)
    check(lambda x, i: aten.index.Tensor(x, [None, None, i]), x, i, dynamic=dynamic)
    check(lambda x, i, j: aten.index.Tensor(x, [i, j]), x, i, j, dynamic=dynamic)
    check(lambda x, i, j: aten.index.Tensor(x, [None, i, j]), x, i, j, dynamic=dynamic)
    check(lambda x, i, j: aten.index.Tensor(x, [i, None, j]), x, i, j, dynamic=dynamic)
    check(lambda x, i, j: aten.index.Tensor(x, [i, j, i]), x, i, j, dynamic=dynamic)


@DYNAMIC
def test_index_select_gather_embedding(dynamic):
    x, i = torch.randn(4, 5), torch.tensor([3, 0, 0])
    check(lambda x, i: aten.index_select.default(x, 1, i), x, i, dynamic=dynamic)
    check(lambda x, i: aten.embedding.default(x, i), x, torch.tensor([[1, 2], [0, 3]]), dynamic=dynamic)
    check(lambda x, i: aten.embedding.default(x, i, 1), x.half(), torch.tensor(2, dtype=torch.int32), dynamic=dynamic)
    check(lambda x, i: aten.gather.default(x, -1, i), x, torch.tensor([[0, 4, 2], [1, 1, 1]]), dynamic=dynamic)
    check(lambda x, i: aten.gather.default(x, 0, i), x, torch.zeros(0, 5, dtype=torch.int64), dynamic=dynamic)


def test_0d_indices():
    x, i = torch.randn(4, 5), torch.tensor(2)
    check(lambda x, i: (aten.index.Tensor(x, [None, i]), aten.index_select.default(x, 0, i)), x, i)


@pytest.mark.parametrize(
    "function, index, text",
    [
        (lambda x, i: aten.index.Tensor(x, [None, i]), 5, "index 5 is out of bounds for dimension 0 with size 5"),
        (lambda x, i: aten.index.Tensor(x, [None, i]), -6, "index -6 is out of bounds for dimension 0 with size 5"),
        (lambda x, i: aten.gather.default(x, 1, i[None]), 7, "index 7 is out of bounds for dimension 1 with size 5"),
        (lambda x, i: aten.embedding.default(x, i), 4, "index out of range in self"),
        (lambda x, i: aten.embedding.default(x, i), -1, "index out of range in self"),
        (lambda x, i: aten.index_select.default(x, 0, i), 9, "index out of range in self"),
    ],
)
def test_an_index_out_of_bounds_raises(function, index, text):
    x, i = torch.randn(4, 5), torch.tensor([0, index])
    with pytest.raises((IndexError, RuntimeError), match=text):
        function(x, i)
    with context():
        top, _ = prepare(function, x, i)
        make_kernels(top)
        with pytest.raises(IndexError, match=text):
            run(top, [x, i])


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_cat_and_stack(dtype, dynamic):
    parts = [(torch.randn(n, 3) * 5).to(dtype) for n in (2, 0, 4, 1, 2)]
    for count in (1, 2, 3, 4):
        check(lambda *parts: aten.cat.default(parts), *parts[:count], dynamic=dynamic)
        check(lambda *parts: aten.cat.default(parts, -1), *(x.t() for x in parts[:count]), dynamic=dynamic)
    check(lambda x, y: aten.stack.default([x, y, x], 1), parts[0], parts[4], dynamic=dynamic)
    check(lambda *parts: aten.cat.default(parts), *parts, dynamic=dynamic, aten=True)


def test_cat_promotes_and_skips_empty():
    check(
        lambda x, y, z: aten.cat.default([x, y, z]),
        torch.randn(2, 3),
        torch.ones(1, 3, dtype=torch.int64),
        torch.empty(0),
    )


@DYNAMIC
@pytest.mark.parametrize("value", [0, 2.5, -float("inf")])
@pytest.mark.parametrize("pad", [(1, 2), (0, 0, 3, 1), (-1, 2, 1, -2), (-1, -1)])
def test_constant_pad(pad, value, dynamic):
    dynamic = dynamic and min(pad) >= 0  # PyTorch's own rule for a crop needs numbers
    check(lambda x: aten.constant_pad_nd.default(x, pad, value), torch.randn(3, 4, 5), dynamic=dynamic)


@DYNAMIC
def test_scatters(dynamic):
    x = torch.randn(4, 7)
    check(lambda x, y: aten.select_scatter.default(x, y, 1, 2), x, torch.randn(4), dynamic=dynamic)
    check(lambda x, y: aten.select_scatter.default(x, y, 0, -1), x, torch.randn(7), dynamic=dynamic)
    for start, end, step, length in [
        (0, 3, 1, 3),
        (2, 2**63 - 1, 1, 5),
        (-3, -1, 1, 2),
        (1, 7, 3, 2),
        (None, None, 2, 4),
        (5, 2, 1, 0),
    ]:
        function = lambda x, y: aten.slice_scatter.default(x, y, 1, start, end, step)  # noqa: B023
        check(function, x, torch.randn(4, length), dynamic=dynamic and (0,))


@pytest.mark.parametrize("end", [None, 2**63 - 1, 7, -2])
def test_slices_from_negative_symbols(end):
    """`x[-n:]`, whose gradient is too: the sign of -n is not known, the end and the number of rows are."""
    x = torch.randn(9, 3)
    check(
        lambda x, n: aten.slice_scatter.default(x, x[-n.shape[0] : end].cos(), 0, -n.shape[0], end),
        x,
        torch.randn(6),
        dynamic=(0,),
    )


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gradients_of_views_and_dropout(dtype, dynamic):
    grad = torch.randn(4, 3, dtype=dtype)
    sizes = lambda grad, size: [grad.shape[0], size]
    check(lambda grad: aten.slice_backward.default(grad, sizes(grad, 8), 1, 2, 5, 1), grad, dynamic=dynamic and (0,))
    check(
        lambda grad: aten.slice_backward.default(grad, sizes(grad, 8), 1, 1, 2**63 - 1, 3),
        grad,
        dynamic=dynamic and (0,),
    )
    check(lambda grad: aten.select_backward.default(grad, [5, *grad.shape], 0, -2), grad, dynamic=dynamic)
    mask = torch.rand(4, 3) > 0.3
    check(lambda grad, mask: aten.native_dropout_backward.default(grad, mask, 1.5), grad, mask, dynamic=dynamic)


@DYNAMIC
def test_reindexed(dynamic):
    x = torch.randn(2, 4, 6)
    check(lambda x: (aten.flip.default(x, [0, -1]), aten.roll.default(x, [1, -2], [0, 2])), x, dynamic=dynamic)
    check(lambda x: (aten.repeat.default(x, [2, 1, 3]), aten.repeat.default(x, [3, 1, 2, 1])), x, dynamic=dynamic)
    check(
        lambda x: (aten.reflection_pad1d.default(x, [2, 3]), aten.replication_pad1d.default(x, [7, 1])),
        x,
        dynamic=dynamic,
    )
    check(lambda x: aten.reflection_pad2d.default(x, [2, 3, 1, 0]), x, dynamic=dynamic)
    check(lambda x: aten.upsample_nearest1d.default(x, [x.shape[2] * 3]), x, dynamic=dynamic)
    check(lambda x: aten.roll.default(x, [9], [0]), torch.randn(4), dynamic=dynamic)
    check(lambda x: aten.repeat.default(x, [2, 1, 3]), torch.randn(3, 0), dynamic=dynamic)


@pytest.mark.parametrize("dynamic", [False, (0, 2, 3)])
def test_shuffles(dynamic):
    x = torch.randn(2, 8, 4, 6)
    check(lambda x: aten.upsample_nearest2d.default(x, [x.shape[2] * 2, x.shape[3] * 3]), x, dynamic=dynamic)
    check(lambda x: (aten.pixel_shuffle.default(x, 2), aten.channel_shuffle.default(x, 4)), x, dynamic=dynamic)
    check(lambda x: aten.pixel_unshuffle.default(x, 2), x)


@pytest.mark.parametrize("dynamic", [False, (2, 3)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.uint8])
def test_nearest_upsampling_where_float32_rounds_positions(dtype, dynamic):
    """By 41, 47 or 55 eager takes elements at other positions than d // factor."""
    x = torch.arange(24).view(1, 2, 3, 4).to(dtype)
    for h, w in [(41, 47), (55, 40), (2, 61)]:
        enlarged = lambda x, h=h, w=w: aten.upsample_nearest2d.default(x, [x.shape[2] * h, x.shape[3] * w])
        check(enlarged, x, dynamic=dynamic, aten=True)


@pytest.mark.full
def test_each_factor_of_nearest_upsampling():
    """A factor that is taken gives eager's elements in each dtype, and at each position of a long row."""
    for factor in range(1, 2000):
        for dtype in (torch.float32, torch.float64, torch.bfloat16):
            x = torch.arange(5).view(1, 1, 5).to(dtype)
            even = torch.equal(aten.upsample_nearest1d.default(x, [5 * factor]), x.repeat_interleave(factor, -1))
            assert even or not repeats_evenly(factor, 5 * factor), (factor, dtype)
    for factor in (*range(1, 50), 63, 100, 127, 1000):
        n = (2**23 - 1) // factor
        x = (torch.arange(n) % 256).view(1, 1, n).float()
        even = torch.equal(aten.upsample_nearest1d.default(x, [n * factor]), x.repeat_interleave(factor, -1))
        assert even or not repeats_evenly(factor, n * factor), factor


def test_nearest_upsampling_of_a_row_that_float32_does_not_count():
    """Beyond 2^23 positions eager takes some elements once too often."""
    x = (torch.arange(2**22 + 4) % 256).view(1, 1, -1).float()
    check(lambda x: aten.upsample_nearest1d.default(x, [x.shape[2] * 3]), x, aten=True)
    assert not torch.equal(aten.upsample_nearest1d.default(x, [x.shape[2] * 3]), x.repeat_interleave(3, -1))


@DYNAMIC
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_matmuls(dtype, dynamic):
    x, y, bias = (torch.randn(*shape, dtype=dtype) for shape in [(4, 6), (6, 3), (3,)])
    loose = {"rtol": 2e-2, "atol": 1e-1} if dtype == torch.bfloat16 else {}
    check(lambda x, y: aten.mm.default(x, y), x, y, dynamic=dynamic, **loose)
    check(lambda b, x, y: aten.addmm.default(b, x, y), bias, x, y, dynamic=dynamic, **loose)
    check(lambda x, y: aten.mv.default(x, y), x, torch.randn(6, dtype=dtype), dynamic=dynamic, **loose)
    x, y, bias = (torch.randn(*shape, dtype=dtype) for shape in [(2, 4, 6), (2, 6, 3), (2, 1, 3)])
    check(lambda x, y: aten.bmm.default(x, y), x, y, dynamic=dynamic, **loose)
    check(lambda b, x, y: aten.baddbmm.default(b, x, y), bias, x, y, **loose)


def test_other_products_go_to_aten():
    x, y, bias = torch.randn(4, 6), torch.randn(6, 3), torch.randn(4, 3)
    check(lambda b, x, y: aten.addmm.default(b, x, y, beta=0.5), bias, x, y, aten=True)
    check(aten.mm.default, torch.ones(2, 3, dtype=torch.int64), torch.ones(3, 2, dtype=torch.int64), aten=True)
    check(aten.mm.default, torch.randn(2, 0), torch.randn(0, 3), aten=True)
