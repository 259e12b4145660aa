"""Views of real results that a chain of complex operators gives: they begin where they do in the chain's own memory.

In PyTorch's graph the part of a complex view begins where the view does in memory that the rewritten graph has not.
"""

import pytest
import torch

from tests import sampling

ORIGINS = {
    "select": lambda z: z[2],
    "slice": lambda z: z[1:],
    "slices of slices": lambda z: z.exp()[1:][1:],
    "split": lambda z: z.split(2)[1],
    "unbind": lambda z: z.unbind(0)[1],
    "stack": lambda z: torch.stack([z, z * 2])[1],
    "cat": lambda z: torch.cat([z, z * 2])[3:],
    "permuted": lambda z: z.permute(2, 0, 1)[2],
}
PARTS = {
    "pairs": torch.view_as_real,
    "real": lambda z: z.real,
    "imaginary": lambda z: z.imag,
}


def views(x):
    """Computed from views of x, each by an operator of its own."""
    return (
        x.select(-1, 1) * 2,
        x[1:].exp(),
        x.narrow(-1, 1, 1) + 1,
        x.flatten()[3:] - 1,
        x.unbind(0)[1] * 3,
        x.split(1, -1)[1].sum(0),
        x.transpose(0, -1)[1:].sum(-1),
        torch.as_strided(x.clone(), (2,), (1,), 1) * 2,
    )


@pytest.mark.parametrize(("part", "dynamic"), [("pairs", False), ("real", False), ("imaginary", True)])
def test_values_and_gradients(part, dynamic):
    """By default a third of the chains with each of the parts."""
    first = list(PARTS).index(part)
    origins = sampling.some([*ORIGINS.values()][first:] + [*ORIGINS.values()][:first], 3)

    def program(x, y):
        z = x * y + 1
        return [v for origin in origins for v in views(PARTS[part](origin(z)))]

    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc", dynamic=dynamic, options={"cache": False, "fallback": "error"})
    for size in (4, 6):
        torch.manual_seed(size)
        x, y = torch.randn(2, size, size + 1, 3, dtype=torch.complex64)
        found = []
        for f in (program, compiled):
            given = x.clone().requires_grad_()
            results = f(given, y)
            total = sum((r * torch.linspace(1, 2, r.numel()).reshape(r.shape)).sum() for r in results)
            found.append((*results, *torch.autograd.grad(total, given)))
        torch.testing.assert_close(found[1], found[0])
        assert [r.stride() for r in found[1]] == [r.stride() for r in found[0]]
