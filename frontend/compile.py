"""From one FX graph to a callable: import, the pipeline stage by stage, code; and what happens when a stage fails."""

import logging
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch._guards import TracingContext
from torch.fx import GraphModule
from torch.utils._pytree import tree_leaves

from mlirc.codegen.cache_folder import CacheFolder
from mlirc.codegen.emit import compile_module
from mlirc.codegen.program import Program
from mlirc.dialects import symbols
from mlirc.dialects.bindings import context, ir
from mlirc.frontend import graph_cache, statistics
from mlirc.frontend.cuda_graph_facts import read_facts
from mlirc.frontend.cuda_graphs import recorded
from mlirc.frontend.dump import Dump
from mlirc.frontend.errors import CompilationError, DeviceError, OptionError, UnsupportedGraph
from mlirc.frontend.garbage import collector_paused
from mlirc.frontend.graph_text import constants
from mlirc.frontend.importer import Imported, import_graph
from mlirc.frontend.locations import location_of
from mlirc.frontend.options import CUDA_GRAPH_MODES, Options
from mlirc.frontend.prepared import Prepared
from mlirc.frontend.report import calls_through_python, read_report
from mlirc.frontend.reproduce import import_script, write_reproducer
from mlirc.lowering import pipelines
from mlirc.lowering.pass_errors import describe
from mlirc.lowering.pass_manager import PassError, PipelineRun, functions, run_pipeline, verify_forms
from mlirc.lowering.pipeline_parser import PipelineError
from mlirc.lowering.source_lines import source_line

log = logging.getLogger("mlirc")


def compile_graph(gm: GraphModule, kind: str, options: Options) -> Callable[[list], list]:
    """Compile a functional ATen graph ("inference", "forward" or "backward") to a boxed callable.

    With options.fallback == "eager", a graph that cannot be compiled runs in eager, counted and logged; a failure that is
    a bug of mlirc warns as well and leaves a file that reproduces it.
    """
    report = statistics.GraphReport(kind)
    try:
        with collector_paused():
            compiled = _compile(gm, kind, options, report)
    except (DeviceError, OptionError, PipelineError):
        raise
    except UnsupportedGraph as error:
        if options.fallback == "error":
            raise
        report.fallback = str(error)
        log.info("%s graph runs in eager: %s", kind, error)
    except CompilationError as error:
        if options.fallback == "error":
            raise
        report.fallback = str(error)
        warnings.warn(f"mlirc: this {kind} graph runs in eager, as it could not be compiled: {error}", stacklevel=2)
    else:
        statistics.record(report)
        return compiled
    statistics.record(report)
    return _eager(gm)


def _eager(gm: GraphModule) -> Callable[[list], list]:
    from torch._functorch._aot_autograd.utils import make_boxed_func

    return make_boxed_func(gm.forward)


def parameter_positions(kind: str) -> list[int]:
    """Placeholders of an inference graph that hold parameters and buffers, as Dynamo tells AOTAutograd.

    In training they change with every step: there they are arguments like any other.
    """
    tracing = TracingContext.try_get()
    if kind != "inference" or tracing is None or tracing.fw_metadata is None:
        return []
    return list(tracing.fw_metadata.static_input_indices or ())


def uses_gpu(gm: GraphModule) -> bool:
    """Whether any tensor of the graph is on a GPU. Raises DeviceError for one on a device that mlirc has no code for."""
    found = False
    for node in gm.graph.nodes:
        for value in tree_leaves(node.meta.get("val")):
            if not isinstance(value, torch.Tensor) or value.device.type == "cpu":
                continue
            if value.device.type != "cuda":
                what = "input" if node.op == "placeholder" else "the result of"
                raise DeviceError(f"{what} {_where(node)} is on {value.device}; mlirc compiles for: cpu, cuda")
            found = True
    return found


def _compile(gm: GraphModule, kind: str, options: Options, report: statistics.GraphReport) -> Callable[[list], list]:
    on_gpu = uses_gpu(gm)
    facts = read_facts(gm, kind) if on_gpu and options.mode in CUDA_GRAPH_MODES else None
    stages = pipelines.stages(options.pipeline, on_gpu)
    place, compiled = graph_cache.find(gm, parameter_positions(kind), kind, stages, options, report)
    if compiled is None:
        compiled = _compile_anew(gm, kind, stages, options, report, place)
    run = wrap(compiled, len(gm.graph.find_nodes(op="placeholder")), constants(gm))
    return run if facts is None else recorded(run, facts, kind, report, compiled.program.failures)


def _compile_anew(
    gm: GraphModule,
    kind: str,
    stages: Mapping[str, str],
    options: Options,
    report: statistics.GraphReport,
    place: graph_cache.Place,
) -> graph_cache.Compiled:
    with context():
        with _timed(report, "import"):
            imported = _import(gm, kind)
        module = imported.module
        rest = list(stages.values())
        dump = Dump(options.dump, kind, imported)
        dump.write("import", ",".join(rest))
        record = PipelineRun()
        for stage, text in stages.items():
            with _timed(report, stage):
                _run_passes(module, text, kind, record)
            del rest[0]
            dump.write(stage, ",".join(rest))
            if stage == "plan":
                read_report(module, record, imported.aten, report)
        with _timed(report, "emit"):
            program, prepared = _emit(imported, kind, place.folder)
        report.through_python = calls_through_python(program.calls)
    compiled = graph_cache.Compiled(program, prepared, imported.inputs, imported.outputs)
    graph_cache.keep(place, report, compiled, imported.objects)
    return compiled


@contextmanager
def _timed(report: statistics.GraphReport, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.seconds[stage] = time.perf_counter() - start


def _import(gm: GraphModule, kind: str) -> Imported:
    try:
        imported = import_graph(gm, parameter_positions(kind))
        verify_forms(imported.module)
        return imported
    except UnsupportedGraph as error:
        raise UnsupportedGraph(f"{error}{_at_node(error)}") from error
    except Exception as error:
        text = " ".join(f"{type(error).__name__}: {error}".split())
        why = f"import failed{_at_node(error)}: {text}"
        path = write_reproducer(kind, "import", import_script(gm, why), ".py")
        raise CompilationError(f"{why}; to reproduce: python {path}") from error


def _at_node(error: Exception) -> str:
    node = getattr(error, "fx_node", None)  # the importer sets it
    return f" at {_where(node)}" if node is not None else ""


def _where(node: torch.fx.Node) -> str:
    with context():
        line = source_line(location_of(node))
    name = node.name if node.op == "placeholder" else node.target
    return str(name) if line == "unknown line" else f"{name} ({line})"


def _run_passes(module: ir.Module, text: str, kind: str, record: PipelineRun) -> None:
    try:
        run_pipeline(module, text, record=record)
    except PassError as error:
        reproducer = f"// mlirc opt %s -p '{error.step}'\n// {error}\n{error.module_text}"
        path = write_reproducer(kind, error.step, reproducer, ".mlir")
        raise CompilationError(f"{error}; to reproduce: mlirc opt {path} -p '{error.step}'") from error


def _emit(imported: Imported, kind: str, folder: CacheFolder | None) -> tuple[Program, Prepared | None]:
    module = imported.module
    try:
        # a backward graph is the last to use what the forward one saved: each goes after its last use
        program = compile_module(module, imported.objects, consume=kind == "backward", folder=folder)
        return program, _prepared(imported, folder)
    except Exception as error:
        why = f"emit failed{describe(error)}"
        path = write_reproducer(kind, "emit", f"// {why}\n{module.operation.get_asm(enable_debug_info=True)}", ".mlir")
        raise CompilationError(f"{why}; to reproduce: mlirc opt {path} --emit") from error


def _prepared(imported: Imported, folder: CacheFolder | None) -> Prepared | None:
    """What the pass hoist-parameters took out of the graph."""
    module = imported.module
    for function in functions(module):
        if function.name.value == "prepare":
            positions = symbols.parse_list(function.attributes["mlirc.parameters"].value)
            program = compile_module(module, imported.objects, "prepare", folder=folder)
            return Prepared(program, [int(str(k)) for k in positions])
    return None


def wrap(compiled: graph_cache.Compiled, arguments: int, constants: list[torch.Tensor]) -> Callable[[list], list]:
    """The program behind AOTAutograd's boxed convention: all placeholders in (the list is emptied), FX outputs out."""
    program, prepared, inputs, outputs = compiled.program, compiled.prepared, compiled.inputs, compiled.outputs
    all_inputs = inputs == list(range(arguments)) and not constants
    plain = outputs == [("result", k) for k in range(len(outputs))]

    def run(args: list) -> list:
        given = args
        if not all_inputs:
            given = [args[k] for k in inputs] + constants
            args.clear()
        if prepared is not None:
            given += prepared.of(given)
        results = program(given)
        if plain:
            return results
        return [results[x] if kind == "result" else results[x].item() if kind == "item" else x for kind, x in outputs]

    def kept(args: list) -> list | None:
        """What the graph keeps of its parameters: the same list as long as they have not changed."""
        return None if prepared is None else prepared.of([args[k] for k in inputs] + constants)

    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it; a plain function keeps it when it is wrapped
    run.kept = kept  # type: ignore[attr-defined]  # for cuda_graphs.py
    return run
