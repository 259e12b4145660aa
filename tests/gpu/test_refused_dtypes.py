"""A dtype for which eager's kernel on a GPU is not written raises the same in a compiled graph."""

import pytest
import torch

from mlirc.frontend import statistics

CASES = {
    "bits of floats": lambda x: torch.bitwise_and(x.half(), 1.5),
    "shifted floats": lambda x: torch.bitwise_left_shift(x.half(), x.half()),
    "bits of bfloat16": lambda x: torch.bitwise_not(x.bfloat16()),
    "floats divided": lambda x: torch.gcd(x, x),
}


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_raises_as_eager(name, dynamic):
    x = torch.ones(4, 5, device="cuda")
    with pytest.raises(Exception) as expected:
        CASES[name](x)
    statistics.reset()
    torch._dynamo.reset()
    with pytest.raises(Exception) as found:
        torch.compile(CASES[name], backend="mlirc", dynamic=dynamic, options={"fallback": "error"})(x)
    inner = getattr(found.value, "inner_exception", None) or found.value
    assert type(inner).__name__ in (type(expected.value).__name__, "TorchRuntimeError")
    assert "not implemented" in str(inner)
