"""Trace cache: AOTAutograd's result for a graph of Dynamo's, in the disk cache; a warm start traces neither forward nor backward.

An entry names the compiled graphs by their keys, and holds AOTAutograd's metadata of inputs and outputs (trace_metadata.py) as data,
from which torch makes the callable as from an entry of its own cache. The key is Dynamo's graph, the inputs, and the state of
the process (trace_text.py). A graph that these cannot describe is not cached, and the report says why.

Torch's switches hold: torch._functorch.config.enable_autograd_cache, torch.compiler.config.force_disable_caches.
"""

import dataclasses
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any, Protocol

import torch
from torch.compiler import disable
from torch.fx import GraphModule

from mlirc.codegen.abi.modes import without_modes
from mlirc.codegen.aten.overridden_kernels import overridden_anywhere, overridden_by_name, registrations
from mlirc.codegen.cache import environment
from mlirc.codegen.cache.entry import UNREADABLE, CacheEntry
from mlirc.codegen.cache.environment import ChangedSources
from mlirc.codegen.cache.folder import CacheFolder, folder
from mlirc.codegen.process.signal_handlers import raise_of_handler
from mlirc.frontend.cache import graph_data
from mlirc.frontend.cache.foreign_sources import NoSource, foreign_sources
from mlirc.frontend.cache.trace_text import trace_text
from mlirc.frontend.errors import NoText
from mlirc.frontend.fallback import fallback
from mlirc.frontend.fallback.fallback import NotRun
from mlirc.frontend.fallback.first_run import Effects
from mlirc.frontend.importer.bodies import all_nodes, constants_of
from mlirc.frontend.options import Options
from mlirc.frontend.partition.lazy_tangents import tangents, with_values
from mlirc.frontend.partition.undefined_tangents import by_absence, compile_without, gradients
from mlirc.frontend.report.logs import shown
from mlirc.frontend.statistics import GraphReport
from mlirc.frontend.torch_compat.aot_autograd import trace_metadata
from mlirc.frontend.torch_compat.aot_autograd.higher_order import with_effects
from mlirc.frontend.torch_compat.aot_autograd.trace_result import results
from mlirc.frontend.torch_compat.aot_autograd.tracing import config, make_boxed_func
from mlirc.frontend.torch_compat.dynamo.eager_regions import eager_forward
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of
from mlirc.frontend.torch_compat.dynamo.tracing_context import CompileContext, TracingContext, compile_context, tracing
from mlirc.frontend.torch_compat.fake_tensors import FakeTensor, FakeTensorMode

KIND = "trace"
CHECKS = {torch.ops.aten._linalg_check_errors.default}
"""Calls with an effect, which AOTAutograd orders by tokens, whose order says nothing: they raise, or do nothing."""
Place = tuple[str, int]  # of a compiled graph: its key, and how many placeholders it has


class TraceCompilers(Protocol):
    """What makes graphs that are not there (capture/aot_autograd.py)."""

    def graph(self, kind: str, gm: GraphModule, inputs: Sequence[Any], undefined: tuple[int, ...] = ()) -> Callable: ...

    def backward_in_eager(self, gm: GraphModule, error: Exception) -> Callable: ...


class LoadGraph(Protocol):
    """What runs a graph that has this key in the disk cache, None where it is not there (driver/run.py says more)."""

    def __call__(
        self,
        folder: CacheFolder,
        key: str,
        kind: str,
        arguments: int,
        freeze: bool,
        effects: Effects,
        instead: Callable[[Exception], Callable],
        operators: Iterable[str],
    ) -> Callable | None: ...


class CachedTrace:
    """The trace of one graph of Dynamo's: what is found of it, or what is noted while it is made.

    why    why nothing is looked up and kept, or ""
    data   of an entry: {"training": bool, "forward": [key, placeholders],
           "metadata": ..., "tokens": how many, "detach": [input, ...], "operators": [name, ...],
           "tangents": [argument of a backward graph, ...], "positions": [such a one that may be undefined, ...],
           "backward": [[[undefined gradient, ...], key, placeholders], ...]}
    graph  of a backward graph, as graph_data.py has it: a blob of the entry
    """

    def __init__(self, gm: GraphModule, inputs: Sequence[Any], options: Options, load_graph: LoadGraph):
        self.folder: CacheFolder | None = None
        self.load_graph = load_graph
        self.key, self.why, self.freeze = "", "", options.freeze
        self.data: dict[str, Any] = {"training": False, "tokens": 0, "backward": []}
        self.data |= {name: [] for name in ("detach", "operators", "tangents", "positions")}
        self.report: GraphReport | None = None  # of the inference or forward graph
        self._metadata: Any = None
        self._written: dict[str, Any] = {}
        self._graph = b""
        try:
            self._find_place(gm, inputs, options)
        except (NoText, ChangedSources, NoSource) as reason:
            self.why = str(reason)
        except Exception as error:
            self._fail(error)

    def _find_place(self, gm: GraphModule, inputs: Sequence[Any], options: Options) -> None:
        found = folder()
        if (
            not options.cache
            or options.dump is not None
            or options.profile
            or options.candidates
            or found is None
            or shown()
        ):
            raise NoText("there is no disk cache for this graph")
        made = results()
        if made is None:
            raise NoText(results.why)
        self.made = made
        if not config.enable_autograd_cache or torch.compiler.config.force_disable_caches:
            raise NoText("AOTAutograd's cache is switched off")
        if TracingContext.try_get() is None or any(isinstance(x, (list, tuple, dict)) for x in inputs):
            raise NoText("the graph has another caller than Dynamo")
        if any(isinstance(x, FakeTensor) for x in inputs):
            raise NoText("the graph is a part of Dynamo's, compiled for fake tensors")
        stages = options.stages()
        foreign = foreign_sources(stages)
        environment.environment()
        parameters, self.config = made.configure(gm, inputs)
        if parameters:
            raise NoText("the graph has parameters that are no inputs")
        odd = overridden_anywhere()
        if odd:
            raise NoText(f"somebody has overridden {odd}")
        self.inputs = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
        text = trace_text(gm, inputs, self.config.static_input_indices or ())
        if "cuda" in text:
            raise NoText("the graph has tensors on a GPU")  # never tried with this torch
        self._guards = guards()
        how = dataclasses.asdict(options) | {"cache": True, "compile_seconds": None}
        self.key, self.folder = environment.key(KIND, stages, foreign, how, text, registrations()), found

    # ---- found

    def load(self, gm: GraphModule, compilers: TraceCompilers) -> Callable | None:
        """The callable, if all that its first call needs is there."""
        try:
            return self._load(gm, compilers)
        except Exception as error:
            self._fail(error)
            return None

    def _load(self, gm: GraphModule, compilers: TraceCompilers) -> Callable | None:
        if self.folder is None:
            return None
        start = time.perf_counter()
        entry = self.folder.get(KIND, self.key)
        if entry is None:
            return None
        try:
            data = entry.data
            metadata, training = trace_metadata.from_data(data["metadata"]), data["training"]
            metadata.tokens = dict.fromkeys(range(data["tokens"]))  # what they were in the trace, nobody asks any more
            forward_key, arguments = data["forward"]
            places = {tuple(undefined): (key, n) for undefined, key, n in data["backward"]}
            positions, detach = (list(data["tangents"]), list(data["positions"])), list(data["detach"])
            self._graph = entry.blobs[0] if training else b""
            odd = overridden_by_name(data["operators"])
        except UNREADABLE as error:
            raise_of_handler(error)
            self.folder.forget(KIND, self.key, f"it cannot be read: {type(error).__name__}: {error}")
            return None
        if odd:
            self._give_up(f"somebody has overridden {odd}")
            return None
        effects = Effects(random=True, again=not (metadata.mutated_inp_runtime_indices or metadata.tokens))
        kind = "forward" if training else "inference"
        how = self.freeze, effects, not_run, data["operators"]
        forward = self.load_graph(self.folder, forward_key, kind, arguments, *how)
        if forward is None:
            return None
        self.data = self._written = data
        backward = None
        if training:
            metadata.bw_donated_idxs = []  # nothing of ours overwrites what is saved: it may be used again
            backward = Backward(self, self._graph, compilers, places, *positions)
        made = self._callable(gm, forward, metadata, detach, backward)
        self.report = report = forward.report  # type: ignore[attr-defined]
        report.tracing = "hit"
        report.seconds["cache"] = time.perf_counter() - start
        return made

    def _callable(
        self, gm: GraphModule, forward: Callable, metadata: Any, detach: list[int], backward: "Backward | None"
    ) -> Callable:
        """The callable that torch makes of an entry of AOTAutograd's cache. Where the first run fails, Dynamo's graph runs in eager."""
        run = None if backward is None else disable(backward.run, reason="is compiled")
        compiled = self.made.call(forward, run, backward, metadata, detach, self.config)

        def call(*args: Any) -> Any:
            try:
                return compiled(list(args))
            except NotRun:
                return eager_forward(gm)(*args)

        return call

    # ---- noted

    def note(self, kind: str, gm: GraphModule, run: Callable, undefined: tuple[int, ...] = ()) -> None:
        """A graph that was compiled, while AOTAutograd is at it."""
        try:
            self._note(kind, gm, run, undefined)
        except Exception as error:
            self._fail(error)

    def _note(self, kind: str, gm: GraphModule, run: Callable, undefined: tuple[int, ...]) -> None:
        report: GraphReport | None = getattr(run, "report", None)
        if kind != "backward":
            self.report = report
        if self.folder is None:
            return
        if report is None or not report.key:
            self._give_up("the graph itself is not kept")
            return
        if constants_of(gm):
            self._give_up("the graph has a tensor of its own")
            return
        ordered: list[Any] = [x.args[1] for x in all_nodes(gm) if x.target is with_effects]
        if not CHECKS.issuperset(ordered):
            self._give_up("the graph has effects")
            return
        targets = {x.target for x in all_nodes(gm) if isinstance(x.target, torch._ops.OpOverload)}.union(ordered)
        self.data["operators"] = sorted({*self.data["operators"], *(x._name for x in targets)})
        place = [report.key, len(gm.graph.find_nodes(op="placeholder"))]
        if kind == "backward":
            self.data = self.data | {"backward": [*self.data["backward"], [list(undefined), *place]]}
            self._keep()
        else:
            self.data |= {"training": kind == "forward", "forward": place}
            self._metadata = TracingContext.get().fw_metadata

    def note_backward(self, gm: GraphModule, inputs: Sequence[Any]) -> None:
        """A backward graph and what it is called with, before it is compiled."""
        try:
            self._note_backward(gm, inputs)
        except Exception as error:
            self._fail(error)

    def _note_backward(self, gm: GraphModule, inputs: Sequence[Any]) -> None:
        known = self._metadata
        if self.folder is not None and known is not None:
            try:
                self._graph = graph_data.to_bytes(gm, inputs)
            except NoText as reason:
                self._give_up(f"the backward graph has {reason}")
                return
            positions = gradients(gm)
            self.data["detach"] = self.made.detach(gm, known)
            self.data["tangents"] = tangents(gm)
            self.data["positions"] = positions if len(positions) > 1 else []

    def finish(self) -> None:
        """AOTAutograd has traced the graph."""
        try:
            if self.folder is not None and guards() != self._guards:
                self._give_up("tracing added guards")
            self._keep()
        except Exception as error:
            self._fail(error)
        if self.report is not None:
            self.report.tracing = f"off: {self.why}" if self.why else "miss"

    def _keep(self) -> None:
        """Writes what was noted, once it is all there: after tracing, and after each backward graph."""
        known = self._metadata
        if self.folder is None or (self.data["training"] and not self.data["backward"]):
            return
        if known is not None:
            if known.traced_tangent_metas is None:
                return  # AOTAutograd is not done with it
            try:
                if len(known.input_info) != len(self.inputs) or known.num_graphsafe_rng_states:
                    raise NoText("the graph has inputs that share memory, or states of random generators")
                tensors = known.subclass_inp_meta + known.subclass_fw_graph_out_meta + known.subclass_tangent_meta
                if any(type(x) is not self.made.plain for x in tensors):
                    raise NoText("the graph has tensors of a class of their own")
                self.data["tokens"] = len(known.tokens)
                self.data["metadata"] = trace_metadata.to_data(trace_metadata.without_tokens(known))
            except NoText as reason:
                self._give_up(str(reason))
                return
        if self.data != self._written:
            self._written = dict(self.data)
            self.folder.put(KIND, [self.key], CacheEntry(self.data, [self._graph] if self.data["training"] else []))

    def _fail(self, error: Exception) -> None:
        raise_of_handler(error)
        self._give_up(f"mlirc failed: {fallback.reason(error)}")

    def _give_up(self, why: str) -> None:
        self.folder, self.why = None, why
        if self.report is not None:
            self.report.tracing = f"off: {why}"


class Backward:
    """The backward graphs of a trace that was found: loaded when they are called, or compiled of the graph in its entry."""

    def __init__(
        self,
        trace: CachedTrace,
        graph: bytes,
        compilers: TraceCompilers,
        places: dict[tuple[int, ...], Place],
        tangents: list[int],
        undefined: list[int],
    ):
        self.trace, self.compilers, self.places = trace, compilers, places
        self.context, self.compiling = TracingContext.get(), CompileContext.try_get()
        self.run = with_values(tangents, by_absence(undefined, self.graph), self.in_eager)
        self._graph = graph

    def graph(self, undefined: tuple[int, ...]) -> Callable:
        """What runs where these gradients are None."""
        folder, place = self.trace.folder, self.places.get(undefined)
        if place is not None and folder is not None:
            how = self.trace.freeze, Effects(), self.instead(undefined), self.trace.data["operators"]
            found = fallback.optional(self.trace.load_graph, folder, place[0], "backward", place[1], *how)
            if found is not None:
                return found
        with tracing(self.context), compile_context(self.compiling):
            return compile_without(*self.traced(), undefined, partial(self.compilers.graph, "backward"))

    def instead(self, undefined: tuple[int, ...]) -> Callable[[Exception], Callable]:
        """What runs where the loaded graph's first run fails: the graph in eager."""

        def in_eager(gm: GraphModule, inputs: Sequence[Any], undefined: tuple[int, ...]) -> Callable:
            return make_boxed_func(forward_of(gm))

        return lambda _: compile_without(*self.traced(), undefined, in_eager)

    def in_eager(self, error: Exception) -> Callable:
        return self.compilers.backward_in_eager(self.traced()[0], error)

    def traced(self) -> tuple[GraphModule, Sequence[Any]]:
        """The backward graph as AOTAutograd traced it, and fake tensors like its inputs. Made anew each time: it is rewritten."""
        with without_modes():  # compiled autograd may be tracing
            return graph_data.from_bytes(self._graph, self.context.fake_mode or FakeTensorMode())

    def deserialize(self) -> GraphModule:
        """The FX graph, for compiled autograd, which traces backward graphs itself."""
        return self.traced()[0]


def not_run(error: Exception) -> Callable:
    """A callable that raises NotRun, in place of the FX graph of a loaded entry, which has none."""

    def run(_: list) -> list:
        raise NotRun from error

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def guards() -> list[int]:
    """Counts what Dynamo checks before it runs a compiled graph: what tracing adds, an entry would have to add too."""
    context = TracingContext.get()
    known, sizes = context.guards_context, context.fake_mode and context.fake_mode.shape_env
    counts = [len(known.aotautograd_guards), len(known.dynamo_guards.inner)]
    return counts if sizes is None else [*counts, len(sizes.guards), len(sizes.replacements)]
