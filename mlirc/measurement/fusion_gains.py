"""What each fusion gains: a graph's call with all of them, beside the same with one pair forbidden (lowering/pipeline/fusion_plan.py).

A forbidden pair stays apart in every pass. A number of --rewrites would refuse it in one pass, and the next one might take it.
"""

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mlirc.lowering.pipeline.fusion_log import Candidate, FusionLog
from mlirc.lowering.pipeline.fusion_plan import FusionPlan
from mlirc.measurement.alternate import COMPILATIONS, Samples
from mlirc.measurement.comparing import CLOCKS, alternate_compilations, seconds_by, verdict
from mlirc.measurement.intervals import ratio_of_compilations

REST = {  # by form, on a CPU and on a GPU
    "kernel": ("plan-memory,lower-kernels", "plan-memory,split-unaligned,lower-triton,lower-kernels"),
    "memory": ("lower-kernels", "split-unaligned,lower-triton,lower-kernels"),
    "lowered": ("", ""),
}


class GainsError(ValueError):
    """A graph that cannot be measured: says why."""


@dataclass(frozen=True)
class MeasuredGraph:
    """A module in a file's text, what runs on it before fusion is over, and what it is called with."""

    content: bytes
    file: str
    passes: str
    inputs: Sequence[Any]
    plan: FusionPlan | None = None

    def compiled(self, plan: FusionPlan | None) -> "FusedGraph":
        """The graph, fused as a plan says, and called once. Raises what compiling or the call raises."""
        from mlirc.dialects.core.context import context
        from mlirc.execution.limited_run import limited_run
        from mlirc.execution.modules import MachineCode
        from mlirc.lowering.files.text import parse_module
        from mlirc.lowering.module.target_attribute import ensure_target, is_on_gpu
        from mlirc.lowering.pipeline.pass_manager import run_pipeline
        from mlirc.lowering.pipeline.standard_steps import form_of_module

        with context():
            module = parse_module(self.content, self.file)
            ensure_target(module)
            limited_run(module, self.passes, None, fusion=None if plan is None else FusionLog(plan))
            form = form_of_module(module) or "kernel"
            if form not in REST:
                raise GainsError(
                    f"{self.file}: --measure executes kernels; after these passes it is in the {form} form"
                )
            moved = work_in(module)
            run_pipeline(module, REST[form][is_on_gpu(module)])
            code = MachineCode(module)
            code(self.inputs)
            return FusedGraph(finished(code.step(self.inputs)) if code.on_gpu else code.step(self.inputs), *moved)


def finished(step: Callable[[], Any]) -> Callable[[], Any]:
    """A call that ends when GPUs have done their part."""
    from mlirc.execution.modules import waiter

    wait = waiter()

    def call() -> None:
        step()
        wait()

    return call


@dataclass(frozen=True)
class FusedGraph:
    """A measured graph, fused and compiled.

    step      a call of it
    kernels   of all its functions: kernels and calls
    bytes     that these read and write, at typical sizes
    ops       arithmetic ops, at typical sizes
    """

    step: Callable[[], Any]
    kernels: int
    bytes: int
    ops: int


def work_in(module: Any) -> tuple[int, int, int]:
    """Kernels, bytes and arithmetic ops. Needs an entered context."""
    from mlirc.lowering.analysis.work import work_of
    from mlirc.lowering.kernel.typical_sizes import typical
    from mlirc.lowering.pipeline.pass_manager import functions

    works = [work_of(function.regions[0].blocks[0].operations) for function in functions(module)]
    moved = sum(typical(w.read) + typical(w.written) for w in works)
    return sum(w.kernels for w in works), moved, sum(typical(w.flops) for w in works)


def measure_gains(graph: MeasuredGraph, candidates: Sequence[Candidate], rounds: int, most: int) -> list[Candidate]:
    """Fills in `measured` of the pairs that were taken, of at most so many with the largest estimates, and returns those.

    Raises GainsError where the graph itself cannot be executed; a pair without which it cannot be compiled says so.
    """
    taken = [c for c in candidates if c.taken]
    chosen = sorted(taken, key=lambda c: -(c.estimated_gain or 0.0))[:most]
    if not chosen:
        return []
    try:
        fused = [graph.compiled(graph.plan) for _ in range(COMPILATIONS)]
    except Exception as error:  # of any kind: what a pass, the compiler or the call raises
        raise GainsError(f"{graph.file}: {' '.join(str(error).split())}") from error
    for candidate in chosen:
        try:
            plan = without(graph.plan, candidate)
            apart = [graph.compiled(plan) for _ in range(COMPILATIONS)]
        except Exception as error:  # of any kind, as above
            candidate.measured = {"failed": " ".join(f"{type(error).__name__}: {error}".split())}
            continue
        steps = {"with": [one.step for one in fused], "without": [one.step for one in apart]}
        samples = alternate_compilations(steps, rounds)
        saved = {name: getattr(apart[0], name) - getattr(fused[0], name) for name in ("kernels", "bytes", "ops")}
        candidate.measured = {**gain_of(samples), "saved": saved}
    return chosen


def without(plan: FusionPlan | None, candidate: Candidate) -> FusionPlan:
    """The plan with one pair forbidden, whatever it said of it."""
    first, second = list(candidate.first.members), list(candidate.second.members)
    forbid = {"decision": "forbid", "function": candidate.function, "first": first, "second": second}
    data = {"format": 1, "graphs": [{"pairs": []}]} if plan is None else json.loads(plan.text)
    for graph in data["graphs"]:
        graph["pairs"] = [p for p in graph["pairs"] if (p["first"], p["second"]) != (first, second)] + [forbid]
    return FusionPlan("the plan without one pair", json.dumps(data))


def gain_of(samples: dict[str, list[Samples]]) -> dict[str, Any]:
    """How many times faster the call is with the fusion, by clock, from the samples of several compilations with and without it.

    Gains are nanoseconds: medians of the differences within a round, which a machine that slows down from round to round does not change.
    """
    result: dict[str, Any] = {"faster": {}, "margin": {}, "verdict": {}}
    for clock in CLOCKS:
        apart, fused = (seconds_by(samples[name], clock) for name in ("without", "with"))
        faster = ratio_of_compilations(apart, fused)
        result["faster"][clock], result["margin"][clock] = asdict(faster), faster.margin
        result["verdict"][clock] = verdict(faster, len(fused[0]))
        result["gain" if clock == "wall" else "cpu_gain"] = difference(by_round(apart), by_round(fused))
    return result | {
        f"seconds_{name}": statistics.median(by_round(seconds_by(samples[name], "wall"))) for name in samples
    }


def by_round(compilations: Sequence[Sequence[float]]) -> list[float]:
    """The median of the compilations in each round, in seconds."""
    return [statistics.median(samples) for samples in zip(*compilations, strict=True)]


def difference(slower: Sequence[float], faster: Sequence[float]) -> float:
    return 1e9 * statistics.median(s - f for s, f in zip(slower, faster, strict=True))
