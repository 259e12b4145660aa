"""Random programs, compiled with every size a symbol, and with none, give what eager gives, strides too."""

from collections.abc import Callable
from random import Random

import pytest
import torch

from tests.compare_stages import compare
from tests.property.random_programs import random_inputs, random_program


def check(seed: int, steps: int, dynamic: bool = True) -> None:
    program, inputs = random_program(Random(seed), steps)
    compare_with_eager(program, [inputs], dynamic)


def check_other_sizes(seed: int) -> None:
    """One compiled function, called with up to six sizes: with those that the program fits."""
    program, inputs = random_program(Random(seed), 8)
    is_float = inputs[1].is_floating_point()
    others = [random_inputs(Random(6 * seed + k), (2, 3, 4, 5, 6), is_float) for k in range(6)]
    calls = [x for x in others if fits(program, x)]
    if not calls:
        pytest.skip("no other sizes fit this program")
    compare_with_eager(program, calls, dynamic=True)


def fits(program: Callable, inputs: list[torch.Tensor]) -> bool:
    try:
        program(*inputs)
    except (RuntimeError, IndexError):  # sizes that are part of the program
        return False
    return True


def compare_with_eager(program: Callable, calls: list[list[torch.Tensor]], dynamic: bool) -> None:
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"})
    with torch.no_grad():
        for inputs in calls:
            compare(compiled(*inputs), program(*inputs), rtol=1e-3, atol=1e-3)


# In 52 and 308 a guard says that a quotient of sizes is 1.
@pytest.mark.thinned(2)
@pytest.mark.parametrize(("seed", "steps"), [(52, 12), (308, 14), (1, 10), (2, 10), (3, 10)])
def test_symbolic_sizes(seed, steps):
    check(seed, steps)


@pytest.mark.thinned(2)
@pytest.mark.parametrize("seed", [5, 13, 26])
def test_other_sizes(seed):
    check_other_sizes(seed)


@pytest.mark.full
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("seed", range(300))
def test_many_programs(seed, dynamic):
    check(seed, 8 + seed % 8, dynamic)


@pytest.mark.full
@pytest.mark.parametrize("seed", range(200))
def test_other_sizes_of_many_programs(seed):
    check_other_sizes(seed)
