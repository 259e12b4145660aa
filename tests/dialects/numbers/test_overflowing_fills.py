"""Numbers that a tensor's dtype does not hold: eager raises where it fills with one, but for a single element of a half type, which is infinite."""

import pytest
import torch

FILLS = {
    "full": lambda x, n: torch.full((3,), n, dtype=x.dtype),
    "full of one": lambda x, n: torch.full((1, 1), n, dtype=x.dtype),
    "full of none": lambda x, n: torch.full((0,), n, dtype=x.dtype),
    "full_like": torch.full_like,
    "new_full": lambda x, n: x.new_full((2, 2), n),
    "fill_": lambda x, n: x.clone().fill_(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 0, n),
    "masked_fill by a tensor": lambda x, n: x.masked_fill(x > 0, torch.tensor(n)),
    "index_fill": lambda x, n: x.index_fill(0, torch.tensor([0]), n),
    "scatter": lambda x, n: x.scatter(0, torch.tensor([0]), n),
    "pad": lambda x, n: torch.nn.functional.pad(x, (1, 1), value=n),
}
NUMBERS = {
    torch.float16: (70000, -70000.0, 1e39, 2**40, float("inf"), 65504.0),
    torch.bfloat16: (1e39, -1e39, 3e38, 70000),
    torch.float32: (1e39, -1e39, 3e38),
    torch.int8: (300, -200, 127.5, -1),
    torch.uint8: (256, -1, -1.5),
    torch.int32: (2**40, 3e9, -(2**31)),
}


@pytest.mark.thinned
@pytest.mark.parametrize("dtype", NUMBERS, ids=str)
@pytest.mark.parametrize("name", FILLS)
def test_raises_where_eager_does(name, dtype):
    for number in NUMBERS[dtype]:

        def filled(x, number=number):
            return FILLS[name](x, number)

        x = torch.tensor([1, 0, 1, 1]).to(dtype)
        torch._dynamo.reset()
        compiled = torch.compile(filled, backend="mlirc", options={"cache": False})
        result, expected = outcome(compiled, x), outcome(filled, x)
        if expected is None:
            assert result is None, f"eager refuses {number}, mlirc gives {result}"
        else:
            torch.testing.assert_close(result, expected, rtol=0, atol=0)


@pytest.mark.parametrize("number", [70000.0, 3.0])
def test_a_number_that_a_tensor_has(number):
    def filled(x, n):
        return x.masked_fill(x > 0, n) + torch.full_like(x, n.item())

    compiled = torch.compile(filled, backend="mlirc")
    x = torch.ones(4, dtype=torch.float16)
    result, expected = (outcome(lambda x, f=f: f(x, torch.tensor(number)), x) for f in (compiled, filled))
    assert (result is None) == (expected is None)
    if expected is not None:
        torch.testing.assert_close(result, expected)


def outcome(function, x):
    """The result, or None for an error."""
    try:
        return function(x)
    except (RuntimeError, torch._dynamo.exc.TorchRuntimeError):
        return None
