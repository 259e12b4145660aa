"""Which axis lanes lie along, and how many: what a kernel's text holds of gathers and of transposed tiles."""

import pytest
import torch

from mlirc.dialects.core import symbols
from mlirc.lowering.host import host_cpu
from tests.kernel_runner import NativeKernel, info

f32, u8, i64 = torch.float32, torch.uint8, torch.int64


def rows_one_after_the_other(dtype):
    """x, then y, along the first of two dimensions."""

    def build(k, x, y):
        row, column = k.dims
        first = k.lt(k.size(row), 40)
        second = k.ge(k.size(row), 40)
        value = k.select(first, k.read(x, (row, column), mask=first), k.read(y, (row - 40, column), mask=second))
        return [(value, k.dims, info(dtype, "90, 1024"))]

    return NativeKernel([info(dtype, "40, 1024"), info(dtype, "50, 1024")], "90, 1024", "", build)


@pytest.mark.parametrize("dtype", [f32, u8])
def test_rows_of_a_concatenation_are_read_inside_of_memory(dtype):
    """Half of the rows of each operand lie outside of it; a masked load from a page that is not there takes some hundred cycles."""
    kernel = rows_one_after_the_other(dtype)
    addresses = [line for line in kernel.mlir.splitlines() if "arith.select" in line and "!llvm.ptr" in line]
    assert len(addresses) >= 2
    values = torch.randint(0, 200, (90, 1024)).to(dtype)
    kernel.check(values[:40], values[40:])


def test_numbers_of_other_axes_take_no_lanes():
    """The rows' numbers are of 8 bytes, and the same for all lanes of a row of bytes."""
    assert f"vector<{host_cpu().vector_bytes}xi8>" in rows_one_after_the_other(u8).mlir


def test_groups_of_neighbouring_channels():
    """A sum over pixels and the 8 channels of a group that lie side by side: nothing is gathered along the pixels."""

    def build(k, x):
        image, group, channel, pixel = k.dims
        value = k.read(x, (image, pixel, group * 8 + channel))
        mean = k.div(k.reduce("sum", value), 8.0 * 300)
        return [(k.sub(value, mean), (image, pixel, group * 8 + channel), info(f32, "2, 300, 64"))]

    kernel = NativeKernel([info(f32, "2, 300, 64")], "2, 8", "8, 300", build)
    assert "masked.gather" not in kernel.mlir and "masked.scatter" not in kernel.mlir
    kernel.check(torch.randn(2, 300, 64))


def test_a_gather_along_short_rows_transposes_nothing():
    """Elements of 8 bytes and a last tile that is half empty: lanes along the row take fewer steps."""

    def build(k, indices, x):
        row, column = k.dims
        index = k.read(indices, (row, column))
        return [(k.read(x, (row, symbols.symbol("i0")), [index]), k.dims, info(f32, "512, 56"))]

    kernel = NativeKernel([info(i64, "512, 56"), info(f32, "512, 56")], "512, 56", "", build)
    assert "masked.gather" in kernel.mlir and "shuffle" not in kernel.mlir
    kernel.check(torch.randint(56, (512, 56)), torch.randn(512, 56))


def channels_of_pixels(dtype):
    """What is done to 300 pixels of 8 groups of 8 channels, which lie side by side, with numbers of the groups."""

    def build(k, x, y, scale):
        image, pixel, group, channel = k.dims
        value = k.read(x, (image, pixel, group * 8 + channel))
        other = k.read(y, (image, pixel, group * 8 + channel))
        factor = k.read(scale, (image, group))
        value = k.sub(k.mul(value, factor), k.mul(other, k.mul(factor, factor)))
        for _ in range(6):  # much arithmetic is what wide lanes would be chosen for
            value = k.add(k.mul(value, other), value)
        return [(k.mul(k.sub(value, factor), factor), (image, pixel, group * 8 + channel), info(dtype, "2, 300, 64"))]

    infos = [info(dtype, "2, 300, 64"), info(dtype, "2, 300, 64"), info(dtype, "2, 8")]
    return NativeKernel(infos, "2, 300, 8, 8", "", build)


def test_eight_neighbours_are_better_than_sixteen_of_a_transposed_tile():
    kernel = channels_of_pixels(f32)
    assert "shuffle" not in kernel.mlir and "masked.gather" not in kernel.mlir
    kernel.check(torch.randn(2, 300, 64), torch.randn(2, 300, 64), torch.randn(2, 8))


def test_wide_sums_take_more_registers():
    """Sums of float64 of float32 channels: sixteen lanes along the pixels would be gathered, for steps of two registers."""

    def build(k, x):
        image, group, channel, row, column = k.dims
        value = k.cast(k.read(x, (image, row, column, group * 8 + channel)), torch.float64)
        squared = k.mul(k.sub(value, 1.0), k.sub(value, 1.0))
        for _ in range(6):
            squared = k.add(k.mul(squared, 0.5), value)
        return [(k.cast(k.reduce("sum", squared), f32), (image, group), info(f32, "2, 8"))]

    kernel = NativeKernel([info(f32, "2, 56, 56, 64")], "2, 8", "8, 56, 56", build)
    assert "masked.gather" not in kernel.mlir
    kernel.check(torch.randn(2, 56, 56, 64))


@pytest.mark.parametrize("groups, apart", [(2, True), (4, False), (8, False)])
def test_parts_of_a_dimension_have_strides(groups, apart):
    """Channels in groups, one of each in turn: parts of 4 elements or more are dimensions of their own, and no quotient is left."""

    def build(k, x):
        pixel, channel = k.dims
        source = symbols.mod(channel, groups) * (64 // groups) + symbols.floordiv(channel, groups)
        return [(k.read(x, (pixel, source)), k.dims, info(f32, "300, 64"))]

    kernel = NativeKernel([info(f32, "300, 64")], "300, 64", "", build)
    assert ("arith.shrsi" in kernel.mlir or "divsi" in kernel.mlir) == apart
    kernel.check(torch.randn(300, 64))
