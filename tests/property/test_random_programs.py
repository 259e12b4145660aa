"""Random programs, compiled with every size a symbol, give what eager gives."""

from random import Random

import pytest
import torch

from tests.property.random_programs import random_program


def check(seed: int, steps: int) -> None:
    torch._dynamo.reset()
    program, inputs = random_program(Random(seed), steps)
    compiled = torch.compile(program, backend="mlirc", dynamic=True, options={"fallback": "error"})
    with torch.no_grad():
        torch.testing.assert_close(compiled(*inputs), program(*inputs), rtol=1e-3, atol=1e-3, equal_nan=True)


# In 52 and 308 a guard says that a quotient of sizes is 1.
@pytest.mark.parametrize(("seed", "steps"), [(52, 12), (308, 14), (1, 10), (2, 10), (3, 10)])
def test_symbolic_sizes(seed, steps):
    check(seed, steps)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(300))
def test_symbolic_sizes_of_many_programs(seed):
    check(seed, 8 + seed % 8)
