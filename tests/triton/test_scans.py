"""Scans as Triton text: of equal extremes the last one counts, a NaN stays, sums begin at 0.0, rows are blocks of all dimensions."""

import re

import pytest
import torch

from mlirc.codegen.cuda.triton_compile import compile_kernels
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel, small
from tests.triton.test_compile import source_of

NAMED = {"sum": torch.cumsum, "prod": torch.cumprod, "max": lambda x, dim: torch.cummax(x, dim).values}


@pytest.mark.parametrize("limit", [None, 64, 16])
@pytest.mark.parametrize("shape", [(3, 70), (70,), (5, 1), (2, 64)])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.thinned
def test_a_running_extreme_is_the_last_of_equal_values(kind, shape, limit):
    *parallel, inner = map(str, shape)
    rows = info(torch.float32, ", ".join(map(str, shape)))

    def build(k, x):
        return [(k.scan(kind, k.read(x, k.dims)), k.dims, rows)]

    kernel = TritonKernel([rows], ", ".join(parallel), inner, build, shrink=limit and small(limit))
    assert shape[-1] == 1 or "fold_last_" in kernel.source  # of -0.0 and 0.0 a GPU's is always 0.0
    for values in ([0.0, -0.0], [0.0, -0.0, -1.0, 1.0], [-0.0, 0.0, float("nan"), float("inf"), -float("inf")]):
        for seed in range(3):
            torch.manual_seed(seed)
            x = torch.tensor(values)[torch.randint(len(values), shape)]
            found = torch.full(shape, 7.0)
            kernel([x], [found])
            expected = getattr(torch, f"cum{kind}")(x, -1).values
            numbers = ~expected.isnan()
            assert torch.equal(found.isnan(), expected.isnan())
            assert torch.equal(found[numbers].view(torch.int32), expected[numbers].view(torch.int32))


@pytest.mark.parametrize("limit", [None, 16])
@pytest.mark.parametrize("shape", [(3, 70), (5, 1), (2, 64), (70,)])
@pytest.mark.parametrize("kind", ["max", "min"])
@pytest.mark.thinned
def test_a_first_extreme_is_the_element_at_its_position(kind, shape, limit):
    *parallel, inner = map(str, shape)
    rows, ends, places = (
        info(t, ", ".join(n))
        for t, n in ((torch.float32, map(str, shape)), (torch.float32, parallel), (torch.int64, parallel))
    )

    def build(k, x):
        value = k.read(x, k.dims)
        first, place = k.reduce(f"first_{kind}", value), k.reduce(f"arg{kind}", value)
        return [(first, k.dims[:-1], ends), (place, k.dims[:-1], places)]

    kernel = TritonKernel([rows], ", ".join(parallel), inner, build, shrink=limit and small(limit))
    for values in (
        [0.0, -0.0],
        [0.0, -0.0, -1.0, 1.0],
        [-0.0, 0.0, float("nan"), float("inf")],
        [-float("inf")],
        [float("inf")],
    ):
        x = torch.tensor(values)[torch.randint(len(values), shape)]
        first, place = torch.full(shape[:-1], 7.0), torch.full(shape[:-1], 7)
        kernel([x], [first, place])
        expected = getattr(torch, kind)(x, -1)
        numbers = ~first.isnan()
        assert torch.equal(place, expected.indices) and torch.equal(numbers, ~expected.values.isnan())
        assert torch.equal(first[numbers].view(torch.int32), expected.values[numbers].view(torch.int32))


@pytest.mark.parametrize("limit", [None, 16])
@pytest.mark.parametrize("kind", ["sum", "prod", "max"])
@pytest.mark.parametrize("inner", [9, 40])
def test_a_row_that_is_the_same_for_all_is_scanned_for_each(kind, inner, limit):
    """Of a row that several threads hold, Triton takes the wrong thread's end: in PTX, and not in its interpreter."""
    rows, row = info(torch.float32, f"3, {inner}"), info(torch.float32, f"{inner}")

    def build(k, x):
        return [(k.scan(kind, k.read(x, k.dims[1:])), k.dims, rows)]

    kernel = TritonKernel([row], "3", str(inner), build, shrink=limit and small(limit))
    for scan in re.findall(r"tl.associative_scan\((\w+), 1", kernel.source):
        assert re.search(rf"\b{scan} = tl.broadcast_to\(\w+, \[XBLOCK, RBLOCK\]\)", kernel.source)
    x, found = torch.rand(inner) + 0.5, torch.zeros(3, inner)
    kernel([x], [found])
    torch.testing.assert_close(found, NAMED[kind](x, 0).expand(3, inner))


@pytest.mark.parametrize("shape", [(4, 16), (5, 9), (3, 100), (16,), (1, 2)])
@pytest.mark.parametrize("limit", [None, 16])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.thinned
def test_sums_begin_at_zero(shape, limit, dtype):
    """Of -0.0 alone a sum is 0.0, whether the block is full or not, and whether there are many."""
    *parallel, inner = map(str, shape)
    rows, ends = info(dtype, ", ".join(map(str, shape))), info(dtype, ", ".join(parallel))

    def build(k, x):
        value = k.read(x, k.dims)
        return [(k.scan("sum", value), k.dims, rows), (k.reduce("sum", value), k.dims[:-1], ends)]

    kernel = TritonKernel([rows], ", ".join(parallel), inner, build, shrink=limit and small(limit))
    running, total = torch.full(shape, -7.0, dtype=dtype), torch.full(shape[:-1], -7.0, dtype=dtype)
    kernel([torch.full(shape, -0.0, dtype=dtype)], [running, total])
    for found in (running, total):
        assert (found == 0).all() and not found.signbit().any()


def test_machine_code_for_a_running_extreme():
    rows = info(torch.float32, "30, 100000")

    def build(k, x):
        return [(k.scan("min", k.read(x, k.dims)), k.dims, rows)]

    (made,) = compile_kernels([source_of(TritonKernel([rows], "30", "100000", build))])
    assert made.cubin.startswith(b"\x7fELF")


@pytest.mark.parametrize("kind", ["sum", "max", "argmax", "first_max"])
def test_machine_code_for_folds_of_a_scan_that_is_the_same_for_all(kind):
    """A loop's variables keep their shapes, which Triton's interpreter does not ask for."""
    columns, row = info(torch.float32, "5000, 3"), info(torch.float32, "5000")
    ends = info(torch.int64 if kind == "argmax" else torch.float32, "3")

    def build(k, x):
        running = k.scan("prod", k.read(x, k.dims[1:]))
        return [(running, k.dims[::-1], columns), (k.reduce(kind, running), k.dims[:1], ends)]

    (made,) = compile_kernels([source_of(TritonKernel([row], "3", "5000", build, shrink=small(512)))])
    assert made.cubin.startswith(b"\x7fELF")
