"""Python numbers in place of tensors, as PyTorch allows for some operators, as symbols too: in every dtype and rank."""

import pytest
import torch

from mlirc.frontend import statistics

pytestmark = pytest.mark.thinned

ALLOWED = torch._C._should_allow_numbers_as_tensors
NAMES = sorted(name for name in dir(torch.Tensor) if name[0] != "_" and name != "to" and ALLOWED(name))
DTYPES = (torch.int64, torch.float32, torch.int32, torch.bool, torch.uint8, torch.float16)
SHAPES = ((3,), (), (1,), (0,))


def takes(name, x, n) -> bool:
    try:
        getattr(x.clone(), name)(n)
    except (RuntimeError, TypeError):
        return False
    return True


def test_the_names_are_pytorchs():
    assert {"add", "copy_", "mul_", "true_divide", "floor_divide"} <= {*NAMES}


@pytest.mark.parametrize("number", [4, 2.5], ids=["int", "float"])
@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("multiply", "subtract", "divide")])
def test_a_number_in_place_of_a_tensor(name, number):
    tensors = [torch.ones(shape, dtype=dtype) for dtype in DTYPES for shape in SHAPES]
    tensors = [x for x in tensors if takes(name, x, number)]
    if not tensors:
        return  # no tensor holds it

    def function(tensors, n):
        return [getattr(x.clone(), name)(n) for x in tensors]

    torch._dynamo.reset()
    statistics.reset()
    run = torch.compile(function, backend="mlirc", dynamic=True)
    for n in (number, number + 1):
        for found, expected in zip(run(tensors, n), function(tensors, n), strict=True):
            torch.testing.assert_close(found, expected)
    assert not statistics.fallbacks
