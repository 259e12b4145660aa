"""Random programs, compiled with every size a symbol, and with none, give what eager gives, strides too."""

from random import Random

import pytest
import torch

from tests.compare_stages import compare
from tests.property.random_programs import as_promised, random_program


def check(seed: int, steps: int, dynamic: bool = True) -> None:
    torch._dynamo.reset()
    program, inputs = random_program(Random(seed), steps)
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    with torch.no_grad():
        compare(compiled(*inputs), as_promised(program, inputs), rtol=1e-3, atol=1e-3)


# In 52 and 308 a guard says that a quotient of sizes is 1.
@pytest.mark.parametrize(("seed", "steps"), [(52, 12), (308, 14), (1, 10), (2, 10), (3, 10)])
def test_symbolic_sizes(seed, steps):
    check(seed, steps)


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(300))
def test_many_programs(seed, dynamic):
    check(seed, 8 + seed % 8, dynamic)
