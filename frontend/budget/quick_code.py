"""Quick code: ATen's operators, called in the order of a graph of AOTAutograd's. It is there in milliseconds and needs nothing of MLIR's."""

from typing import Any

import torch
from torch.fx import Node

from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.torch_compat.aot_autograd.tracing import make_boxed_func
from mlirc.frontend.torch_compat.dynamo.boxed_code import boxed_code
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of, without_notes


def quick_code(graph: AtenGraph) -> Run:
    """What runs the graph so. It holds a copy, which no pass rewrites, and frees each input after its last use."""
    gm, boxed = without_notes(graph.gm), boxed_code()
    if boxed is not None:
        gm.graph.set_codegen(boxed())
        gm.recompile()
    run = forward_of(gm) if boxed is not None else make_boxed_func(forward_of(gm))
    layouts = saved_layouts(graph) if graph.kind == "forward" else {}

    def call(args: list) -> list:
        results = list(run(args))
        for k, strides in layouts.items():
            if lies_otherwise(results[k], strides):
                results[k] = laid_out(results[k], strides)
        return results

    return call


def saved_layouts(graph: AtenGraph) -> dict[int, tuple[int, ...]]:
    """The strides of results that are known when the graph is compiled, by position. The best code of a backward graph is
    compiled for what its forward graph saves in these strides."""
    results: Any = graph.gm.graph.output_node().args[0]
    values = {k: x.meta.get("val") for k, x in enumerate(results) if isinstance(x, Node)}
    dense = {k: v for k, v in values.items() if isinstance(v, torch.Tensor) and v.layout is torch.strided}
    return {k: v.stride() for k, v in dense.items() if all(isinstance(n, int) for n in (*v.shape, *v.stride()))}


def lies_otherwise(x: Any, strides: tuple[int, ...]) -> bool:
    if not isinstance(x, torch.Tensor) or x.stride() == strides or x.numel() == 0:
        return False
    return any(n > 1 and s != t for n, s, t in zip(x.shape, x.stride(), strides, strict=True))


def laid_out(x: torch.Tensor, strides: tuple[int, ...]) -> torch.Tensor:
    return torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
