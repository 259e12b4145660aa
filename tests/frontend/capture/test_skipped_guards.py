"""Modules whose tensors become others in place, where Dynamo's guards skip them, as torch 2.11 does."""

import pytest
import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from mlirc.frontend.torch_compat.dynamo import skipped_guards
from tests.compare_stages import fake

pytestmark = pytest.mark.thinned


class Returns(nn.Module):
    """Dynamo skips what it guards of a module that is read and not called."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 24).reshape(4, 6))
        self.table: torch.Tensor
        self.register_buffer("table", torch.arange(6.0))

    def forward(self):
        return self.weight, torch.softmax(self.weight, -1) + self.table.exp()


def halve_rows(module):
    module.weight.data = module.weight.data[:2].clone()


def transpose(module):
    module.weight.data = module.weight.data.mul(3).t().contiguous().t()


def stride(module):
    module.table.data = torch.arange(12.0)[::2]


CHANGES = {
    "double": nn.Module.double,
    "half": nn.Module.half,
    "bfloat16": nn.Module.bfloat16,
    "rows": halve_rows,
    "strides": transpose,
    "buffer": stride,
}


@pytest.mark.thinned(4)
@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("calls", [1, 3])
@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.filterwarnings("ignore:.*runs in eager.*")
def test_what_a_module_holds_now_is_read(change, calls, grad):
    module = Returns()
    compiled = torch.compile(module, backend="mlirc")
    with torch.set_grad_enabled(grad):
        for _ in range(calls):
            compiled()
        CHANGES[change](module)
        for _ in range(2):
            expected, found = module()[1], compiled()[1]
            assert (found.dtype, found.shape, found.stride()) == (expected.dtype, expected.shape, expected.stride())
            torch.testing.assert_close(found, expected)


def test_a_graph_that_is_passed_by_is_counted_and_told_once():
    """What torch 2.11 needs, on any version."""
    told = []
    graph = torch.fx.symbolic_trace(lambda x, n, y: x + y)
    x, y = torch.ones(3), torch.ones(4)[::2]
    checked = skipped_guards.checked(lambda *_: "compiled", graph, [x, 7, y], told.append)
    assert checked(x + 1, 8, torch.zeros(4)[::2]) == "compiled"
    assert not told
    for other in (torch.ones(2), torch.ones(4)[::2].double(), torch.ones(2, device="meta"), torch.ones(1)):
        assert torch.is_tensor(checked(other, other, other))
    assert len(told) == 1 and "reset()" in str(told[0])


def test_an_input_that_was_traced_with_symbols_may_have_any_size():
    """torch 2.11 gives a backend the input itself."""
    told = []
    graph = torch.fx.symbolic_trace(lambda x, n, y: x + y)
    x, y = torch.ones(3, 2), torch.ones(3, 2)
    nodes = graph.graph.find_nodes(op="placeholder")
    nodes[0].meta["example_value"] = fake(FakeTensorMode(shape_env=ShapeEnv()), x, [0])
    checked = skipped_guards.checked(lambda *_: "compiled", graph, [x, 7, y], told.append)
    assert checked(torch.ones(5, 2), 8, y) == "compiled" and not told
    assert torch.is_tensor(checked(x, 8, torch.ones(1, 2))) and told


def test_batches_of_any_size():
    torch._dynamo.reset()
    module = nn.Linear(8, 4)
    compiled = torch.compile(module, backend="mlirc", dynamic=True, options={"fallback": "error"})
    for rows in (3, 5, 2):
        x = torch.randn(rows, 8)
        torch.testing.assert_close(compiled(x), module(x))
