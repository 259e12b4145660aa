"""Extremes of no elements raise what eager raises; of other rows of the same tensor they are no elements themselves."""

import pytest
import torch

NAMES = ["max", "min", "amax", "amin", "argmax", "argmin", "aminmax"]
SHAPES = [(0,), (0, 3), (3, 0), (0, 0), (2, 0, 3)]


def outcome(function, x):
    try:
        results = function(x)
    except (RuntimeError, IndexError) as error:
        return type(getattr(error, "inner_exception", None) or error)
    return [(y.shape, y.dtype, y.tolist()) for y in (results if isinstance(results, tuple) else (results,))]


@pytest.mark.thinned(2)
@pytest.mark.parametrize("shape", SHAPES)
def test_sizes_that_are_known(shape):
    def f(x):
        return x.max()

    def along(x):
        return x.min(-1)

    for function in (f, along, lambda x: x.reshape(-1).max(), lambda x: x.max(0).values):
        torch._dynamo.reset()
        x = torch.ones(shape)
        assert outcome(torch.compile(function, backend="mlirc"), x) == outcome(function, x)


@pytest.mark.full
@pytest.mark.parametrize("name", NAMES)
def test_each_extreme(name):
    for dim in (None, 0, -1):
        for shape in SHAPES:
            torch._dynamo.reset()

            def function(x, dim=dim):
                chosen = {} if dim is None else {"dim": dim}
                return getattr(x, name)(**chosen)

            x = torch.ones(shape)
            expected = outcome(function, x)
            found = outcome(torch.compile(function, backend="mlirc"), x)
            assert found == expected or (isinstance(expected, type) and isinstance(found, type)), (name, dim, shape)


@pytest.mark.parametrize("captured", [False, True])
def test_sizes_that_are_data(captured):
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=captured, capture_scalar_outputs=captured):
        torch._dynamo.reset()

        def f(x):
            return x[x > 0].max() + 1, x[x > 0].sum()

        compiled = torch.compile(f, backend="mlirc")
        for x in (torch.ones(3), -torch.ones(3), torch.arange(4.0)):
            assert outcome(compiled, x) == outcome(f, x)
