"""Writes to float64 scalars that Dynamo drops: it takes the write for a Python float of which nothing is left.

    def f(v, x):         v a float64 tensor without dimensions, on a CPU
        v.mul_(2)        not in the graph that Dynamo compiles, under every backend that goes through AOTAutograd
        return x + 1

A Python float is an input as such a tensor, too, and `item` gives its symbol. AOTAutograd notes the symbols that it could not keep, in a set, and
has Dynamo trace the function again. `OutputGraph.remove_tensorify_specialized_graphargs` then removes each node whose value has such a symbol and
which nothing but `item` reads. A write gives the tensor that it wrote: it has the symbol, and no reader. AOTAutograd notes each symbol that no
operator reads as a number, which those of tensors are. Nobody takes the names out again: `zf0` of one function is there for all later ones.

The names of tensors are in the set while AOTAutograd traces, so that it asks for nothing, and not while Dynamo does.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.reach import LeftOut, Missing, reach
from mlirc.frontend.torch_compat.dynamo.restart import Never, TensorifyScalarRestartAnalysis

PROBE = "mlirc"  # the name of no symbol


@reach(
    "specialized-floats",
    instead="a write to a float64 tensor without dimensions, on a CPU, is lost where nothing reads it, as with every backend",
)
def specialized_floats() -> set[str]:
    """The names of symbols that Dynamo is to make constants."""
    from torch._dynamo.symbolic_convert import TensorifyState

    if TensorifyScalarRestartAnalysis is Never:
        raise LeftOut("without restart")
    held = TensorifyState.force_specializations
    if not isinstance(held, set):
        raise Missing("it is no set")
    if TensorifyState.should_specialize(PROBE):
        raise Missing("it has a name that no symbol has")
    held.add(PROBE)
    try:
        if not TensorifyState.should_specialize(PROBE):
            raise Missing("it is not asked")
    finally:
        held.discard(PROBE)
    return held


@contextmanager
def keeping_writes(gm: GraphModule) -> Iterator[None]:
    """Compiles a graph of Dynamo's within. Raises what makes Dynamo trace it again, where writes may be missing from it."""
    names = scalar_symbols(gm)
    held = specialized_floats() if names else None
    if held is None:
        yield
        return
    if names & held:  # of a function that was compiled before, whatever its backend
        held -= names
        raise TensorifyScalarRestartAnalysis
    held |= names
    try:
        yield
    finally:
        held -= names


def scalar_symbols(gm: GraphModule) -> set[str]:
    """The names of the symbols of those inputs, float64 tensors without dimensions, that Dynamo would keep: all but those that `item` alone reads."""
    names = set()
    for node in gm.graph.nodes:
        value = node.meta.get("example_value")
        if (
            node.op != "placeholder"
            or not isinstance(value, torch.Tensor)
            or value.dtype != torch.float64
            or value.dim()
        ):
            continue
        symbol = getattr(value, "item_memo", None)
        is_number = node.users and all(user.target == "item" for user in node.users)
        if isinstance(symbol, torch.SymFloat) and not is_number:
            names.add(str(symbol.node._expr))
    return names
