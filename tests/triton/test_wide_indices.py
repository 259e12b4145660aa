"""Index expressions of which a part exceeds 32 bits, in kernels whose offsets all fit, in Triton's interpreter."""

import pytest
import torch

from mlirc.dialects.core import symbols
from tests.kernel_runner import info
from tests.triton.runner import TritonKernel

LIMIT = 2**31
CONSTANTS = [sign * (LIMIT + near) for near in (-7, -1, 0, 1, 3, LIMIT * 5) for sign in (1, -1)]
FORMS = {
    "mod": lambda d, c: symbols.mod(d + c, 6),
    "negated": lambda d, c: symbols.mod(c - d, 6),
    "scaled": lambda d, c: symbols.mod(d * (LIMIT // 4) + c, 6),
    "floordiv": lambda d, c: symbols.mod(symbols.floordiv(d * 3 + c, 2), 6),
    "max": lambda d, c: symbols.mod(symbols.maximum(d * 2 + c, c + 5), 6),
    "min": lambda d, c: symbols.mod(symbols.minimum(d * 2 + c, c + 5), 6),
    "nested": lambda d, c: symbols.mod(symbols.mod(d + c, LIMIT + 1) + c, 6),
}


@pytest.mark.parametrize("form", FORMS)
def test_parts_beyond_32_bits(form):
    shape = info(torch.float32, "6")
    x = torch.arange(6.0)
    for constant in CONSTANTS:

        def index(d, constant=constant):
            return FORMS[form](d, constant)

        kernel = TritonKernel(
            [shape], "6", "", lambda k, x, index=index: [(k.read(x, [index(k.dims[0])]), k.dims, shape)]
        )
        out = torch.empty(6)
        kernel([x], [out])
        expected = [x[symbols.evaluate(index(place), {})] for place in range(6)]
        assert out.tolist() == expected, (constant, kernel.source)
