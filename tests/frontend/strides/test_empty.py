"""Sizes that are symbols and whose value is 0 at the call that is traced: nothing is divided by them."""

import pytest
import torch

FUNCTIONS = {
    "diagonal": lambda x: x.diagonal(2).ceil(),
    "slice": lambda x: (x[2:] * x[2:]).transpose(0, 1).abs(),
    "columns": lambda x: x[..., 2:].transpose(0, 3).cos(),
    "permuted": lambda x: x[:, 2:].permute(3, 1, 0, 2).relu(),
    "roll": lambda x: torch.roll(x[:, 2:], (1, 1), (0, 1)),
}
INPUTS = {
    "expanded": lambda: torch.randn(2, 1, 1, 2).expand(-1, 2, 1, -1),
    "dense": lambda: torch.randn(2, 2, 2, 2),
    "transposed": lambda: torch.randn(2, 2, 3, 2).transpose(1, 3),
}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_values(function):
    for x in [make() for make in INPUTS.values()]:
        torch._dynamo.reset()
        run = torch.compile(FUNCTIONS[function], backend="mlirc", dynamic=True, options={"fallback": "error"})
        torch.testing.assert_close(run(x), FUNCTIONS[function](x))
