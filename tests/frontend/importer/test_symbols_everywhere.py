"""Every symbol of a graph has a value where it is read, wherever it appears: in sizes alone, in what is computed of parameters,
in views and in arguments of ATen's operators; beside a tensor that has it as a size, and alone."""

import math

import pytest
import torch
from torch import nn

pytestmark = pytest.mark.thinned

OF_PARAMETERS = {
    "remainder": lambda w, n: torch.remainder(w.long(), n),
    "fmod": lambda w, n: torch.fmod(w, n),
    "select": lambda w, n: w[n],
    "narrow": lambda w, n: w.narrow(0, n, 2) * 2,
    "roll": lambda w, n: torch.roll(w, n, 0),
    "diagonal": lambda w, n: w.tril(n) @ w.t(),
    "shift": lambda w, n: w.long() << n,
    "power": lambda w, n: w**n,
    "clamp": lambda w, n: w.clamp(max=n).cumsum(0),
    "pad": lambda w, n: torch.constant_pad_nd(w, (1, 1), n) @ w.new_ones(6, 3),
    "fill": lambda w, n: torch.index_fill(w, 0, torch.tensor([1]), n),
    "renorm": lambda w, n: torch.renorm(w, n, 0, 1.0),
    "flip": lambda w, n: torch.masked_fill(w.flip(0), w > 3, n).sort(0).values,
    "as_strided": lambda w, n: w.as_strided((2, 2), (1, 1), n).t() @ w[:2, :2],
    "quantile": lambda w, n: w.kthvalue(n + 1, 0).values,
}


class Kept(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.name = name
        self.weight = nn.Parameter(torch.arange(1.0, 21.0).view(5, 4))

    def forward(self, x, n):
        made = OF_PARAMETERS[self.name](self.weight, n)
        return torch.where(x[0] > 0, made, made * 2) + x[0], made.float() @ x.new_ones(made.shape[-1], 2)


@pytest.mark.thinned(3)
@pytest.mark.parametrize("name", OF_PARAMETERS)
def test_what_is_computed_of_parameters_and_an_int(name):
    model = Kept(name)
    compiled = torch.compile(model, backend="mlirc", dynamic=True, options={"fallback": "error"})
    with torch.no_grad():
        for n in (2, 3, 1):
            torch.testing.assert_close(compiled(torch.ones(3), n), model(torch.ones(3), n))


SIZES = {
    "a start between integers": lambda n: torch.arange(0.5, n),
    "a step between integers": lambda n: torch.arange(0, n, 0.3),
    "a ceiling": lambda n: torch.zeros(math.ceil(n * 0.7)),
    "a floor": lambda n: torch.ones(math.floor(n / 3) + 1),
    "a truncation": lambda n: torch.ones(int(n * 0.5)),
    "a rounded half": lambda n: torch.ones(round(n / 2)),
    "a power": lambda n: torch.ones(2**n)[: 2 * n],
    "a bit": lambda n: torch.ones(n & 6),
    "a shift": lambda n: torch.ones(n << 1, n >> 1),
    "a quotient": lambda n: torch.ones(24 // n, 24 % n),
    "a root": lambda n: torch.ones(int(math.sqrt(n))),
    "a distance": lambda n: torch.ones(abs(n - 5)),
    "a logarithm": lambda n: torch.ones(
        n.bit_length() if isinstance(n, int) and not isinstance(n, torch.SymInt) else 3
    ),
}
GIVEN = {
    "and of a tensor without elements": lambda n: torch.ones(n, n)[:0],
    "and of a tensor": lambda n: torch.ones(n, 2),
    "and of half a tensor": lambda n: torch.ones(2, 2 * n)[:, ::2],
    "and of none": lambda n: torch.ones(3),
}


@pytest.mark.thinned(3)
@pytest.mark.parametrize("given", GIVEN)
@pytest.mark.parametrize("name", SIZES)
def test_sizes_that_no_tensor_has(name, given):
    """`n` is the size of an argument that the graph does not read, and of another one or none."""

    def function(x, y):
        made = SIZES[name](x.shape[0])
        return made, y[:], made.sum() + y.sum()

    compiled = torch.compile(function, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for n in (4, 7, 9):
        x, y = torch.ones(n), GIVEN[given](n)
        torch.testing.assert_close(compiled(x, y), function(x, y))
