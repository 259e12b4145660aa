"""Which gradients are None where some results have none: eager's, also of graphs that write to what they return."""

import pytest
import torch

from mlirc.frontend.fallback.read_inputs import inputs_of_results


def copied_into(a, b, c):
    y = a * 2
    y[0] = b[0]
    return y, c.sin()


def by_a_view(a, b, c):
    y = a * 3
    view = y[1:]
    view.mul_(b[1:])
    return y, view.view(-1), c * 2


def read_before(a, b, c):
    y = a * 2
    z = y * 3
    y.add_(b)
    return z, y, c.detach() * 3


def into_an_output(a, b, c):
    return torch.cat([a, b]), torch.relu_(b * c), c.clone().index_copy_(0, torch.tensor([0]), a[:1])


def in_functions(a, b, c):
    return torch.cond(a.sum() > 0, lambda a, b: a * b, lambda a, b: a + b, (a, b)), c.exp()


def of_one_part(a, b, c):
    x, y = torch.stack([a, b]).unbind()
    return x.sin(), y.cos(), c.cos()


PROGRAMS = [copied_into, by_a_view, read_before, into_an_output, in_functions, of_one_part]


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.thinned(4)
def test_gradients_of_each_result(program):
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="mlirc")
    for k in range(len(program(*(torch.ones(3) for _ in range(3))))):
        found = []
        for f in (compiled, program):
            given = [torch.linspace(1, 2, 3).mul(n).requires_grad_() for n in (1, 2, 3)]
            result = f(*given)[k]
            found.append(torch.autograd.grad(result.sum(), given, allow_unused=True) if result.requires_grad else None)
        torch.testing.assert_close(*found)


def test_a_write_to_a_sparse_tensor():
    """It has no storage to tell it by: what is read of it afterwards is computed from what was written."""
    graph, dense = torch.fx.Graph(), torch.randn(3, 3)
    x, w = graph.placeholder("x"), graph.placeholder("w")
    made = graph.call_method("to_sparse", (x,))
    written = graph.call_method("add_", (made, w))
    result = graph.call_method("to_dense", (made,))
    graph.output((result,))
    for node, value in (
        (x, dense),
        (w, dense.clone()),
        (made, dense.to_sparse()),
        (written, dense.to_sparse()),
        (result, dense + 1),
    ):
        node.meta["example_value"] = value
    assert inputs_of_results(torch.fx.GraphModule({}, graph)).of_results == [0b11]
