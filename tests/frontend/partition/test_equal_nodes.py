"""Equal nodes of a joint graph, and what loading Inductor for them would cost."""

import torch
from torch.fx import Graph
from torch.fx.experimental.proxy_tensor import make_fx

from mlirc.frontend.partition.equal_nodes import merge_equal_nodes
from tests.forked_programs import python

aten = torch.ops.aten


def merged(fn, *inputs):
    """The names of what the functional graph of fn calls, once equal nodes are one; it gives what fn gives."""
    gm = make_fx(fn, tracing_mode="fake")(*inputs)
    for node in gm.graph.nodes:
        assert node.op == "output" or "val" in node.meta
    merge_equal_nodes(gm.graph)
    gm.graph.lint()
    gm.recompile()
    torch.manual_seed(0)
    wanted = fn(*(x.clone() for x in inputs))
    torch.manual_seed(0)
    for have, own in zip(gm(*(x.clone() for x in inputs)), wanted, strict=True):
        torch.testing.assert_close(have, own, rtol=0, atol=0, equal_nan=True)
    return [node.target.__name__ for node in gm.graph.nodes if node.op == "call_function"]


X = torch.randn(4, 6)


def test_what_is_equal_becomes_one():
    assert merged(lambda x: [x.exp() + 1, x.exp().sum(1, keepdim=True) * x], X).count("exp.default") == 1
    assert merged(lambda x: [x.topk(2)[0] + 1, x.topk(2)[0] - 1], X).count("topk.default") == 1


def test_numbers_of_other_types_and_signs_differ():
    calls = merged(lambda x: [(x * 0.0).reciprocal(), (x * -0.0).reciprocal(), (x * True).neg(), (x * 1).neg()], X)
    assert calls.count("mul.Tensor") == 4


def test_random_numbers_are_drawn_each_time():
    assert merged(lambda x: [torch.rand_like(x) - torch.rand_like(x)], X).count("rand_like.default") == 2


def test_results_stay_two_tensors():
    assert merged(lambda x: [x.exp(), x.exp()], X).count("exp.default") == 2
    assert merged(lambda x: [x.exp().view(-1), x.exp().view(-1)], X).count("exp.default") == 2


def test_what_is_written_to_is_read_again():
    calls = merged(lambda x: [(x + 1).neg(), x.mul_(2).neg(), (x + 1).abs()], X)
    assert calls.count("add.Tensor") == 2


def test_operators_that_nothing_is_known_of_stay():
    graph = Graph()
    x = graph.placeholder("x")
    calls = [graph.call_function(print, (x,)) for _ in range(2)]
    graph.output(calls)
    merge_equal_nodes(graph)
    assert len(graph.find_nodes(op="call_function", target=print)) == 2


def test_training_loads_neither_inductor_nor_what_writes_for_gpus():
    program = """
import sys, torch
model = torch.nn.Linear(4, 4)
torch.compile(model, backend="mlirc", options={"fallback": "error", "cache": False})(torch.ones(2, 4)).sum().backward()
assert model.weight.grad is not None
unused = *(f"torch._inductor.{name}" for name in ("pattern_matcher", "scheduler", "lowering")), "mlirc.lowering.gpu.kernel"
print([name for name in unused if name in sys.modules])
"""
    done = python("-c", program)
    assert (done.returncode, done.stdout.strip()) == (0, "[]"), done.stderr
