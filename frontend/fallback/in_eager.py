"""Runs a graph of AOTAutograd's in eager where compiling it or its first run fails, and counts that."""

from collections.abc import Callable

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.lazy_tensors import is_batched
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend import statistics
from mlirc.frontend.fallback import fallback
from mlirc.frontend.fallback.first_run import Instead
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.options import Options
from mlirc.frontend.torch_compat.aot_autograd.tracing import make_boxed_func
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of, without_notes


def guarded(way: Callable[[AtenGraph], Run], graph: AtenGraph) -> Run:
    """`way(graph)`, which compiles the graph; if it fails, the graph in eager. Counts either. Raises the error as in_place does."""
    try:
        run = way(graph)
    except Exception as error:
        run = in_place(graph, error)
    statistics.record(graph.report)
    run.report = graph.report  # type: ignore[attr-defined]  # for trace_cache.py
    return run


def in_place(graph: AtenGraph, error: Exception) -> Run:
    """The graph in eager, which runs in place of the compiled one. Raises `error` with fallback="error", and always if it is the
    user's: wrong options, or the exception of a signal handler."""
    raise_of_handler(error)
    if graph.options.fallback == "error" or isinstance(error, fallback.PASSES_THROUGH):
        raise error
    graph.report.fallback, graph.report.key = fallback.tell(graph.report.kind, error), ""
    return as_written(graph.gm)


def at_a_call(graph: AtenGraph) -> Instead:
    """in_place for a graph that fails at a call, after its report was counted; the failure is counted then."""

    def run(error: Exception) -> Run:
        made = in_place(graph, error)
        statistics.record_fallback(graph.report)
        return made

    return run


def later(graph: AtenGraph) -> Instead:
    """at_a_call for as long as a program lives: it holds a copy of the graph without its nodes' metadata."""
    return at_a_call(AtenGraph(without_notes(graph.gm), graph.kind, graph.options, graph.report))


def as_written(gm: GraphModule) -> Run:
    return make_boxed_func(forward_of(gm))


def backward(gm: GraphModule, options: Options, error: Exception) -> Run:
    """A backward graph in eager, for inputs in any strides. Raises the error where nothing may be run instead."""
    raise_of_handler(error)
    if options.fallback == "error":
        raise error
    statistics.record(statistics.GraphReport("backward", fallback=fallback.tell("backward", error)))
    values = [node.meta.get("val") for node in gm.graph.find_nodes(op="placeholder")]
    orders = [value.stride() if isinstance(value, torch.Tensor) else None for value in values]
    static = [s if s is not None and all(isinstance(n, int) for n in s) else None for s in orders]
    forward = make_boxed_func(forward_of(gm))

    def run(args: list) -> list:
        for k, strides in enumerate(static):
            x = args[k]
            if x is None and isinstance(
                like := values[k], torch.Tensor
            ):  # an undefined tangent (partition/undefined_tangents.py)
                args[k] = torch.zeros(tuple(like.shape), dtype=like.dtype, device=like.device)
            if isinstance(x, torch.Tensor) and is_batched(x):
                args[k] = x.contiguous()
            elif strides is not None and isinstance(x, torch.Tensor) and x.stride() != strides:
                args[k] = torch.empty_strided(x.shape, strides, dtype=x.dtype, device=x.device).copy_(x)
        return forward(args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def from_now_on(kind: str, options: Options, error: Exception) -> None:
    """Counts a graph of Dynamo's that runs in eager from now on for some tensors. Raises the error where nothing may be run instead."""
    raise_of_handler(error)
    if options.fallback == "error":
        raise error
    fallback.record(kind, error)
