"""From one FX graph to a callable: import, the pipeline stage by stage, code; and what happens when a stage fails."""

import itertools
import logging
import os
import tempfile
import time
import warnings
from collections.abc import Callable

import torch
from torch.fx import GraphModule

from mlirc.codegen.emit import compile_module
from mlirc.dialects import symbols
from mlirc.dialects.bindings import context, ir
from mlirc.frontend import statistics
from mlirc.frontend.errors import CompilationError, DeviceError, UnsupportedGraph
from mlirc.frontend.garbage import collector_paused
from mlirc.frontend.importer import Imported, import_graph
from mlirc.frontend.options import Options
from mlirc.frontend.prepared import Prepared
from mlirc.frontend.report import read_report
from mlirc.lowering import pipelines
from mlirc.lowering.pass_manager import PassError, PipelineRun, functions, run_pipeline
from mlirc.lowering.pipeline_parser import PipelineError

log = logging.getLogger("mlirc")
_numbers = itertools.count()


def compile_graph(gm: GraphModule, kind: str, options: Options) -> Callable[[list], list]:
    """Compile a functional ATen graph ("inference", "forward" or "backward") to a boxed callable.

    With options.fallback == "eager", a graph that cannot be compiled runs in eager, counted and logged; a failure that is
    a bug of mlirc warns as well and leaves a file that reproduces it.
    """
    report = statistics.GraphReport(kind)
    try:
        with collector_paused():
            compiled = _compile(gm, kind, options, report)
    except (DeviceError, PipelineError):
        raise
    except UnsupportedGraph as error:
        if options.fallback == "error":
            raise
        report.fallback = str(error)
        log.info("a %s graph runs in eager: %s", kind, error)
    except CompilationError as error:
        if options.fallback == "error":
            raise
        report.fallback = str(error)
        warnings.warn(f"mlirc: a {kind} graph runs in eager, as it could not be compiled: {error}", stacklevel=2)
    else:
        statistics.record(report)
        return compiled
    statistics.record(report)
    return _eager(gm)


def _eager(gm: GraphModule) -> Callable[[list], list]:
    from torch._functorch.aot_autograd import make_boxed_func

    return make_boxed_func(gm.forward)


def parameter_positions(kind: str) -> list[int]:
    """Placeholders of an inference graph that hold parameters and buffers, as Dynamo tells AOTAutograd.

    In training they change with every step: there they are arguments like any other.
    """
    tracing = torch._guards.TracingContext.try_get()
    if kind != "inference" or tracing is None or tracing.fw_metadata is None:
        return []
    return list(tracing.fw_metadata.static_input_indices or ())


def check_devices(gm: GraphModule) -> None:
    for node in gm.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.device.type != "cpu":
            raise DeviceError(f"input {node.name} is on {value.device}; mlirc compiles for: cpu")


def _compile(gm: GraphModule, kind: str, options: Options, report: statistics.GraphReport) -> Callable[[list], list]:
    check_devices(gm)
    with context():
        start = time.perf_counter()
        try:
            imported = import_graph(gm, parameter_positions(kind))
        except UnsupportedGraph:
            raise
        except Exception as error:
            path = _write_reproducer(kind, "import", gm.print_readable(print_output=False), ".py")
            node = getattr(error, "fx_node", "")
            raise CompilationError(
                f"import failed{node}: {type(error).__name__}: {error}; the graph is in {path}"
            ) from error
        report.seconds["import"] = time.perf_counter() - start
        report.aten = imported.aten
        module = imported.module
        dump = _Dump(options.dump, kind)
        dump.write("import", module)
        record = PipelineRun()
        for stage, text in _stages(options.pipeline).items():
            start = time.perf_counter()
            try:
                run_pipeline(module, text, record=record)
            except PassError as error:
                path = _write_reproducer(
                    kind, error.step, f"// RUN: mlirc opt %s -p '{error.step}'\n{error.module_text}", ".mlir"
                )
                raise CompilationError(f"{error}; to reproduce: mlirc opt {path} -p '{error.step}'") from error
            report.seconds[stage] = time.perf_counter() - start
            dump.write(stage, module)
            if stage == "plan":
                read_report(module, record, report)
        start = time.perf_counter()
        try:
            # a backward graph is the last to use what the forward one saved: each goes after its last use
            program = compile_module(module, objects=imported.objects, consume=kind == "backward")
            prepared = _prepared(module)
        except Exception as error:
            path = _write_reproducer(kind, "emit", str(module), ".mlir")
            raise CompilationError(f"emit failed: {type(error).__name__}: {error}; its input is in {path}") from error
        report.seconds["emit"] = time.perf_counter() - start
    return wrap(program, imported, len(gm.graph.find_nodes(op="placeholder")), prepared)


def _prepared(module: ir.Module) -> Prepared | None:
    """What the pass hoist-parameters took out of the graph."""
    for function in functions(module):
        if function.name.value == "prepare":
            positions = symbols.parse_list(function.attributes["mlirc.parameters"].value)
            return Prepared(compile_module(module, entry="prepare"), [int(str(k)) for k in positions])
    return None


def _stages(name: str) -> dict[str, str]:
    if name in pipelines.PIPELINES:
        return pipelines.PIPELINES[name]
    return {"simplify": name, "plan": pipelines.PLAN, "lower": pipelines.LOWER}


def wrap(
    program: Callable[[list], list], imported: Imported, arguments: int, prepared: Prepared | None
) -> Callable[[list], list]:
    """The program behind AOTAutograd's boxed convention: all placeholders in (the list is emptied), FX outputs out."""
    inputs, constants, outputs = imported.inputs, imported.constants, imported.outputs
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

    run._boxed_call = True  # type: ignore[attr-defined]  # AOTAutograd asks for it; a plain function keeps it when it is wrapped
    return run


class _Dump:
    """Writes a graph's IR after each stage into a folder: 003_forward_2_fuse.mlir runs on with `mlirc opt`."""

    def __init__(self, folder: str | None, kind: str):
        self.folder, self.kind, self.count = folder, kind, 0
        self.number = next(_numbers) if folder else 0
        if folder:
            os.makedirs(folder, exist_ok=True)

    def write(self, stage: str, module: ir.Module) -> None:
        if self.folder:
            path = os.path.join(self.folder, f"{self.number:03d}_{self.kind}_{self.count}_{stage}.mlir")
            with open(path, "w") as file:
                file.write(module.operation.get_asm(enable_debug_info=True))
            self.count += 1


def _write_reproducer(kind: str, step: str, text: str, suffix: str) -> str:
    name = "".join(c if c.isalnum() else "_" for c in step)
    with tempfile.NamedTemporaryFile("w", prefix=f"mlirc_{kind}_{name}_", suffix=suffix, delete=False) as file:
        file.write(text)
    return file.name
