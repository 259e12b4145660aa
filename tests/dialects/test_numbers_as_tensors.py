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


@pytest.mark.thinned(4)
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


TAKEN_AS_TENSORS = {
    "view": lambda x, v: v.view(torch.int64),
    "first of a list": lambda x, v: torch.block_diag(v, x.double()),
    "in a list": lambda x, v: torch.cartesian_prod(v.reshape(1), x.double()),
    "by keyword": lambda x, v: torch.bucketize(input=v, boundaries=x.double()),
    "expanded": lambda x, v: v.expand(3),
    "a view of a view": lambda x, v: v.expand(4).view(2, 2)[1:],
    "bytes of a view": lambda x, v: v.view(1, 1).view(torch.int32),
    "itself": lambda x, v: v,
    "solved": lambda x, v: torch.linalg.solve(torch.eye(2, dtype=torch.float64), v.expand(2)),
    "sorted": lambda x, v: torch.sort(v),
    "counted": lambda x, v: torch.histc(v, 4, -1, 1),
}


@pytest.mark.thinned(5)
@pytest.mark.parametrize("name", TAKEN_AS_TENSORS)
def test_a_tensor_of_a_float_that_changes(name):
    """A 0-d float64 tensor made of a symbol reaches PyTorch's operators as a tensor."""

    def function(x, n):
        return TAKEN_AS_TENSORS[name](x, torch.scalar_tensor(max(n, 0.5), dtype=torch.float64))

    torch._dynamo.reset()
    run = torch.compile(function, backend="mlirc", dynamic=True)
    x = torch.tensor([0.25, 2.0])
    for n in (-2, 3):
        torch.testing.assert_close(run(x, n), function(x, n))


def test_quotients_of_numbers_are_kernels():
    """PyTorch writes Python's floats as tensors where they are factors: a quotient of them is true_divide."""

    def function(x, s, n):
        return x * (s / 3), x * (s / n), x * (x.shape[0] / 7), x + 1 / s

    torch._dynamo.reset()
    statistics.reset()
    run = torch.compile(function, backend="mlirc", dynamic=True)
    for args in ((torch.ones(5), 1.37, 4), (torch.ones(7), 2.6, 7)):
        torch.testing.assert_close(run(*args), function(*args))
    assert not any(graph.aten or graph.fallback for graph in statistics.graphs)
