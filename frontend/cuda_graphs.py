"""Mode "reduce-overhead": a compiled graph is recorded as a CUDA graph, once for each combination of sizes, and replayed.

The first calls of a combination run as they are; then one is recorded. A replay takes place where the recording did:

inputs    parameters, buffers, and what the graph writes to are read in place; every other input is copied to memory of the
          recording's first. Of a backward graph, what always lies at the same address is read in place too: what the
          forward graph's recording saved. An input in place that turns up elsewhere is recorded anew, a few times
results   are copied out, so that nothing of a recording is ever seen to change. What a forward graph saves for its
          backward graph is not copied: while anybody still holds it, the forward graph runs without its recording
memory    recordings of inference graphs of a GPU share one pool, since between replays nothing in it is in use; forward and
          backward graphs have a pool each

A graph that cannot be recorded says why (`mlirc.explain`, and the log at level INFO) and runs as in mode "default".
"""

import logging
import threading
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._prims_common import is_non_overlapping_and_dense_or_false

from mlirc.frontend.cuda_graph_facts import Facts
from mlirc.frontend.statistics import GraphReport

log = logging.getLogger("mlirc")

WARM_UP = 2  # calls of a combination of sizes before it is recorded: libraries choose and load what they use
MOST_SIZES = 16  # combinations that are recorded; more run without
MOST_ATTEMPTS = 3  # recordings of one combination, because inputs thought to stay moved

Call = Callable[[list], list]
_pools: dict[int, "Pool"] = {}
_lock = threading.RLock()  # recordings, and replays in a pool that several graphs use


@dataclass
class Pool:
    """Memory of recordings. A replay in another stream than the last one's waits for that.

    holder   an empty graph: PyTorch gives a pool up with the last graph in it
    """

    handle: Any = field(default_factory=torch.cuda.graph_pool_handle)
    holder: torch.cuda.CUDAGraph = field(default_factory=torch.cuda.CUDAGraph)
    stream: int | None = None
    done: torch.cuda.Event = field(default_factory=torch.cuda.Event)

    def __post_init__(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            with torch.cuda.graph(self.holder, pool=self.handle, capture_error_mode="thread_local"):
                pass


@dataclass
class Recording:
    """graph     the CUDA graph
    addresses  of the inputs that are read in place, by position
    copies     the memory of every other tensor input, by position (memory_of)
    results    what the recorded call gave; views: result -> elements from the start of the input that it is a view of
    kept       what the graph kept of its parameters then (prepared.py)
    saved      storages of results that are not copied out, and how often each is held while nobody else holds it
    """

    graph: torch.cuda.CUDAGraph
    pool: Pool
    addresses: dict[int, int]
    copies: dict[int, torch.Tensor]
    results: list[Any]
    views: dict[int, int]
    kept: list | None
    saved: list[tuple[Any, int]]
    replays: int = 0


@dataclass
class Sizes:
    """One combination of sizes: calls so far, where inputs were at the last one, those that moved, its recording."""

    calls: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
    attempts: int = 0
    recording: Recording | None = None


class Recorded:
    """`run` (all placeholders in a list that is emptied -> the FX graph's results; see `wrap`), recorded and replayed."""

    def __init__(self, run: Any, facts: Facts, kind: str, report: GraphReport, failures: torch.Tensor):
        """`failures`: words on the host that are not 0 once an index was found bad: the next call tells (cuda_launch.py)."""
        self.run, self.facts, self.kind, self.report = run, facts, kind, report
        self.failures = failures.numpy()
        self.sizes: dict[tuple, Sizes] = {}
        self.aliases = dict(facts.aliases)

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if torch.cuda.is_current_stream_capturing() or not _lock.acquire(blocking=False):
            return self.run(inputs)
        try:
            return self.replayed(inputs)
        finally:
            _lock.release()

    def replayed(self, inputs: list[Any]) -> list[Any]:
        key = self.key(inputs) if self.facts.symbolic else ()
        sizes = self.sizes.get(key)
        if sizes is None:
            if len(self.sizes) == MOST_SIZES:
                self.say(f"more than {MOST_SIZES} combinations of sizes: further ones run without")
                return self.run(inputs)
            sizes = self.sizes[key] = Sizes()
        if sizes.recording is None:
            sizes.calls += 1
            self.look(inputs, sizes)
            if sizes.calls <= WARM_UP or sizes.attempts >= MOST_ATTEMPTS:
                return self.run(inputs)
            sizes.attempts += 1
            sizes.recording = self.record(inputs, sizes)
            if sizes.recording is None:
                sizes.attempts = MOST_ATTEMPTS
                return self.run(inputs)
        recording = sizes.recording
        moved = [k for k, address in recording.addresses.items() if inputs[k].data_ptr() != address]
        if moved or self.run.kept(inputs) is not recording.kept:
            sizes.moving.update(set(moved) - self.facts.fixed)
            sizes.recording, sizes.calls = None, 0
            if recording.replays:
                sizes.attempts = 0
            return self.run(inputs)
        if self.failures.any() or any(torch._C._storage_Use_Count(s) > held for s, held in recording.saved):
            return self.run(inputs)
        return self.replay(recording, inputs)

    def key(self, inputs: list[Any]) -> tuple:
        numbers = [inputs[k] for k in self.facts.numbers]
        return (*numbers, *((x.shape, x.stride()) for x in (inputs[k] for k in self.facts.tensors)))

    def look(self, inputs: list[Any], sizes: Sizes) -> None:
        """Notes which inputs of a backward graph moved since the last call."""
        if self.kind != "backward":
            return
        seen = {k: inputs[k].data_ptr() for k in self.facts.tensors}
        if sizes.seen:
            sizes.moving.update(k for k, address in seen.items() if sizes.seen[k] != address)
        sizes.seen = seen

    # ---- recording

    def record(self, inputs: list[Any], sizes: Sizes) -> Recording | None:
        """Records a call with these inputs, which it leaves as they were; None where that fails."""
        facts = self.facts
        in_place = facts.fixed if self.kind != "backward" else set(facts.tensors) - (sizes.moving - facts.fixed)
        copies = {k: memory_of(inputs[k]).clone() for k in facts.tensors if k not in in_place}
        addresses = {k: inputs[k].data_ptr() for k in facts.tensors if k in in_place}
        given = list(inputs)
        for k, memory in copies.items():
            x = inputs[k]
            given[k] = memory if memory.shape == x.shape else memory.as_strided(x.shape, x.stride(), 0)
        kept = self.run.kept(inputs)
        starts = {k: given[k].data_ptr() for k in facts.tensors}
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[facts.device]
        state = generator.clone_state()
        with torch.cuda.device(facts.device):
            pool = self.pool()
            try:
                with torch.cuda.graph(graph, pool=pool.handle, capture_error_mode="thread_local"):
                    results = self.run(given)
            except RuntimeError as error:
                self.say(str(error).strip().partition("\n")[0])
                generator.graphsafe_set_state(state)  # the one in use still waits for the recording's end
                torch.cuda.synchronize()
                return None
        self.report.cuda_graph = "recorded"
        views = {k: (results[k].data_ptr() - starts[i]) // results[k].element_size() for k, i in self.aliases.items()}
        saved = []
        for k, x in enumerate(results):
            if isinstance(x, torch.Tensor) and k not in facts.kept and k not in self.aliases:
                saved.append(x.untyped_storage()._cdata)
        held = [(s, torch._C._storage_Use_Count(s)) for s in saved]
        return Recording(graph, pool, addresses, copies, results, views, kept, held)

    def pool(self) -> Pool:
        if self.kind != "inference":
            return Pool()
        if self.facts.device not in _pools:
            _pools[self.facts.device] = Pool()
        return _pools[self.facts.device]

    # ---- replaying

    def replay(self, recording: Recording, inputs: list[Any]) -> list[Any]:
        with torch.cuda.device(self.facts.device):
            self.after_the_last(recording.pool)
            if recording.copies:
                places = list(recording.copies.values())
                torch.ops.aten._foreach_copy_.default(places, [memory_of(inputs[k]) for k in recording.copies])
            recording.graph.replay()
            recording.replays += 1
            results = [self.result(recording, k, inputs) for k in range(len(recording.results))]
            recording.pool.done.record()
        inputs.clear()
        return results

    def after_the_last(self, pool: Pool) -> None:
        stream = torch.cuda.current_stream()
        if pool.stream not in (None, stream.cuda_stream):
            stream.wait_event(pool.done)
        pool.stream = stream.cuda_stream

    def result(self, recording: Recording, k: int, inputs: list[Any]) -> Any:
        x = recording.results[k]
        if not isinstance(x, torch.Tensor):
            return x
        if k in self.aliases:
            source, offset = inputs[self.aliases[k]], recording.views[k]
            if offset == 0 and (x.dtype, x.shape, x.stride()) == (source.dtype, source.shape, source.stride()):
                return source
            return source.view(x.dtype).as_strided(x.shape, x.stride(), source.storage_offset() + offset)
        return x.clone() if k in self.facts.kept else x.view_as(x)

    def say(self, why: str) -> None:
        if not self.report.cuda_graph.startswith("not recorded: "):
            self.report.cuda_graph = f"not recorded: {why}"
            log.info("%s graph runs without a CUDA graph: %s", self.kind, why)


def memory_of(x: torch.Tensor) -> torch.Tensor:
    """`x`, or where its strides leave gaps or repeat elements, all of its memory as a vector."""
    if x.is_contiguous() or is_non_overlapping_and_dense_or_false(x):
        return x
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return x.as_strided((extent,), (1,))


def recorded(run: Call, facts: Facts, kind: str, report: GraphReport, failures: torch.Tensor) -> Call:
    """`run`, to be recorded if it can be."""
    if facts.why:
        report.cuda_graph = f"not recorded: {facts.why}"
        log.info("%s graph runs without a CUDA graph: %s", kind, facts.why)
        return run
    report.cuda_graph = f"to be recorded, after {WARM_UP} calls"
    replayer = Recorded(run, facts, kind, report, failures)

    def call(inputs: list[Any]) -> list[Any]:
        return replayer(inputs)

    call._boxed_call = True  # type: ignore[attr-defined]  # a plain function keeps it when Dynamo wraps it
    return call
