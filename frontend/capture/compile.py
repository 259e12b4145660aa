"""From one FX graph to a callable: out of the disk cache, or compiled anew; in eager where neither can be done.

What the disk cache has is loaded without MLIR: what needs it is imported where it is needed.
"""

import time
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

import torch
from torch.fx import GraphModule

from mlirc.codegen.abi.python_tensor import why_no_programs
from mlirc.codegen.cache.folder import CacheFolder
from mlirc.codegen.runtime.process_limits import FOR_EACH_NODE, TO_COMPILE, addresses, with_room
from mlirc.frontend import statistics
from mlirc.frontend.cache import graph_cache
from mlirc.frontend.cache.graph_text import constants
from mlirc.frontend.capture import fallback
from mlirc.frontend.capture.first_run import Effects, Instead, effects_of, first_run
from mlirc.frontend.capture.pending import Pending
from mlirc.frontend.errors import DeviceError, UnsupportedGraph
from mlirc.frontend.importer.computed_numbers import part_numbers
from mlirc.frontend.importer.result_outputs import reader
from mlirc.frontend.importer.sizes import depends_on_data
from mlirc.frontend.options import CUDA_GRAPH_MODES, WITHOUT_CUDA_GRAPHS, Options
from mlirc.frontend.torch_compat.aot_autograd.tracing import make_boxed_func
from mlirc.frontend.torch_compat.dynamo.lazy_graph import without_notes
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.frontend.torch_compat.older_torch import static_inputs
from mlirc.frontend.torch_compat.storage_use import storage_use
from mlirc.lowering.pipeline import pipelines


def compile_graph(gm: GraphModule, kind: str, options: Options) -> Callable[[list], list]:
    """Compile a functional ATen graph ("inference", "forward" or "backward") to a boxed callable.

    With options.fallback == "eager", a graph that cannot be compiled, or fails when it is first run, runs in eager, counted
    and logged; a failure that is a bug of mlirc warns as well and leaves a file that reproduces it. One whose sizes depend
    on data is compiled in pieces.
    """
    report = statistics.GraphReport(kind)
    try:
        numbers = part_numbers(gm)
    except Exception as error:
        run = _instead(gm, kind, options, report, error)
        statistics.record(report)
        return run
    if numbers is None:
        return _compile_tensors(gm, kind, options, report)
    return numbers.around(_compile_tensors(numbers.graph, kind, options, report), lambda: _eager(gm), report)


def _compile_tensors(
    gm: GraphModule, kind: str, options: Options, report: statistics.GraphReport
) -> Callable[[list], list]:
    try:
        if not depends_on_data(gm):
            return _compile_whole(gm, kind, options, parameter_positions(kind), report)
        return _compile_pieces(gm, kind, options, report)
    except Exception as error:
        run = _instead(gm, kind, options, report, error)
        statistics.record(report)
        return run


def _compile_pieces(
    gm: GraphModule, kind: str, options: Options, report: statistics.GraphReport
) -> Callable[[list], list]:
    """A graph whose sizes depend on data. Raises what stands in the way: UnsupportedGraph, or a bug."""
    from mlirc.frontend.data_sizes import run as piecewise

    def compile_piece(piece: GraphModule, number: int, parameters: list[int]) -> Callable[[list], list]:
        report = statistics.GraphReport(kind, piece=number)
        if mode != options.mode:
            report.cuda_graph = "not recorded: sizes depend on data"
        return _compile_whole(piece, kind, replace(options, mode=mode), parameters, report)

    mode = WITHOUT_CUDA_GRAPHS.get(options.mode, options.mode)
    parted = piecewise.Parted(gm, report)
    statistics.record(report)
    return parted.compiled(parameter_positions(kind), compile_piece)


def _compile_whole(
    gm: GraphModule, kind: str, options: Options, parameters: list[int], report: statistics.GraphReport
) -> Callable[[list], list]:
    """A graph whose sizes are known when it is called; a piece of a larger one, where `report.piece` is not None."""
    try:
        run = with_room(_compile, gm, kind, options, parameters, report)
    except Exception as error:
        run = _instead(gm, kind, options, report, error)
    statistics.record(report)
    run.report = report  # type: ignore[attr-defined]  # for trace_cache.py
    return run


def load_graph(
    folder: CacheFolder,
    key: str,
    kind: str,
    arguments: int,
    freeze: bool,
    effects: Effects,
    instead: Callable[[Exception], Callable[[list], list]],
    operators: Iterable[str],
) -> Callable[[list], list] | None:
    """As compile_graph, of a graph on a CPU that has this key in the disk cache, if it is there.

    arguments  how many placeholders it has
    freeze     the option of that name
    effects    what running it changes
    instead    what runs in its place if its first run fails, or an operator is overridden
    operators  of ATen that it was made of
    """
    start = time.perf_counter()
    report = statistics.GraphReport(kind)
    compiled = with_room(graph_cache.load, graph_cache.Place(folder, key), report, freeze)
    if compiled is None:
        return None
    report.seconds["cache"] = time.perf_counter() - start
    statistics.record(report)

    def failed(error: Exception) -> Callable[[list], list]:
        report.fallback = fallback.tell(kind, error)
        statistics.record_fallback(report)
        return instead(error)

    run = first_run(lambda: (wrap(compiled, arguments, []), effects, failed), failed, operators)
    run.report = report  # type: ignore[attr-defined]
    return run


def _instead(
    gm: GraphModule, kind: str, options: Options, report: statistics.GraphReport, error: Exception
) -> Callable[[list], list]:
    """What runs in place of a graph that cannot be compiled. Raises `error` where nothing may, and wrong options."""
    if options.fallback == "error" or isinstance(error, fallback.PASSES_THROUGH):
        raise error
    report.fallback, report.key = fallback.tell(kind, error), ""
    return _eager(gm)


def _eager(gm: GraphModule) -> Callable[[list], list]:
    # else a first call goes through Module.__call__, which prints what is raised
    compiled: Any = getattr(gm, "real_recompile", None)
    if compiled is not None:
        compiled()
    return make_boxed_func(gm.forward)


def parameter_positions(kind: str) -> list[int]:
    """Placeholders of an inference graph that hold parameters and buffers, as Dynamo tells AOTAutograd.

    In training they change with every step: there they are arguments like any other.
    """
    tracing = TracingContext.try_get()
    if kind != "inference" or tracing is None or tracing.fw_metadata is None:
        return []
    return static_inputs(tracing.fw_metadata)


def uses_gpu(gm: GraphModule) -> bool:
    """Whether any tensor of the graph is on a GPU. Raises DeviceError for one on a device that mlirc has no code for."""
    found = False
    for node in gm.graph.nodes:
        for value in tree_leaves(node.meta.get("val")):
            if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
                continue
            if value.device.type != "cuda":
                from mlirc.frontend.importer.locations import where

                what = "input" if node.op == "placeholder" else "the result of"
                raise DeviceError(f"{what} {where(node)} is on {value.device}; mlirc compiles for: cpu, cuda")
            found = True
    return found


def _compile(
    gm: GraphModule, kind: str, options: Options, parameters: list[int], report: statistics.GraphReport
) -> Callable[[list], list]:
    if why := why_no_programs():
        raise UnsupportedGraph(why)
    kind = kind if report.piece is None else "inference"  # a piece is not the last to use what it gets
    on_gpu = uses_gpu(gm)
    if on_gpu:
        from mlirc.codegen.cuda import prefetch as cuda_prefetch

        cuda_prefetch.libraries(gm)
    records = on_gpu and options.mode in CUDA_GRAPH_MODES and storage_use() is not None
    if records:
        from mlirc.frontend.cuda_graphs import facts as cuda_graph_facts
        from mlirc.frontend.cuda_graphs import recordings as cuda_graphs

        facts = cuda_graph_facts.read_facts(gm, kind)
    stages = pipelines.stages(options.pipeline, on_gpu, options.freeze)
    place, compiled = graph_cache.find(gm, parameters, kind, stages, options, report)
    if compiled is None:
        from mlirc.frontend.capture.compile_anew import compile_anew

        addresses(TO_COMPILE + FOR_EACH_NODE * len(gm.graph.nodes))

        compiled = compile_anew(gm, parameters, kind, stages, options, report, place)
    arguments = len(gm.graph.find_nodes(op="placeholder"))

    def ready(compiled: graph_cache.Compiled) -> Callable[[list], list]:
        report.refused = compiled.program.refused
        run = wrap(compiled, arguments, constants(gm))
        return cuda_graphs.recorded(run, facts, kind, report, compiled.program.failures) if records else run

    made = compiled

    def loaded() -> tuple[Callable[[list], list], Effects, Instead | None]:
        if not isinstance(made, Pending):
            return ready(made), effects_of(gm, kind, made.program), fallback.optional(_later, gm, kind, options, report)
        start = time.perf_counter()
        try:
            found = made.result()
            return (
                ready(found),
                effects_of(gm, kind, found.program),
                fallback.optional(_later, gm, kind, options, report),
            )
        finally:
            report.seconds["wait"] = time.perf_counter() - start

    def instead(error: Exception) -> Callable[[list], list]:
        run = _instead(gm, kind, options, report, error)
        statistics.record_fallback(report)
        return run

    targets = {node.target for node in gm.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}
    return first_run(loaded, instead, [x._name for x in targets])


def _later(gm: GraphModule, kind: str, options: Options, report: statistics.GraphReport) -> Instead:
    """What runs a graph in eager long after it was compiled: it holds the graph without what is noted of its nodes."""
    bare = without_notes(gm)

    def later(error: Exception) -> Callable[[list], list]:
        run = _instead(bare, kind, options, report, error)
        statistics.record_fallback(report)
        return run

    return later


def wrap(compiled: graph_cache.Compiled, arguments: int, constants: list[torch.Tensor]) -> Callable[[list], list]:
    """The program behind AOTAutograd's boxed convention: all placeholders in (the list is emptied), FX outputs out."""
    native, prepared, inputs = compiled.program.native, compiled.prepared, compiled.inputs
    all_inputs = inputs == list(range(arguments)) and not constants
    read = reader(compiled.outputs)
    program = compiled.program if compiled.program.has_plans else None

    def run(args: list) -> list:
        if program is not None:
            program.look_at_settings()
        given = args
        if not all_inputs:
            given = [args[k] for k in inputs] + constants
            args.clear()
        if prepared is not None:
            given += prepared.of(given)
        results = native(given)
        return results if read is None else read(results)

    def kept(args: list) -> list | None:
        """What the graph keeps of its parameters: the same list as long as they have not changed."""
        return None if prepared is None else prepared.of([args[k] for k in inputs] + constants)

    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it; a plain function keeps it when it is wrapped
    run.program = compiled.program  # type: ignore[attr-defined]  # `native` does not keep it alive
    run.kept = kept  # type: ignore[attr-defined]  # for recordings.py
    return run
