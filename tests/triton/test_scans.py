"""Running extremes as Triton text: of equal values the last one counts, and a zero has a sign; a NaN stays."""

import pytest
import torch

from mlirc.codegen.cuda.triton_compile import compile_kernels
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel, small
from tests.triton.test_compile import source_of


@pytest.mark.parametrize("limit", [None, 64, 16])
@pytest.mark.parametrize("shape", [(3, 70), (70,), (5, 1), (2, 64)])
@pytest.mark.parametrize("kind", ["max", "min"])
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


def test_machine_code_for_a_running_extreme():
    rows = info(torch.float32, "30, 100000")

    def build(k, x):
        return [(k.scan("min", k.read(x, k.dims)), k.dims, rows)]

    (made,) = compile_kernels([source_of(TritonKernel([rows], "30", "100000", build))])
    assert made.cubin.startswith(b"\x7fELF")
