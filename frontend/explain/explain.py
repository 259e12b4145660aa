"""`mlirc.explain(fn)(*args)`: what Dynamo and mlirc did with a function, as text (print it) and as data (`.data`)."""

import io
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend import statistics
from mlirc.frontend.entry.backend import mlirc
from mlirc.frontend.explain.untouched import untouched
from mlirc.frontend.report.processor_wait import ProcessorWait
from mlirc.frontend.report.profile import profile_rows
from mlirc.frontend.report.profile_table import profile_table
from mlirc.frontend.table_text import trimmed
from mlirc.frontend.torch_compat.aot_autograd.sequence_numbers import sequence_number
from mlirc.frontend.torch_compat.dynamo.trees import tree_leaves
from mlirc.lowering.module.counted import counted

WARMING, PROFILED = 3, 20  # calls
SCRIPTED = "Dynamo does not look into what torch.jit traced; compile the module that it was traced from"


@dataclass
class Explanation:
    """What became of one call. Prints as text.

    data: a dictionary that json.dumps takes.
      graphs         for each (as statistics.GraphReport has it): kind, tuned, refused, kernels (name, ops, lines, launches, and of all
                     its launches read, written, flops), aten and
                     through_python (name -> calls, why),
                     library (name -> calls), arena and buffers (bytes, or a size expression: the arena, and the sum of the
                     buffers that it holds), seconds by stage,
                     quick and quick_calls (with a budget for compiling: what is still to come, and calls without it),
                     fallback (why it runs in eager, or ""), cuda_graph, fusions, ledger,
                     profile (with profile=True, as of profile_rows; else empty),
                     candidates (with candidates=True, each pair of kernels that a fusion pass looked at; docs/debugging.md),
                     cache and key (the disk cache: hit, miss, or off and why), tracing (the same of AOTAutograd's work)
      graph_breaks   for each: reason, explanation, user_stack (innermost frame last)
      skipped        why Dynamo left whole functions to eager
      seconds        dynamo, aot_autograd, each stage summed over the graphs, and first_call, which is all of it
    """

    data: dict[str, Any]

    def __str__(self) -> str:
        console = Console(file=io.StringIO(), width=110, highlight=False)

        def line(text: str) -> None:
            console.print(text, markup=False)

        data = self.data
        seconds = ", ".join(f"{stage} {_time(value)}" for stage, value in data["seconds"].items())
        line(f"{counted(len(data['graphs']), 'graph')}, {counted(len(data['graph_breaks']), 'graph break')}; {seconds}")
        for item in data["graph_breaks"]:
            why = item["explanation"].split("\n")[0].removeprefix("Explanation: ")
            line(f"  graph break: {item['reason']}{why and ': ' + why}")
            for frame in item["user_stack"][-3:]:
                line(f"    {frame}")
        for reason in data["skipped"]:
            line(f"  a function stays in eager: {reason}")
        for number, graph in enumerate(data["graphs"]):
            line(_graph_title(number, graph))
            if graph["fallback"] or graph["quick"]:
                continue
            if graph["subgraphs"]:
                for name, (count, why) in graph["aten"].items():
                    line(f"{_calls(count, 'ATen call')}{name}: {why}")
                continue
            if graph["kernels"]:
                console.print(_kernel_table(graph))
            for name, count in graph["library"].items():
                line(f"{_calls(count, 'library call')}{name}")
            for name, (count, why) in graph["aten"].items():
                python = graph["through_python"].get(name)
                line(
                    f"{_calls(count, 'ATen call')}{name}: {why}" + (f"; through Python: {python[1]}" if python else "")
                )
            taken = ", ".join(f"{stage} {_time(value)}" for stage, value in graph["seconds"].items())
            line(f"  arena {_bytes(graph['arena'])} for buffers of {_bytes(graph['buffers'])}; {taken}")
            for why, count in Counter(graph["refused"]).items():
                line(f"  {count:4d} left to ATen   {why}")
            for why, count in graph["eager_calls"].items():
                line(f"  {count:4d} eager          {why}")
            for tuned in graph["tuned"]:
                line(_tuned(tuned))
            tracing = graph["tracing"] and f"; AOTAutograd's tracing: {graph['tracing']}"
            line(f"  disk cache: {graph['cache']}{tracing}")
            if graph["cuda_graph"]:
                line(f"  CUDA graph: {graph['cuda_graph']}")
            if graph["candidates"]:
                line(_pairs(graph["candidates"]))
            if graph["profile"]:
                console.print(profile_table(graph["profile"]))
        return trimmed(console.file.getvalue())  # type: ignore[attr-defined]

    __repr__ = __str__


def _time(seconds: float) -> str:
    return f"{1e3 * seconds:.0f} ms"


def _bytes(size: str) -> str:
    return f"{int(size):,} bytes" if size.isdigit() else f"({size}) bytes"


def _calls(count: int, kind: str) -> str:
    """The count and the kind of calls, in a column."""
    return f"  {count:4d} {kind if count == 1 else kind + 's':13}  "


def _graph_title(number: int, graph: dict[str, Any]) -> str:
    if graph["fallback"]:
        return f"graph {number} ({graph['kind']}): runs in eager: {graph['fallback']}"
    kernels, fusions = counted(len(graph["kernels"]), "kernel"), counted(graph["fusions"], "fusion")
    if graph["quick"]:
        calls = counted(graph["quick_calls"], "call")
        return (
            f"graph {number} ({graph['kind']}): quick code, {calls}; its best code is still to come: {graph['quick']}"
        )
    launches = counted(sum(kernel["launches"] for kernel in graph["kernels"]), "launch", "launches")
    if graph["subgraphs"]:
        return f"graph {number} ({graph['kind']}): its sizes depend on data, it is compiled as the {graph['subgraphs']} next"
    subgraph = "" if graph["subgraph"] is None else f", subgraph {graph['subgraph']}"
    return f"graph {number} ({graph['kind']}{subgraph}): {kernels} in {launches}, {fusions}"


def _pairs(candidates: list[dict[str, Any]]) -> str:
    refused = Counter(pair["rule"] for pair in candidates if not pair["taken"])
    why = "".join(f"; {count} refused by {rule}" for rule, count in refused.most_common())
    return f"  {counted(len(candidates), 'pair')} looked at by fusion, {len(candidates) - refused.total()} taken{why}"


def _tuned(tuned: dict[str, Any]) -> str:
    """What measuring chose for a kernel, beside the cost model's choice."""
    times = tuned["microseconds"]
    first = next(iter(times))
    best, count = times[tuned["chosen"]], len(times) - 1
    text = f"  {best:7.1f} us  {tuned['kernel']}: {tuned['chosen']}"
    if tuned["chosen"] != first:
        text += f"; {first} took {times[first]:.1f}"
    return f"{text}; {counted(count, 'alternative')} {tuned['how']}"


def _kernel_table(graph: dict[str, Any]) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 2))
    table.add_column("times")
    table.add_column("kernel", no_wrap=True)
    for title in ("bytes read", "written"):
        table.add_column(title, justify="right", overflow="fold")
    for title in ("ops", "lines"):
        table.add_column(title, overflow="fold")
    for kernel in graph["kernels"]:
        lines = [line.rsplit("/", 1)[-1] for line in kernel["lines"]]
        moved = (f"{int(size):,}" if size.isdigit() else size for size in (kernel["read"], kernel["written"]))
        table.add_row(str(kernel["launches"]), kernel["name"], *moved, " ".join(kernel["ops"]), " ".join(lines))
    return table


def explain(
    fn: Callable, profile: bool = False, candidates: bool = False, **compile_options: Any
) -> Callable[..., Explanation]:
    """Compile `fn` anew with mlirc, call it once, and say what happened: `print(mlirc.explain(model)(x))`.

    fn                a function, module or method, compiled already or not; keywords are torch.compile's (dynamic, options)
    profile           each kernel and call is timed, in PROFILED calls more, and held against its floor
    candidates        each pair of kernels that a fusion pass looked at is recorded
    backward          where the result requires a gradient, its backward graph is compiled too, and runs once
    what it changes   parameters, buffers, gradients, arguments, optimizers and random states are put back (untouched.py)

    As PyTorch's own, it makes Dynamo forget what it compiled: other compiled functions compile again.
    """
    fn = _plain(fn)

    def run(*args: Any, **kwargs: Any) -> Explanation:
        torch.compiler.reset()
        try:
            with untouched(fn, args, kwargs):
                return _Observer(profile, candidates).call(fn, args, kwargs, compile_options)
        finally:
            torch.compiler.reset()

    return run


def _plain(fn: Callable) -> Callable:
    """What torch.compile was given, where `fn` is its result."""
    from mlirc.frontend.torch_compat.dynamo.log import plain

    return plain(fn)


class _Observer:
    """Compiles and calls a function, and notes what Dynamo says and how long everything takes."""

    def __init__(self, profile: bool = False, candidates: bool = False) -> None:
        from mlirc.frontend.torch_compat.dynamo.log import compilation_time_metrics, counters, graph_break_reasons

        self.profile = profile
        self.waited: float | None = None  # as of ProcessorWait, while calls are profiled
        self.wanted = {"profile": profile, "candidates": candidates}
        self.breaks = graph_break_reasons  # cleared by torch._dynamo.reset
        self.frame_seconds = compilation_time_metrics
        self.unimplemented = counters["unimplemented"]
        self.known = Counter(self.unimplemented)
        self.first_frame = len(self._frames())
        self.first_graph = len(statistics.graphs)
        self.backend_seconds = 0.0
        self.own_seconds = 0.0  # of it, in stages of ours

    def call(self, fn: Callable, args: tuple, kwargs: dict[str, Any], options: dict[str, Any]) -> Explanation:
        start = time.perf_counter()
        older = _next_node() if sequence_number() is not None else None
        if any(self.wanted.values()):
            asked = {name: True for name, wanted in self.wanted.items() if wanted}
            options = options | {"options": {**(options.get("options") or {}), **asked}}
        compiled = torch.compile(fn, backend=self.backend, **options)
        result = compiled(*args, **kwargs)
        first_call = time.perf_counter() - start
        if older is not None:
            self.compile_backward(result, older)
        if self.profile:
            self.measure(lambda: compiled(*args, **kwargs), older)
        return Explanation(self.data(first_call, fn))

    def measure(self, call: Callable[[], Any], older: int | None) -> None:
        """The times of some calls, without those of the first."""

        def once() -> None:
            result = call()
            if older is not None:
                self.compile_backward(result, older, again=True)

        for _ in range(WARMING):
            once()
        for timed in (timed for graph in statistics.graphs[self.first_graph :] for timed in graph.profile):
            timed.seconds.clear()
        with ProcessorWait() as wait:
            for _ in range(PROFILED):
                once()
        self.waited = wait.share

    def backend(self, gm: torch.fx.GraphModule, inputs: list, **options: Any) -> Callable:
        start, first = time.perf_counter(), len(statistics.graphs)
        compiled = mlirc(gm, inputs, **options)
        self.backend_seconds += time.perf_counter() - start
        self.own_seconds += sum(sum(graph.seconds.values()) for graph in statistics.graphs[first:])
        return compiled

    def data(self, first_call: float, fn: Callable) -> dict[str, Any]:
        graphs = []
        for report in statistics.graphs[self.first_graph :]:
            graphs.append(asdict(replace(report, profile=profile_rows(report.profile, self.waited))))
        seconds = {
            "dynamo": sum(self._frames()[self.first_frame :]) - self.backend_seconds,
            "aot_autograd": self.backend_seconds - self.own_seconds,
        }
        for graph in graphs:
            for stage, value in graph["seconds"].items():
                seconds[stage] = seconds.get(stage, 0.0) + value
        return {
            "graphs": graphs,
            "graph_breaks": [graph_break(reason) for reason in self.breaks],
            "skipped": skipped(self.unimplemented - self.known, self.breaks)
            + [SCRIPTED] * isinstance(fn, torch.jit.ScriptModule),
            "seconds": seconds | {"first_call": first_call},
        }

    def _frames(self) -> list[float]:
        return self.frame_seconds.get("_compile.compile_inner", [])

    def compile_backward(self, result: Any, older: int, again: bool = False) -> None:
        """Run the backward graphs of the call, if it has not done so itself; `again`, once more. Gradients go nowhere."""
        kinds = Counter(graph.kind for graph in statistics.graphs[self.first_graph :] if graph.counts())
        tensors = [t for t in tree_leaves(result) if isinstance(t, torch.Tensor)]
        number = sequence_number.or_missing()
        sources = [t for t in tensors if t.grad_fn is not None and number(t.grad_fn) >= older]
        if (kinds["forward"] <= kinds["backward"] and not again) or not sources:
            return
        edges = _edges_out(sources, older)
        if edges:
            torch.autograd.grad(sources, edges, [torch.ones_like(t) for t in sources], allow_unused=True)


def skipped(unimplemented: Counter[str], breaks: Sequence[Any]) -> list[str]:
    """Why Dynamo left whole functions to eager, of what it counts: such a function, or where no graph breaks what it does not trace at all."""
    found = [text for text in unimplemented if "frame skipped" in text]
    return [*map(why_skipped, found or ([] if breaks else unimplemented))]


def why_skipped(text: str) -> str:
    """Dynamo's reason, and where it says so the setting with which it would capture the function."""
    cause, _, rest = text.partition("\n\n")
    reason, *lines = [" ".join(line.split()) for line in cause.split("\n")]
    hints = [
        line.removeprefix("Hint: ") for line in lines if line.startswith("Hint: ") and "torch._dynamo.config" in line
    ]
    told = [line.removeprefix("Explanation: ") for line in lines if line.startswith("Explanation: ")]
    place = rest.partition("frame skipped: ")[2].split("\n")[0]
    more = " ".join([*told, *hints])
    return f"{reason}{place and f', {place}'}{more and f': {more}'}"


def graph_break(item: Any) -> dict[str, Any]:
    reason, _, explanation = str(item.reason).partition("\n")
    stack = [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in item.user_stack]
    return {"reason": reason, "explanation": explanation.strip(), "user_stack": stack}


def _next_node() -> int:
    """A number that no autograd node of today has reached: nodes made later have this one or more."""
    with torch.inference_mode(False), torch.enable_grad():
        return sequence_number.or_missing()((torch.ones((), requires_grad=True) * 1).grad_fn) + 1


def _edges_out(tensors: list[torch.Tensor], older: int) -> list[Any]:
    """Where the autograd graph of the call ends: at leaves, and at nodes that were there before it.

    The backward pass stops there: it neither frees nor runs what the user's own graph still needs.
    """
    seen, edges, made = set(), {}, sequence_number.or_missing()
    pending = [t.grad_fn for t in tensors]
    while pending:
        node = pending.pop()
        if node in seen:
            continue
        seen.add(node)
        for parent, number in node.next_functions:  # type: ignore[union-attr]
            if parent is None:
                continue
            if hasattr(parent, "variable") or made(parent) < older:
                edges[parent, number] = torch.autograd.graph.GradientEdge(parent, number)
            else:
                pending.append(parent)
    return list(edges.values())
