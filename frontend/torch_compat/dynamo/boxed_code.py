"""Python code of FX graphs that takes a list, which it empties: each input is freed after its last use."""

from typing import Any

import torch
from torch.fx import Graph, GraphModule

from mlirc.codegen.abi.reach import Missing, reach


@reach("boxed-code", instead="quick code holds its inputs until it ends")
def boxed_code() -> type[Any]:
    """The class of such code, for Graph.set_codegen."""
    from torch.fx.graph import _BoxedCodeGen

    graph = Graph()
    graph.output((graph.call_function(torch.add, (graph.placeholder("x"), 1)),))
    graph.set_codegen(_BoxedCodeGen())
    given = [2]
    if list(GraphModule({}, graph).forward(given)) != [3] or given:
        raise Missing("it does not empty the list")
    return _BoxedCodeGen
