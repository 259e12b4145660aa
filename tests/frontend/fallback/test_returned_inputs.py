"""Results of graphs that write to inputs with and without a gradient, and return the inputs: AOTAutograd mixes them up."""

import pytest
import torch
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm

RESULTS = {
    "last": lambda x, a, b: (x.sin(), a),
    "first": lambda x, a, b: (a, x.sin()),
    "both": lambda x, a, b: (x.sin(), a, x * 3, b, a + b.sum()),
    "twice": lambda x, a, b: (a, x.sin(), a, x),
    "none": lambda x, a, b: (x.sin(), a + 1),
    "alone": lambda x, a, b: (b,),
}


@pytest.mark.thinned(2)
@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("trains", [False, True])
def test_inputs_that_are_written_to_and_returned(trains, dynamic):
    for results in RESULTS.values():

        def program(x, a, b, results=results):
            x.mul_(2)
            with torch.no_grad():
                a = a.add_(1)  # what Dynamo does not know to be the input
                b = b.copy_(a.sum() + b)
            return results(x, a, b)

        torch._dynamo.reset()
        seen, objects = [], []
        for function in (
            program,
            torch.compile(program, backend="mlirc", dynamic=dynamic, options={"fallback": "error"}),
        ):
            torch.manual_seed(0)
            leaf, a, b = torch.randn(3, 4).requires_grad_(trains), torch.randn(4), torch.randn(2)
            x = leaf * 1
            found = function(x, a, b)
            gradient = torch.autograd.grad(sum(y.sum() for y in found) + x.sum(), leaf)[0] if trains else x
            seen.append([*found, x, a, b, gradient])
            objects.append([[y is z for z in (x, a, b)] for y in found])
        torch.testing.assert_close(seen[1], seen[0])
        assert objects[0] == objects[1]


@pytest.mark.parametrize("trains", [False, True])
def test_embeddings_of_bounded_norm_beside_a_normed_weight(trains, folder):
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding = nn.Embedding(7, 4, max_norm=1.0)
            self.linear = spectral_norm(nn.Linear(4, 5))

        def forward(self, i):
            return self.embedding(i), self.linear(torch.ones(2, 4))

    i = torch.tensor([1, 2, 3, 4])
    for _ in range(2):  # the second time from the disk cache
        torch._dynamo.reset()
        other, model = Model().train(trains), Model().train(trains)
        compiled = torch.compile(model, backend="mlirc")
        for _ in range(2):
            torch.testing.assert_close(compiled(i), other(i))
        sum(y.sum() for y in compiled(i)).backward()
        sum(y.sum() for y in other(i)).backward()
        for a, b in zip(model.parameters(), other.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
        torch.testing.assert_close(model.state_dict(), other.state_dict())
