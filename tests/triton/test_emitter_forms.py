"""Every kernel form of tests/lowering/cpu/emitter/test_emitter.py as Triton, in Triton's interpreter, against ours."""

import pytest

from tests.lowering.cpu.emitter import test_emitter as forms
from tests.triton.runner import TritonKernel

CPU_ONLY = (
    "test_contiguous_elementwise_is_one_loop",  # about loops and vectors
    "test_channels_last_elementwise_is_one_loop",
    "test_processors_without_avx512",
    "test_equal_launches_share_a_function",
    "test_bool_bytes_other_than_one_are_true",  # PyTorch's own kernels on GPUs take other bytes for granted
)
globals().update({n: f for n, f in vars(forms).items() if n.startswith("test_") and n not in CPU_ONLY})
symbolic_softmax = forms.symbolic_softmax


@pytest.fixture(scope="module", autouse=True)
def as_triton():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forms, "NativeKernel", TritonKernel)
        yield
