"""Operators on lists of tensors: each is compiled, and gives what eager gives; an optimizer's step made of them is few kernels."""

from typing import Any

import pytest
import torch

from mlirc.frontend import statistics
from mlirc.frontend.torch_compat.list_operators import functional, list_operators

KINDS = {
    "List[Tensor]": lambda k: [torch.rand(3, 4) + k, torch.rand(2) + k],
    "Tensor": lambda k: torch.tensor(0.75),
    "List[number]": lambda k: [1.5, 2],
    "number": lambda k: 1.5,
}
MATRICES = [torch.rand(3, 3), torch.rand(4, 4)]


def arguments(op: Any) -> list[Any]:
    given = [a for a in op._schema.arguments if not a.has_default_value() and not a.kwarg_only]
    if op._schema.name == "aten::_foreach_mm":
        return [MATRICES, MATRICES]
    if op._schema.name == "aten::_foreach_copy":
        return [KINDS["List[Tensor]"](k) for k in range(2)]
    return [KINDS[str(a.type)](k) for k, a in enumerate(given)]


def in_place(op: Any) -> Any:
    """The operator that writes to its first list; those that write to no list, or take a number first, have none."""
    packet = getattr(torch.ops.aten, f"{op._schema.name.removeprefix('aten::')}_", None)
    return getattr(packet, op._overloadname, None) if packet else None


OPS = sorted(functional(), key=str)


def test_all_of_them_have_parts():
    parts = list_operators()
    assert parts is not None and len(OPS) > 60 and set(OPS) <= set(parts)


@pytest.mark.parametrize("part", range(4))
def test_they_are_compiled(part):
    """Several in one graph; each in place too."""
    ops = OPS[part::4]
    given = [arguments(op) for op in ops]
    places = [(op, args) for op, args in zip(map(in_place, ops), given, strict=True) if op is not None]

    def function(given, copies):
        for (op, args), tensors in zip(places, copies, strict=True):
            op(tensors, *args[1:])
        return [op(*args) for op, args in zip(ops, given, strict=True)], copies

    def copies():
        return [[x.clone() for x in args[0]] for _, args in places]

    torch._dynamo.reset()
    statistics.reset()
    with torch.no_grad():
        found = torch.compile(function, backend="mlirc", options={"fallback": "error"})(given, copies())
        torch.testing.assert_close(found, function(given, copies()))
    (graph,) = statistics.graphs
    assert not [name for name in graph.aten if "_foreach_" in name]


@pytest.mark.parametrize("make", [torch.optim.AdamW, torch.optim.SGD, torch.optim.RMSprop])
def test_steps_of_optimizers(make):
    def steps(compiled: bool) -> list[torch.Tensor]:
        parameters = [torch.nn.Parameter(torch.linspace(-1, 1, 12 + k % 3).sin()) for k in range(9)]
        for p in parameters:
            p.grad = p.detach().cos()
        optimizer = make(parameters, lr=0.1, foreach=True)
        step = torch.compile(optimizer.step, backend="mlirc") if compiled else optimizer.step
        for _ in range(3):
            step()
        return [p.detach() for p in parameters]

    torch._dynamo.reset()
    statistics.reset()
    torch.testing.assert_close(steps(True), steps(False))
    assert statistics.graphs and all(len(g.kernels) <= 3 and not g.fallback for g in statistics.graphs)
