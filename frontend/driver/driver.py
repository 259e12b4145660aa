"""The way of a graph on one page.

    capture    TorchDynamo's graph -> functional ATen graphs, by AOTAutograd     GraphModule -> AtenGraph
    import     to the dialect                                                    AtenGraph -> Lowering
    simplify, fuse, plan, lower       passes, on the module in place             Lowering -> Lowering
    emit       host programs and kernels as LLVM IR, which threads compile       Lowering -> Emitted
    link       waits for the machine code, on a thread                           Emitted -> Compiled
    run        what AOTAutograd calls                                            Compiled -> Run

Of a graph that the disk cache has, `Compiled` is loaded; of one whose trace it has, nothing is captured.

What watches the steps (the disk cache, reports, timing, dumps, tuning, verification) is attached in observers.py and
trace_cache.py. Where anything fails, fallback/ says what runs instead. What is done for speed alone stands in performance/.
"""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from torch.fx import GraphModule

from mlirc.codegen.abi.python_tensor import why_no_programs
from mlirc.codegen.process.limits import FOR_EACH_NODE, TO_COMPILE, TO_LOAD, addresses, with_room
from mlirc.frontend.cache.graph_cache import DiskCache
from mlirc.frontend.cache.trace_cache import CachedTrace
from mlirc.frontend.capture.aot_autograd import Capture, parameter_positions, refuse_zeros
from mlirc.frontend.capture.function_rewrites import rewrite_functions
from mlirc.frontend.driver.around_calls import around_calls
from mlirc.frontend.driver.in_budget import Around, in_budget
from mlirc.frontend.driver.left_to_eager import eager_instead
from mlirc.frontend.driver.parts import in_parts
from mlirc.frontend.driver.pending import Pending
from mlirc.frontend.driver.run import load_graph, recording, run_of
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import in_eager
from mlirc.frontend.fallback.fake_inputs import refuse_fake
from mlirc.frontend.fallback.fallback import kind_of
from mlirc.frontend.graph.aten_graph import AtenGraph, Run
from mlirc.frontend.options import Options
from mlirc.frontend.performance import while_capturing
from mlirc.frontend.statistics import GraphReport


def compile_captured(gm: GraphModule, inputs: Sequence[Any], options: Options) -> Callable:
    """The callable of a graph of Dynamo's. Each ATen graph that AOTAutograd makes of it goes `compile_aten`, the backward
    graph maybe at its first call."""
    refuse_fake(inputs)
    refuse_zeros(inputs)
    tell = partial(in_eager.from_now_on, kind_of(inputs), options)
    if instead := eager_instead(gm, tell):
        return instead
    addresses(TO_LOAD)
    rewrite_functions(gm)
    while_capturing.load_while_tracing(inputs)
    trace = CachedTrace(gm, inputs, options, load_graph)
    capture = Capture(options, trace, compile_aten)
    run = trace.load(gm, capture) or capture.traced(gm, inputs)
    while_capturing.read_weights_faster(inputs)
    return around_calls(run, gm, inputs, tell)


def compile_aten(gm: GraphModule, kind: str, options: Options) -> Run:
    """What runs an ATen graph ("inference", "forward" or "backward")."""
    graph = AtenGraph(gm, kind, options, GraphReport(kind), tuple(parameter_positions(kind)))
    return in_parts(graph, partial(in_eager.guarded, partial(with_room, compile_part)))


def compile_part(graph: AtenGraph) -> Run:
    """What runs a graph whose sizes are known when it is called. Raises UnsupportedGraph, and CompilationError for a bug."""
    if why := why_no_programs():
        raise UnsupportedGraph(why)
    while_capturing.load_libraries_while_lowering(graph)
    recorded = recording(graph)
    cache = DiskCache(graph)
    compiled = cache.find()
    if compiled is None and graph.options.compile_seconds is not None:
        return in_budget(graph, cache, compile_anew, recorded)
    return run_of(graph, compiled or compile_anew(graph, cache), recorded)


def compile_anew(graph: AtenGraph, cache: DiskCache, around: Around = nullcontext) -> Pending:
    """Goes all the way. Only here is the compiler loaded. Each step is within what `around` gives for its name."""
    addresses(TO_COMPILE + FOR_EACH_NODE * len(graph.gm.graph.nodes))
    from mlirc.dialects.core.context import context
    from mlirc.frontend.driver import steps
    from mlirc.frontend.driver.observers import watch
    from mlirc.frontend.report.step_errors import emit_error

    def step(name: str, work: Callable, *given: Any) -> Any:
        with around(name), context(), graph.own_sizes():
            return watched.step(name, work, *given)

    watched = watch(graph, cache)
    lowering = step("import", steps.import_aten, graph, cache.folder)
    for stage in graph.stages:  # simplify, fuse, plan, lower
        lowering = step(stage, steps.run_stage, lowering, stage)
    emitted = step("emit", steps.emit, lowering)
    return Pending(partial(watched.step, "link", steps.link, emitted), partial(emit_error, lowering), watched)
