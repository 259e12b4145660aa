"""What PyTorch refuses itself, in eager, in a trace, or at a call."""

import pytest
import torch

from tests.fuzz import judge
from tests.fuzz.calls import in_thread
from tests.fuzz.noise import Noise

TEXT = """
import torch
import torch.nn.functional as F
from tests.fuzz.calls import gradients

OPTIONS = {}


def program(a):
    return F.pixel_shuffle(a, 2)


def make():
    return program


def drive(f, m, see):
    for shape in ((16, 16, 1), (0, 0, 65)):
        a = torch.zeros(shape, requires_grad=True)
        r = f(a)
        see(r)
        see(gradients(r, [a]))
"""


def test_a_gradient_of_other_sizes_that_eager_refuses_later():
    """Eager refuses it in the backward pass, with 65 and 130; the second trace, with symbols, when the function is called."""
    assert judge.judge(TEXT).kind == "limit"


@pytest.mark.parametrize("backend", ["aot_eager", "mlirc"])
def test_a_view_that_is_taken_from_another_base(backend):
    """Of two views of one tensor, of which one is written to: a limit of every backend that AOTAutograd serves."""

    def program(x, y):
        x.mul_(2)
        return x.squeeze(), y * 2

    base = torch.zeros(3, 3, 17).view(-1)
    with torch.no_grad(), pytest.raises(AssertionError, match="ViewMeta") as caught:
        torch.compile(program, backend=backend)(base[0], base)
    assert judge.alias_refused(type("Ended", (), {"error": caught.value}))


def test_a_thread_has_no_autocast_under_noise():
    x = torch.randn(3, 3)
    with torch.autocast("cpu", torch.bfloat16):
        assert in_thread(torch.mm, x, x).dtype == torch.float32
        with Noise(0):
            assert in_thread(torch.mm, x, x).dtype == torch.float32
            assert torch.mm(x, x).dtype == torch.bfloat16
