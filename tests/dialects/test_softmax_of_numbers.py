"""Softmax of a 0-d tensor, which counts as one of rank 1: a form that each stage's verifier takes, and eager's values."""

import pytest
import torch
import torch.nn.functional as F

FUNCTIONS = {
    "softmax": lambda x: F.softmax(x, 0),
    "log softmax": lambda x: F.log_softmax(x, -1),
    "another dtype": lambda x: F.softmax(x, 0, dtype=torch.float64),
    "softmin": lambda x: F.softmin(x, 0),
    "logsumexp": lambda x: torch.logsumexp(x, 0),
    "safe softmax": lambda x: torch.ops.aten._safe_softmax(x, 0),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_values_and_gradients(name):
    function, found = FUNCTIONS[name], []
    for run in (function, torch.compile(function, backend="mlirc", options={"fallback": "error"})):
        x = torch.tensor(1.5, requires_grad=True)
        y = run(x)
        (y * 3).backward()
        found.append((y, x.grad))
    torch.testing.assert_close(found[1], found[0])
