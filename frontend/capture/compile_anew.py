"""An FX graph that the disk cache does not have: import, the pipeline stage by stage, code; reproducers when a stage fails."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict

from torch.fx import GraphModule

from mlirc.codegen.llvm import background
from mlirc.codegen.llvm.emit import EarlyKernels, Unlinked, begin_module
from mlirc.codegen.runtime import compiler_pages
from mlirc.dialects.core import symbols
from mlirc.dialects.core.bindings import context, ir
from mlirc.frontend import statistics
from mlirc.frontend.cache import frozen_parameters, graph_cache
from mlirc.frontend.cache.frozen_parameters import Prepared
from mlirc.frontend.capture.pending import Pending
from mlirc.frontend.capture.result_views import with_views
from mlirc.frontend.cuda_graphs.facts import returned_to_user
from mlirc.frontend.errors import CompilationError, UnsupportedGraph
from mlirc.frontend.importer.importer import Imported, import_graph
from mlirc.frontend.importer.locations import where
from mlirc.frontend.options import TUNED_MODES, Options
from mlirc.frontend.report.dump import Dump, describe
from mlirc.frontend.report.report import calls_through_python, read_report
from mlirc.frontend.report.reproduce import import_script, write_reproducer
from mlirc.lowering.cpu.loops.listener import listening
from mlirc.lowering.gpu.matmul.choice import choosing
from mlirc.lowering.module import errors as pass_errors
from mlirc.lowering.pipeline.pass_manager import PassError, PipelineRun, functions, run_pipeline, verify_forms

EACH_STAGE = os.environ.get("MLIRC_VERIFY") == "stages"
"""Whether the form that each stage leaves is verified in full, as in tests. Otherwise the last one is, and where it is wrong, or
a pass fails, the ones before."""
PROOFS = "tried" if EACH_STAGE else "none"


def compile_anew(
    gm: GraphModule,
    parameters: Sequence[int],
    kind: str,
    stages: Mapping[str, str],
    options: Options,
    report: statistics.GraphReport,
    place: graph_cache.Place,
) -> Pending:
    """Compiles the graph through the stages and fills in the report. Other threads make the code and keep it at its place in
    the disk cache.

    parameters   placeholders that hold parameters and buffers
    stages       passes, by the name of the stage

    Raises UnsupportedGraph, and CompilationError for a bug of mlirc's, having written a file that reproduces it.
    """
    with context():
        with _timed(report, "import"):
            imported = _import(gm, parameters, kind)
        module = imported.module
        if kind == "backward":  # it is the last to use what is saved for it
            next(functions(module)).attributes["mlirc.consumes"] = ir.UnitAttr.get()
        rest = list(stages.values())
        dump = Dump(options.dump, kind, imported)
        dump.write("import", ",".join(rest))
        record = PipelineRun()
        early = EarlyKernels(place.folder)
        with _tuning(module, gm, options, report, place):
            for stage, text in stages.items():
                hears = text.endswith("lower-kernels") and options.dump is None  # a dump has the kernels in it
                listens = listening(early) if hears else nullcontext()
                with _timed(report, stage), listens:
                    _run_passes(module, text, kind, record, verify=EACH_STAGE or len(rest) == 1)
                del rest[0]
                dump.write(stage, ",".join(rest))
                if stage == "plan":
                    read_report(module, record, imported.aten, report)
        with _timed(report, "emit"):
            unlinked = _begin_emit(imported, kind, early)
        report.through_python = calls_through_python(unlinked["graph"].host.calls)
    objects = [describe(x) for x in imported.objects]
    inputs, positions = imported.inputs, _positions(module)
    outputs = with_views(gm, imported.outputs, returned_to_user(kind, len(imported.outputs)))
    states = background.start(frozen_parameters.make_ready) if "prepare" in unlinked else None

    def finish() -> graph_cache.Compiled:  # keeps nothing of MLIR's, which this thread's lock is for
        programs = {name: code.link() for name, code in unlinked.items()}
        kept = Prepared(programs["prepare"], positions, options.freeze) if "prepare" in programs else None
        compiled = graph_cache.Compiled(programs["graph"], kept, inputs, outputs)
        graph_cache.keep(place, report, compiled, objects)
        if states is not None:
            states.result()
        compiler_pages.give_back()
        return compiled

    return Pending(finish, lambda error: _emit_failure(error, module, kind, early))


@contextmanager
def _tuning(
    module: ir.Module, gm: GraphModule, options: Options, report: statistics.GraphReport, place: graph_cache.Place
) -> Iterator[None]:
    """In a mode that measures: what passes choose between on GPUs is measured within, and the kernels that come out, at its end."""
    if options.mode not in TUNED_MODES:
        yield
        return
    from mlirc.codegen.tuning import autotune

    if not autotune.on_gpu(module):
        yield
        return
    from mlirc.codegen.tuning.device import TuningDevice
    from mlirc.codegen.tuning.matmul_tuning import ProductTuning
    from mlirc.frontend.importer.sizes import size_hints

    products = ProductTuning(options.tune_seconds, place.folder)
    with choosing(products):
        yield
    with _timed(report, "tune"):
        left = max(options.tune_seconds - products.spent, 0)
        found = autotune.tune(module, TuningDevice, size_hints(gm), left, place.folder)
    report.seconds["tune"] += products.spent
    report.tuned = [asdict(x) for x in [*products.found, *found]]


@contextmanager
def _timed(report: statistics.GraphReport, stage: str) -> Iterator[None]:
    start = time.perf_counter()
    yield
    report.seconds[stage] = time.perf_counter() - start


def _import(gm: GraphModule, parameters: Sequence[int], kind: str) -> Imported:
    try:
        imported = import_graph(gm, parameters)
        verify_forms(imported.module, proofs=PROOFS)
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
    return f" at {where(node)}" if node is not None else ""


def _run_passes(module: ir.Module, text: str, kind: str, record: PipelineRun, verify: bool) -> None:
    try:
        run_pipeline(module, text, record=record, verify=verify, proofs=PROOFS)
    except PassError as error:
        reproducer = f"// mlirc opt %s -p '{error.step}'\n// {error}\n{error.module_text}"
        path = write_reproducer(kind, error.step, reproducer, ".mlir")
        raise CompilationError(f"{error}; to reproduce: mlirc opt {path} -p '{error.step}'") from error


def _begin_emit(imported: Imported, kind: str, early: EarlyKernels) -> dict[str, Unlinked]:
    """Of @graph, and of the @prepare that the pass hoist-parameters took out of it."""
    module = imported.module
    try:
        # a backward graph is the last to use what the forward one saved: each goes after its last use
        consume = {"graph": kind == "backward", "prepare": False}
        names = [function.name.value for function in functions(module)]
        return {
            name: begin_module(module, imported.objects, name, consume[name], early.folder, early)
            for name in consume
            if name == "graph" or name in names
        }
    except Exception as error:
        raise _emit_failure(error, module, kind, early) from error


def _emit_failure(error: Exception, module: ir.Module, kind: str, early: EarlyKernels) -> CompilationError:
    with context():
        why = f"emit failed{pass_errors.describe(error)}"
        text = early.with_kernels(module.operation.get_asm(enable_debug_info=True))
        path = write_reproducer(kind, "emit", f"// {why}\n{text}", ".mlir")
    return CompilationError(f"{why}; to reproduce: mlirc opt {path} --emit asm")


def _positions(module: ir.Module) -> list[int]:
    """Which arguments of @graph its @prepare takes."""
    for function in functions(module):
        if function.name.value == "prepare":
            return [int(str(k)) for k in symbols.parse_list(function.attributes["mlirc.parameters"].value)]
    return []
