"""searchsorted and bucketize, at every level of the dialect and compiled, against eager: rows may be unsorted, with NaNs, or empty."""

import math

import pytest
import torch

from tests.compare_stages import check
from tests.dialects.numbers.test_special_values import compiled

pytestmark = pytest.mark.filterwarnings("ignore:torch.searchsorted\\(\\)")  # of strides that eager copies
aten = torch.ops.aten
FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def rows_and_values(dtype: torch.dtype, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Rows that are sorted, sorted with NaNs at their end, and not sorted; values some of which are in the row."""
    generator = torch.Generator().manual_seed(length)
    numbers = (torch.randn(4, length, generator=generator) * 5).abs().to(dtype)
    x = torch.cat([numbers[:, :5], (torch.randn(4, 7, generator=generator) * 5).abs().to(dtype)], 1)
    rows = [numbers.sort(-1).values, numbers]
    if dtype.is_floating_point:
        x[0, :4] = torch.tensor([math.nan, math.inf, -math.inf, -0.0], dtype=dtype)
        rows.append(rows[0].clone())
        rows[-1][:, length // 2 :] = math.nan
    return [(row, x) for row in rows]


def search(right: bool, int32: bool):
    side = {"right": True} if right else {"side": "left"}
    return lambda rows, x: (
        torch.searchsorted(rows, x, out_int32=int32, **side),
        torch.bucketize(x.t(), rows[0], right=right, out_int32=int32),
    )


@pytest.mark.parametrize("length", [0, 1, 7, 33])
@pytest.mark.parametrize("dtype", [*FLOATS, *INTEGERS], ids=str)
def test_at_every_level(dtype, length):
    for k, (rows, x) in enumerate(rows_and_values(dtype, length)):
        check(search(k == 1, k == 2), rows, x)


def test_compiled():
    """Values are computed in the kernel; rows and values lie in any strides."""
    cases = [
        case
        for dtype in (torch.float64, torch.bfloat16, torch.int32, torch.uint8)
        for case in rows_and_values(dtype, 8)
    ]
    cases += [(rows.t().contiguous().t(), x.t().contiguous().t()) for rows, x in cases[:1]]
    program = lambda cases: [y for k, (rows, x) in enumerate(cases) for y in search(k % 2 == 1, False)(rows, x + x)]
    found = compiled(program)(cases)
    for got, eager in zip(found, program(cases), strict=True):
        assert got.dtype == eager.dtype and torch.equal(got, eager)


def test_of_one_value_and_of_symbolic_sizes():
    rows = torch.tensor([0.0, 1.0, 2.0])
    check(torch.bucketize, torch.tensor(1.0), rows)
    check(lambda x, rows: torch.bucketize(x, rows), torch.randn(5, 3), rows, dynamic=[1])


def test_what_is_left_to_aten():
    rows, x = torch.tensor([2.0, 0.0, 1.0]), torch.randn(4)
    check(lambda rows, x: torch.searchsorted(rows, x, sorter=rows.argsort()), rows, x, aten=True)
    check(torch.searchsorted, rows, x, aten=True, dynamic=True)


@pytest.mark.parametrize("number", [2, 2.5, -1.0, float("nan")])
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bfloat16])
def test_numbers(dtype, number):
    """A number in place of the tensor that is searched for, or in."""
    x = torch.tensor([4, 2, 2, 0]).to(dtype)
    rows = x.sort().values
    for right in (False, True):
        check(lambda rows, right=right: aten.bucketize.Scalar(number, rows, right=right), rows)
        check(lambda rows, right=right: aten.searchsorted.Scalar(rows, number, right=right, out_int32=True), rows)
        check(lambda x, invert=right: aten.isin.Tensor_Scalar(x, number, invert=invert), x, dynamic=True)
        check(lambda x, invert=right: aten.isin.Scalar_Tensor(number, x, invert=invert), x, dynamic=True)
