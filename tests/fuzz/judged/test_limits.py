"""What PyTorch refuses itself, in eager and in a trace."""

from tests.fuzz import judge

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
