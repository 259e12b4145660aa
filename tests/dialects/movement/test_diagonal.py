"""Writes to diagonals and their sums, at every level of the dialect, against eager."""

import pytest
import torch

from tests.compare_stages import check

aten = torch.ops.aten
pytestmark = pytest.mark.thinned
DYNAMIC = pytest.mark.parametrize("dynamic", [False, True])
OFFSETS = pytest.mark.parametrize("offset", [0, 1, -2, 4, -5])
SHAPE = (3, 5, 2, 4)


@DYNAMIC
@OFFSETS
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
@pytest.mark.parametrize("dims", [(0, 1), (1, -1), (3, 0)])
def test_diagonal_scatter(dims, dtype, offset, dynamic):
    x = (torch.randn(SHAPE) * 3).to(dtype)
    src = (torch.randn(x.diagonal(offset, *dims).shape) * 3).to(dtype)
    check(lambda x, src: aten.diagonal_scatter.default(x, src, offset, *dims), x, src, dynamic=dynamic)
    if not dynamic:
        check(lambda src: aten.diagonal_backward.default(src, SHAPE, offset, *dims), src)


@DYNAMIC
@OFFSETS
@pytest.mark.parametrize("shape", [(4, 4), (3, 6), (6, 3), (1, 1)])
def test_diagonals_of_symbols(shape, offset, dynamic):
    """All sizes are symbols: how long the diagonal is depends on them."""
    x = torch.randn(shape)
    src = torch.randn(x.diagonal(offset).shape)
    check(lambda x, src: aten.diagonal_scatter.default(x, src, offset), x, src, dynamic=dynamic)
    check(lambda x: aten.diag_embed.default(x, offset), x, dynamic=dynamic)
    check(lambda x: aten.diag_embed.default(x, offset, 1, 0), x, dynamic=dynamic)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("shape", [(5, 5), (3, 5), (5, 3), (0, 4)])
def test_trace(shape, dtype):
    """Of sizes that are known: PyTorch traces no other."""
    x = (torch.randn(shape) * 9).to(dtype)
    check(aten.trace.default, x)
    check(lambda x: aten.trace.default(x.t()), x)
