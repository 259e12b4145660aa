"""Mode "reduce-overhead": a compiled graph is recorded as a CUDA graph, once for each combination of sizes, and replayed.

The first calls of a combination run as they are; then one is recorded. A replay takes place where the recording did:

inputs    parameters, buffers, and what the graph writes to are read in place; every other input is copied to memory of the
          recording's first. Of a backward graph, what always lies at the same address is read in place too: what the
          forward graph's recording saved. An input in place that turns up elsewhere is recorded anew, a few times
results   of an inference graph are returned without a copy. While a caller holds one, its recording is not replayed; another
          recording, with results elsewhere, is. The last recording of a combination copies its results, for callers who hold
          them all. A forward graph copies its results, but not what it saves for its backward graph: while somebody holds
          that, the graph runs without its recording. So no tensor of a recording changes while it is held. A caller that reads
          a result in another stream has to hold it until that stream is done: Tensor.record_stream is not visible here
memory    recordings of inference graphs of a GPU share one pool, because nothing in it is in use between replays. Recordings of
          forward and backward graphs, and those whose results are not copied, have a pool each: in a shared pool another
          recording's replay would overwrite a result that lies in its intermediate results. Where intermediate results take
          more than LEAST bytes and more than the results, the results are copied

A graph that cannot be recorded says why (`mlirc.explain`, and the log at level INFO) and runs as in mode "default".
"""

import logging
import warnings
from collections.abc import Callable
from dataclasses import field
from typing import Any

import torch

from mlirc.codegen.abi.library_settings import library_settings
from mlirc.codegen.runtime.tensor_states import State, States
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.cuda_graphs.facts import Facts
from mlirc.frontend.statistics import GraphReport
from mlirc.frontend.torch_compat.fake_tensors import storage_id
from mlirc.frontend.torch_compat.raw_stream import current_stream_handle
from mlirc.frontend.torch_compat.storage_use import storage_use

log = logging.getLogger("mlirc")

WARM_UP = 2  # calls of a combination of sizes before it is recorded: libraries choose and load what they use
MOST_SIZES = 16  # combinations that are recorded; more run without
MOST_ATTEMPTS = 3  # recordings of one combination, because inputs thought to stay moved
# recordings of one combination whose results are not copied: a caller mostly holds one until the next is there
MOST_UNCOPIED = 2
LEAST = 64 << 20  # bytes that such a recording may take beside its results, and does not share with others

CHUNK = 1 << 16
"""Elements that one multiprocessor goes through where many tensors are copied at once: 300 KB take 14 us so, alone 3."""

Call = Callable[[list], list]
_pools: dict[int, "RecordingPool"] = {}
_streams: dict[int, torch.cuda.Stream] = {}  # that recordings are made in; PyTorch's own is of the GPU that was first
_lock = fork_lock()  # recordings, and replays in a pool that several graphs use


@dataclass
class RecordingPool:
    """Memory of recordings. A replay in another stream than the last one's waits for that, and who reads its results there.

    holder   an empty graph: PyTorch gives a pool up with the last graph in it
    stream   of the last replay; last: its handle
    """

    handle: Any = field(default_factory=torch.cuda.graph_pool_handle)
    holder: torch.cuda.CUDAGraph = field(default_factory=torch.cuda.CUDAGraph)
    stream: torch.cuda.Stream | None = None
    last: int = -1

    def __post_init__(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The CUDA Graph is empty")
            with capture(self.holder, self.handle):
                pass


@dataclass
class Recording:
    """A recorded call of a compiled graph, and when and how it may be replayed.

    graph     the CUDA graph
    addresses  of the inputs that are read in place, by position
    places     the same as `in_place` tells it
    copies     the memory of every other tensor input, by position (memory_of)
    results    what the recorded call gave; views: result -> elements from the start of the input that it is a view of
    frozen     tensors that the graph had computed from its parameters then (frozen_parameters.py)
    shared     results that are not copied out -> their storage, how often it is held while nobody else holds it, and where
    home       the stream in which `copies` were allocated
    """

    graph: torch.cuda.CUDAGraph
    pool: RecordingPool
    addresses: dict[int, int]
    in_place: States
    places: State
    copies: dict[int, torch.Tensor]
    results: list[Any]
    views: dict[int, int]
    frozen: list | None
    shared: dict[int, tuple[Any, int, int]]
    home: int
    replays: int = 0

    def moved(self, inputs: list[Any]) -> list[int]:
        """Inputs that should be where they were, and are not."""
        if self.in_place.same(inputs, self.places):
            return []
        return [k for k, address in self.addresses.items() if inputs[k].data_ptr() != address]

    @property
    def free(self) -> bool:
        """Whether nobody holds what a replay would write, or gave it back to the allocator (Tensor.resize_)."""
        count = storage_use.or_missing()
        return all(
            count(storage) <= held and self.results[k].data_ptr() == address
            for k, (storage, held, address) in self.shared.items()
        )


@dataclass
class RecordingSizes:
    """One combination of sizes: calls so far, where inputs were at the last one, those that moved, its recordings.

    most       recordings that there may be
    uncopied   whether results may be returned without a copy
    """

    calls: int = 0
    seen: dict[int, int] = field(default_factory=dict)
    moving: set[int] = field(default_factory=set)
    attempts: int = 0
    recordings: list[Recording] = field(default_factory=list)
    most: int = MOST_UNCOPIED + 1
    uncopied: bool = True


class Recorded:
    """`run` (all placeholders in a list that is emptied -> the FX graph's results; see `wrap`), recorded and replayed."""

    def __init__(self, run: Any, facts: Facts, kind: str, report: GraphReport, failures: torch.Tensor):
        """`failures`: words on the host that are not 0 once an index was found bad: the next call tells (cuda/launch.py)."""
        self.run, self.facts, self.kind, self.report = run, facts, kind, report
        self.failures = failures.numpy()
        self.sizes: dict[tuple, RecordingSizes] = {}
        self.aliases = dict(facts.aliases)
        self.settings = library_settings()

    def __call__(self, inputs: list[Any]) -> list[Any]:
        if self.failures.size and self.failures.any():
            return self.run(inputs)  # before CUDA is asked for anything: the GPU may be lost
        if torch.cuda.is_current_stream_capturing() or not _lock.acquire(blocking=False):
            return self.run(inputs)
        try:
            return self.replayed(inputs)
        finally:
            _lock.release()

    def replayed(self, inputs: list[Any]) -> list[Any]:
        settings = library_settings()
        if settings != self.settings:  # recorded algorithms are those of the old ones
            self.settings = settings
            self.sizes.clear()
        key = self.key(inputs) if self.facts.symbolic else ()
        sizes = self.sizes.get(key)
        if sizes is None:
            if len(self.sizes) == MOST_SIZES:
                self.say(f"more than {MOST_SIZES} combinations of sizes: further ones run without")
                return self.run(inputs)
            sizes = self.sizes[key] = RecordingSizes()
        recording = next((x for x in sizes.recordings if x.free), None)
        if recording is None and (recording := self.next(inputs, sizes)) is None:
            return self.run(inputs)
        moved = recording.moved(inputs)
        if moved or self.run.frozen_tensors(inputs) is not recording.frozen:
            sizes.moving.update(set(moved) - self.facts.fixed)
            if any(x.replays for x in sizes.recordings):
                sizes.attempts = 0
            sizes.recordings, sizes.calls = [], 0
            return self.run(inputs)
        return self.replay(recording, inputs)

    def next(self, inputs: list[Any], sizes: RecordingSizes) -> Recording | None:
        """A recording for a call for which there is none that is free; None where it is to run without."""
        if not sizes.recordings:
            sizes.calls += 1
            self.look(inputs, sizes)
            if sizes.calls <= WARM_UP or sizes.attempts >= MOST_ATTEMPTS:
                return None
            sizes.attempts += 1
        elif self.kind != "inference" or len(sizes.recordings) >= sizes.most:
            return None
        recording = self.record(inputs, sizes)
        if recording is not None:
            sizes.recordings.append(recording)
        elif sizes.recordings:
            sizes.most = len(sizes.recordings)
        else:
            sizes.attempts = MOST_ATTEMPTS
        return recording

    def key(self, inputs: list[Any]) -> tuple:
        numbers = [inputs[k] for k in self.facts.numbers]
        return (*numbers, *((x.shape, x.stride()) for x in (inputs[k] for k in self.facts.tensors)))

    def look(self, inputs: list[Any], sizes: RecordingSizes) -> None:
        """Notes which inputs of a backward graph moved since the last call."""
        if self.kind != "backward":
            return
        seen = {k: inputs[k].data_ptr() for k in self.facts.tensors}
        if sizes.seen:
            sizes.moving.update(k for k, address in seen.items() if sizes.seen[k] != address)
        sizes.seen = seen

    # ---- recording

    def record(self, inputs: list[Any], sizes: RecordingSizes) -> Recording | None:
        """Records a call with these inputs, which it leaves as they were; None where that fails."""
        facts = self.facts
        in_place = facts.fixed if self.kind != "backward" else set(facts.tensors) - (sizes.moving - facts.fixed)
        copies = {k: memory_of(inputs[k]).clone() for k in facts.tensors if k not in in_place}
        addresses = {k: inputs[k].data_ptr() for k in facts.tensors if k in in_place}
        given = list(inputs)
        for k, memory in copies.items():
            x = inputs[k]
            given[k] = memory if memory.shape == x.shape else memory.as_strided(x.shape, x.stride(), 0)
        stay = States(list(addresses), counted=False)
        places = stay.of(inputs)
        frozen = self.run.frozen_tensors(inputs)
        starts = {k: given[k].data_ptr() for k in facts.tensors}
        graph = torch.cuda.CUDAGraph()
        generator = torch.cuda.default_generators[facts.device]
        state = generator.clone_state()
        uncopied = self.kind == "inference" and sizes.uncopied and len(sizes.recordings) < MOST_UNCOPIED
        with torch.cuda.device(facts.device):
            pool = RecordingPool() if uncopied or self.kind != "inference" else self.shared_pool()
            try:
                with capture(graph, pool.handle):
                    before = torch.cuda.memory_reserved()
                    results = self.run(given)
                    taken = torch.cuda.memory_reserved() - before
            except BaseException as error:
                generator.graphsafe_set_state(state)  # the one in use still waits for the recording's end
                torch.cuda.synchronize()
                if not isinstance(error, RuntimeError):
                    raise
                self.say(str(error).strip().partition("\n")[0])
                return None
        made = [x for k, x in enumerate(results) if isinstance(x, torch.Tensor) and k not in self.aliases]
        result_bytes = sum(x.untyped_storage().nbytes() for x in made)
        if uncopied and taken - result_bytes > max(result_bytes, LEAST):
            sizes.uncopied = False
            del graph, results, made, pool
            return self.record(inputs, sizes)
        self.report.cuda_graph = "recorded"
        views = {k: (results[k].data_ptr() - starts[i]) // results[k].element_size() for k, i in self.aliases.items()}
        shared, count = {}, storage_use.or_missing()
        for k, x in enumerate(results):
            if isinstance(x, torch.Tensor) and k not in self.aliases and (uncopied or k not in facts.returned):
                storage = storage_id(x)
                shared[k] = storage, count(storage), x.data_ptr()
        home = current_stream_handle(facts.device)
        return Recording(graph, pool, addresses, stay, places, copies, results, views, frozen, shared, home)

    def shared_pool(self) -> RecordingPool:
        if self.facts.device not in _pools:
            _pools[self.facts.device] = RecordingPool()
        return _pools[self.facts.device]

    # ---- replaying

    def replay(self, recording: Recording, inputs: list[Any]) -> list[Any]:
        with torch.cuda.device(self.facts.device):
            stream = self.after_the_last(recording.pool)
            if stream != recording.home:  # they may go while this replay is still under way
                for memory in recording.copies.values():
                    memory.record_stream(torch.cuda.current_stream())
            copy([(place, memory_of(inputs[k])) for k, place in recording.copies.items()])
            recording.graph.replay()
            recording.replays += 1
            results = [self.result(recording, k, inputs) for k in range(len(recording.results))]
        inputs.clear()
        return results

    def after_the_last(self, pool: RecordingPool) -> int:
        """Lets the current stream wait for the pool's last replay; its handle."""
        handle = current_stream_handle(self.facts.device)
        if handle != pool.last:
            stream = torch.cuda.current_stream()
            if pool.stream is not None:
                stream.wait_stream(pool.stream)
            pool.stream, pool.last = stream, handle
        return handle

    def result(self, recording: Recording, k: int, inputs: list[Any]) -> Any:
        x = recording.results[k]
        if not isinstance(x, torch.Tensor):
            return x
        if k in self.aliases:
            source, offset = inputs[self.aliases[k]], recording.views[k]
            if offset == 0 and (x.dtype, x.shape, x.stride()) == (source.dtype, source.shape, source.stride()):
                return source
            return source.view(x.dtype).as_strided(x.shape, x.stride(), source.storage_offset() + offset)
        return alias(x) if k in recording.shared else x.clone()

    def say(self, why: str) -> None:
        if not self.report.cuda_graph.startswith("not recorded: "):
            self.report.cuda_graph = f"not recorded: {why}"
            log.info("%s graph runs without a CUDA graph: %s", self.kind, why)


def capture(graph: torch.cuda.CUDAGraph, pool: Any) -> torch.cuda.graph:
    """Within, what is done in the current stream of the current GPU is recorded."""
    device = torch.cuda.current_device()
    if device not in _streams:
        _streams[device] = torch.cuda.Stream()
    return torch.cuda.graph(graph, pool=pool, stream=_streams[device], capture_error_mode="thread_local")


def copy(pairs: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Copies the second of each pair to the first, small ones at once."""
    small = [pair for pair in pairs if pair[1].numel() <= CHUNK]
    if small:
        places, values = zip(*small, strict=True)
        torch.ops.aten._foreach_copy_.default(places, values)
    for place, value in pairs if len(small) < len(pairs) else ():
        if value.numel() > CHUNK:
            place.copy_(value)


def memory_of(x: torch.Tensor) -> torch.Tensor:
    """`x`, or where its strides leave gaps or repeat elements, all of its memory as a vector."""
    if x.is_contiguous() or torch.ops.aten.is_non_overlapping_and_dense(x):
        return x
    extent = 1 + sum((n - 1) * s for n, s in zip(x.shape, x.stride(), strict=True)) if x.numel() else 0
    return x.as_strided((extent,), (1,))


def alias(x: torch.Tensor) -> torch.Tensor:
    """A tensor of its own on the same memory, no view, an inference tensor where such are made."""
    fresh = torch.empty(0, dtype=x.dtype, device=x.device)
    return fresh.set_(x.untyped_storage(), x.storage_offset(), x.shape, x.stride())


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
