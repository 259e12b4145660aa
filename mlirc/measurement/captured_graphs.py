"""Captured graphs as subjects of a measurement: the imported IR, and its inputs where the capture has them."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mlirc.measurement.error import CallResults
from mlirc.measurement.facts import facts_of
from mlirc.measurement.sides import Side
from mlirc.measurement.subjects import CompiledSubject


class CapturesError(ValueError):
    """A folder without graphs, or a graph that does not verify."""


@dataclass
class CapturedGraph:
    """A module in a file, and the inputs of its calls."""

    name: str
    file: Path
    inputs: list[Any]
    on_gpu: bool = False

    def compiled(self, side: Side) -> CompiledSubject:
        """The graph compiled with the passes of a side, called once. The report is read off before kernels are lowered."""
        from mlirc.dialects.core.context import context
        from mlirc.frontend.report.report import read_report
        from mlirc.frontend.statistics import GraphReport
        from mlirc.lowering.module.target_attribute import is_on_gpu
        from mlirc.lowering.pipeline.parser import parse
        from mlirc.lowering.pipeline.pass_manager import PipelineRun, run_pipeline

        report, record = GraphReport("captured"), PipelineRun()
        with context():
            module = parsed(self.file)
            passes = [str(step) for step in parse(side.pipeline_text(is_on_gpu(module)))]
            plan = next(k for k, step in enumerate(passes) if step.startswith("plan-memory")) + 1
            started = time.perf_counter()
            run_pipeline(module, ",".join(passes[:plan]), record=record)
            seconds = time.perf_counter() - started
            read_report(module, record, {}, report)
            started = time.perf_counter()
            run_pipeline(module, ",".join(passes[plan:]), record=record)
            code = machine_code(module, self.name)
            self.on_gpu = code.on_gpu
            report.seconds["all"] = seconds + time.perf_counter() - started
        started = time.perf_counter()
        outcome = code(self.inputs)
        facts = facts_of([report], report.seconds["all"] + time.perf_counter() - started)
        return CompiledSubject(code.step(self.inputs), tensors(outcome.results), facts)

    def profiled(self) -> list[dict[str, Any]]:
        """Rows of its kernels and calls, as of mlirc.explain(..., profile=True). Raises CapturesError."""
        from mlirc.dialects.core.context import context
        from mlirc.execution.modules import graph_of
        from mlirc.frontend.explain.explain import PROFILED, WARMING
        from mlirc.frontend.report.processor_wait import ProcessorWait
        from mlirc.frontend.report.profile import profile_rows
        from mlirc.lowering.module.target_attribute import is_on_gpu
        from mlirc.lowering.pipeline.pass_manager import run_pipeline
        from mlirc.lowering.pipeline.pipelines import pipeline

        with context():
            module = parsed(self.file)
            run_pipeline(module, pipeline("gpu" if is_on_gpu(module) else "cpu"))
            code = machine_code(module, self.name, profile=True)
            ranges = code.programs[graph_of(module).name.value].program.host.ranges
        step = code.step(self.inputs)
        for _ in range(WARMING):
            step()
        for timed in ranges:
            timed.seconds.clear()
        with ProcessorWait() as wait:
            for _ in range(PROFILED):
                step()
        return profile_rows(ranges, wait.share)

    def exact(self) -> CallResults | None:
        """The results in float64 by the interpreter; None where the graph has no such meaning, or an operator takes no float64."""
        from mlirc.dialects.core.context import context
        from mlirc.dialects.interpreter.float64 import in_float64, widened
        from mlirc.execution.modules import interpret

        with context():
            wide = in_float64(parsed(self.file))
        if wide is None:
            return None
        try:
            return tensors(interpret(wide, [widened(x) for x in self.inputs]).results)
        except Exception:  # an operator that does not take float64
            return None

    def finish(self) -> Callable[[], None] | None:
        """What waits for GPUs, after each call."""
        from mlirc.execution.modules import waiter

        return waiter() if self.on_gpu else None


def tensors(values: list[Any]) -> CallResults:
    """The tensors of a call, on the CPU."""
    import torch

    return CallResults([x.cpu() for x in values if isinstance(x, torch.Tensor)], [])


def machine_code(module: Any, name: str, profile: bool = False) -> Any:
    """The compiled module. Raises CapturesError where it is for a GPU, and there is none."""
    from mlirc.execution.modules import MachineCode, NoGPU

    try:
        return MachineCode(module, profile)
    except NoGPU as error:
        raise CapturesError(f"{name}: {error}") from error


def parsed(file: Path) -> Any:
    """The verified module of a file, with a target. Raises CapturesError. Needs an entered context."""
    from mlirc.lowering.files.file import verify_file
    from mlirc.lowering.files.text import TextError, parse_module
    from mlirc.lowering.module.rules import StageError
    from mlirc.lowering.module.target_attribute import ensure_target
    from mlirc.lowering.target import TargetError

    try:
        module = parse_module(file.read_bytes(), str(file))
        ensure_target(module)
        verify_file(module, runs=True)
    except (TextError, StageError, TargetError) as error:
        raise CapturesError(str(error)) from error
    return module


def captured_graphs(folder: str) -> list[CapturedGraph]:
    """The graphs of a capture by number, with the inputs of the first call, else random inputs. Raises CapturesError."""
    from mlirc.dialects.core.context import context
    from mlirc.execution.captures import CaptureError, read_capture
    from mlirc.execution.inputs import InputsError, read_inputs
    from mlirc.execution.modules import NoGraph
    from mlirc.execution.random_inputs import random_inputs

    found = []
    try:
        capture = read_capture(folder)
        if gone := [
            name for name in capture.missing if name.endswith((".json", "_import.mlir", "_inputs.safetensors"))
        ]:
            raise CapturesError(f"{folder}: files are missing: {', '.join(gone)}")
        for graph in capture.graphs:
            if "import" not in graph.stages:  # it ran in eager
                continue
            file, held = graph.stages["import"], graph.inputs
            with context():
                module = parsed(file)
                inputs = random_inputs(module, 0) if held is None else read_inputs(module, str(held))
            found.append(CapturedGraph(graph.name, file, inputs))
    except (CaptureError, InputsError, NoGraph) as error:
        raise CapturesError(str(error)) from error
    if not found:
        raise CapturesError(f"{folder}: no graph that mlirc compiled")
    return found
