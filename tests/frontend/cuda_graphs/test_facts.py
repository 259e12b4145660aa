"""Which graphs with functions are recorded as CUDA graphs: those of which the host has to know nothing meanwhile."""

import pytest
import torch
from torch._higher_order_ops import scan, while_loop
from torch._higher_order_ops.map import map as each
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv

from mlirc.frontend.cuda_graphs.facts import obstacle

turn = lambda c, x: torch.cond(c.sum() > 0, torch.add, torch.mul, (c, x))

GRAPHS = {
    "scan": (lambda x, c: scan(lambda c, x: (c + x, c * x), c, x), ""),
    "map": (lambda x, c: each(torch.sin, x), ""),
    "cond": (lambda x, c: turn(x, x), "what cond runs depends on data"),
    "while_loop": (
        lambda x, c: while_loop(lambda x: x.sum() < 9, lambda x: (x + 1,), (x,)),
        "what while_loop runs depends on data",
    ),
    "a branch in a scan": (lambda x, c: scan(lambda c, x: (turn(c, x), c * x), c, x), "what cond runs depends on data"),
    "a scan on the host": (
        lambda x, c: scan(lambda c, r: (c + 1, r.sin()), torch.zeros(3), x),
        "is on the CPU",
    ),
}


@pytest.mark.parametrize("name", GRAPHS)
def test_functions(name):
    fn, why = GRAPHS[name]
    with FakeTensorMode(shape_env=ShapeEnv()):
        graph = make_fx(lambda *given: fn(*given))(torch.empty(4, 3, device="cuda"), torch.empty(3, device="cuda"))
    assert any(isinstance(node.target, torch._ops.HigherOrderOperator) for node in graph.graph.nodes)
    found, devices = obstacle(graph)
    assert (found == why) if not why or why.startswith("what") else found.endswith(why)
    assert found or devices == {0}
