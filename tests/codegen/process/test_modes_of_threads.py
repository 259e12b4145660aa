"""Each thread of a kernel computes in the calling thread's floating-point mode, whatever mode the thread was started in."""

from contextlib import nullcontext

import pytest
import torch
from torch.nn import functional as F

from mlirc.frontend import statistics
from tests.codegen.process.test_floating_point import MODES

KERNELS = {
    "elementwise": lambda x: x * x,
    "rows": lambda x: (x * x).cumsum(1),
    "reduction of rows": lambda x: (x * x).sum(1),
    "reduction of columns": lambda x: (x * x).amax(0),
    "transposed": lambda x: (x * x).t().contiguous(),
    "gather": lambda x: (x * x)[torch.arange(511, -1, -1)],
    "matmul": lambda x: torch.relu(x @ x[:64].t()),
    "attention": lambda x: F.scaled_dot_product_attention(
        *x.view(4, 128, 2, 96).transpose(1, 2)[None].expand(3, *[-1] * 4) * x[0, 0]
    ),
    "convolution": lambda x: F.conv2d(
        x.view(1, 64, 24, 64).contiguous(memory_format=torch.channels_last), x[:54, :64].reshape(6, 64, 3, 3)
    ),
}


@pytest.fixture
def threads():
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def equal(x, y):
    return torch.equal(x.view(torch.int32), y.view(torch.int32))


@pytest.mark.parametrize("name", KERNELS)
def test_threads_compute_in_the_mode_of_the_call(name, threads):
    statistics.reset()
    torch.manual_seed(0)
    x = (torch.rand(512, 192) + 1) * 1e-20  # products are subnormal
    call = torch.compile(KERNELS[name], backend="mlirc", options={"fallback": "error"})
    for mode, switched in MODES.items():
        threads(1)
        alone = {False: call(x)}
        with switched():
            alone[True] = call(x)
        assert not equal(alone[False], alone[True]), mode  # there is something to see
        for started_in_mode in (False, True):
            threads(1)  # ends the team
            with switched() if started_in_mode else nullcontext():
                threads(2)
                call(x)  # starts one
            for in_mode in (False, True, False):
                with switched() if in_mode else nullcontext():
                    assert equal(call(x), alone[in_mode]), (mode, started_in_mode, in_mode)
    assert not statistics.fallbacks


def test_threads_keep_the_mode_that_they_were_started_in(threads):
    """PyTorch's own kernels run on the same threads."""
    call = torch.compile(lambda x: x / 3, backend="mlirc", options={"fallback": "error"})
    x = torch.full((400_000,), 1e-39)
    threads(1)
    threads(2)
    before = x * 0.5  # starts a thread, which keeps subnormal numbers
    with MODES["flush"]():
        call(x)
    assert torch.equal(x * 0.5, before) and before.all()
