"""The random kernels of tests/property as Triton, with the cost model's blocks and with small ones, in Triton's interpreter."""

import math
from functools import partial
from unittest.mock import patch

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property import test_random_kernels as random
from tests.triton.runner import TritonKernel, small

LIMITS = st.sampled_from([None, 4, 16])
SPACES = random.spaces().filter(lambda space: math.prod(space[0]) <= 500)  # the interpreter is slow


def run(test, limit, *arguments):
    with patch.object(random, "NativeKernel", partial(TritonKernel, shrink=limit and small(limit))):
        test.hypothesis.inner_test(*arguments, 0)


@settings(max_examples=8, deadline=None)
@given(
    LIMITS,
    SPACES,
    st.booleans(),
    st.sampled_from(random.KINDS),
    st.sampled_from([torch.float32, torch.int64, torch.uint8]),
)
def test_random_reductions_with_masks(limit, space, symbolic, kind, dtype):
    run(random.test_random_reductions_with_masks, limit, space, symbolic, kind, dtype)


@settings(max_examples=8, deadline=None)
@given(
    LIMITS,
    SPACES,
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float64, torch.int32]),
)
def test_random_layouts_and_reductions(limit, space, symbolic, broadcast, dtype):
    run(random.test_random_layouts_and_reductions, limit, space, symbolic, broadcast, dtype)
