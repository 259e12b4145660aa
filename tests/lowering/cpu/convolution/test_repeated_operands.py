"""Convolutions two of whose arguments are one tensor, as of an image correlated with itself: a call has one operand for both."""

import pytest
import torch
import torch.nn.functional as F

PROGRAMS = {
    "image": (lambda x: F.conv2d(x, x, padding=1).relu(), (2, 2, 5, 5)),
    "row": (lambda x: F.conv1d(x, x) + 1, (2, 2, 5)),
    "transposed": (lambda x: F.conv_transpose2d(x, x) * 2, (2, 2, 3, 3)),
    "volume": (lambda x: F.conv3d(x, x, padding=1), (2, 2, 3, 3, 3)),
    "groups": (lambda x: F.conv2d(x.repeat(1, 2, 1, 1), x, groups=2), (4, 2, 3, 3)),
    "bias": (lambda x: F.conv2d(x, x, x[:, 0, 0, 0]), (2, 2, 5, 5)),
}


CASES = [("image", False), ("image", True), ("row", True), ("groups", False)]
FULL = [(name, dynamic) for name in PROGRAMS for dynamic in (False, True) if (name, dynamic) not in CASES]


@pytest.mark.thinned(2)
@pytest.mark.parametrize(("name", "dynamic"), [*CASES, *(pytest.param(*c, marks=pytest.mark.full) for c in FULL)])
def test_an_image_that_is_the_weight(name, dynamic):
    program, shape = PROGRAMS[name]
    torch._dynamo.reset()
    torch.manual_seed(0)
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    x = torch.randn(shape, requires_grad=True)
    made, expected = compiled(x), program(x)
    torch.testing.assert_close(made, expected)
    given, right = (torch.autograd.grad(y.sin().sum(), x)[0] for y in (made, expected))
    torch.testing.assert_close(given, right, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled(x.detach()), expected.detach())
