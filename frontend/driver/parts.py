"""Parts of a graph that go their way by themselves: numbers that Python computes, and subgraphs at data-dependent sizes."""

from collections.abc import Callable
from dataclasses import replace

from torch.fx import GraphModule

from mlirc.frontend import statistics
from mlirc.frontend.fallback import in_eager
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.importer.computed_numbers import part_numbers
from mlirc.frontend.importer.sizes import absent_symbols, depends_on_data
from mlirc.frontend.options import WITHOUT_CUDA_GRAPHS

Compile = Callable[[AtenGraph], Run]


def in_parts(graph: AtenGraph, compile_part: Compile) -> Run:
    """The whole graph, of whose parts compile_part makes what runs them. A graph that cannot be parted runs in eager, counted."""
    graph = replace(graph, absent=absent_symbols(graph.gm))
    with graph.own_sizes():
        return _in_parts(graph, compile_part)


def _in_parts(graph: AtenGraph, compile_part: Compile) -> Run:
    try:
        numbers = part_numbers(graph.gm)
    except Exception as error:
        return _not_parted(graph, error)
    if numbers is None:
        return _tensors(graph, compile_part)
    tensors = _tensors(replace(graph, gm=numbers.graph), compile_part)
    return numbers.around(tensors, lambda: in_eager.as_written(graph.gm), graph.report)


def _tensors(graph: AtenGraph, compile_part: Compile) -> Run:
    try:
        return _subgraphs(graph, compile_part) if depends_on_data(graph.gm) else compile_part(graph)
    except Exception as error:
        return _not_parted(graph, error)


def _subgraphs(graph: AtenGraph, compile_part: Compile) -> Run:
    """A graph whose sizes depend on data. Raises what stands in the way: UnsupportedGraph, or a bug."""
    from mlirc.frontend.data_sizes.run import Parted

    def compile_subgraph(subgraph: GraphModule, number: int, parameters: list[int]) -> Run:
        report = statistics.GraphReport(graph.kind, subgraph=number)
        if mode != graph.options.mode:
            report.cuda_graph = "not recorded: sizes depend on data"
        # a subgraph is not the last to use what it gets, as a backward graph is
        options = replace(graph.options, mode=mode)
        with graph.own_sizes():
            return compile_part(
                AtenGraph(subgraph, "inference", options, report, tuple(parameters), absent=graph.absent)
            )

    mode = WITHOUT_CUDA_GRAPHS.get(graph.options.mode, graph.options.mode)
    parted = Parted(graph.gm, graph.report)
    statistics.record(graph.report)
    return parted.compiled(graph.parameters, compile_subgraph)


def _not_parted(graph: AtenGraph, error: Exception) -> Run:
    run = in_eager.in_place(graph, error)
    statistics.record(graph.report)
    return run
