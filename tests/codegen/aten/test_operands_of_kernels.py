"""Kernels of ATen's that look at more of an operand than its memory."""

import pytest
import torch


@pytest.mark.parametrize("layout", ["channels_last", "transposed", "part", "contiguous"])
def test_a_written_argument_that_requires_a_gradient(layout):
    """as_strided_scatter, which AOTAutograd writes for views of a written argument, refuses one that is not contiguous."""

    def program(a, b):
        a.sub_(5)
        return torch.cummin(b, 2)[0] * 2

    def results(function):
        torch.manual_seed(0)
        leaf = torch.randn(8, 3, 4, 5, requires_grad=True)
        a = {
            "channels_last": lambda: leaf.to(memory_format=torch.channels_last),
            "transposed": lambda: (leaf * 1).transpose(1, 3),
            "part": lambda: (leaf * 1)[:, :, 1:, ::2],
            "contiguous": lambda: leaf * 1,
        }[layout]()
        made = function(a, a[0])
        return a, made, torch.autograd.grad(made.sum() + a.square().sum(), leaf)[0]

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", options={"fallback": "error"})
    for made, expected in zip(results(compiled), results(program), strict=True):
        torch.testing.assert_close(made, expected)
