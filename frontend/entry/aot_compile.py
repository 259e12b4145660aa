"""What `torch.compile(fn, backend="mlirc", fullgraph=True).aot_compile(...)` saves: graphs, and AOTAutograd's metadata, as data.

PyTorch's file around it has the guards and Python's bytecode, and is unpickled by PyTorch. Our part of it is an entry (codegen/cache/entry.py):
reading it makes text, numbers and machine code. Loading compiles and traces nothing.
"""

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import field, replace
from typing import Any

from torch.compiler import disable
from torch.fx import GraphModule

from mlirc.codegen.cache.entry import UNREADABLE, CacheEntry, DamagedEntry, pack, unpack
from mlirc.codegen.process.limits import with_room
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend import statistics
from mlirc.frontend.cache.compiled import from_data, to_data
from mlirc.frontend.capture.aot_autograd import Capture, parameter_positions, refuse_zeros
from mlirc.frontend.capture.function_rewrites import rewrite_functions
from mlirc.frontend.driver.boxed_call import Boxed, wrap
from mlirc.frontend.driver.left_to_eager import left_to_eager
from mlirc.frontend.errors import NoText, UnsupportedGraph
from mlirc.frontend.fallback.input_starts import BEGINS_LATER, written_and_viewed
from mlirc.frontend.fallback.read_storages import READ_AROUND, is_whole, storages_read
from mlirc.frontend.fallback.shared_memory import ANOTHER_WAY, TracedMemory, traced_memory
from mlirc.frontend.graph.aten_graph import AtenGraph
from mlirc.frontend.importer.bodies import constants_of
from mlirc.frontend.options import Options
from mlirc.frontend.package.compile import compiled_whole, in_python
from mlirc.frontend.package.package_file import check_made_for, made_for
from mlirc.frontend.package.packaged_graph import PackageError
from mlirc.frontend.partition.lazy_tangents import tangents, with_values
from mlirc.frontend.torch_compat.aot_autograd import trace_metadata
from mlirc.frontend.torch_compat.aot_autograd.saved_layouts import with_layouts
from mlirc.frontend.torch_compat.aot_autograd.trace_result import results
from mlirc.frontend.torch_compat.aot_autograd.tracing import config
from mlirc.frontend.torch_compat.dynamo.aot_compile import serializable
from mlirc.frontend.torch_compat.dynamo.tracing_context import TracingContext, tracing
from mlirc.frontend.torch_compat.fake_tensors import FakeTensorMode

KEY = "aot_compile 1"  # the number changes with what is kept
FILE = "what aot_compile saved"
TORCHS_CACHE = {
    "force_autograd_cache": False,
    "enable_autograd_cache": False,
}  # which would unpickle other backends' entries


class AheadOfTime:
    """A compiled graph of Dynamo's that can be saved; called as the graph is. A class of PyTorch's by `register`."""

    def __init__(self, content: bytes):
        self.content = content
        self.run = restored(content)

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    @classmethod
    def serialize_compile_artifacts(cls, fn: "AheadOfTime") -> bytes:
        return fn.content

    @classmethod
    def deserialize_compile_artifacts(cls, data: bytes) -> "AheadOfTime":
        return cls(data)


def compiled_ahead(gm: GraphModule, inputs: Sequence[Any], options: Options) -> AheadOfTime:
    """Raises UnsupportedGraph for what cannot be kept, and what compiling raises."""
    kinds, made = serializable(), results()
    if kinds is None or made is None:
        raise UnsupportedGraph(
            f"aot_compile cannot be done without {'aot-compile' if kinds is None else 'trace-result'}"
        )
    kinds.register(AheadOfTime)  # type: ignore[attr-defined]
    refuse_zeros(inputs)
    if why := left_to_eager(gm):
        raise UnsupportedGraph(why)
    rewrite_functions(gm)
    memory, starts, read = traced_memory(gm), written_and_viewed(gm), storages_read(gm)
    parameters, configuration = made.configure(gm, inputs)
    if parameters:
        raise UnsupportedGraph("aot_compile cannot keep a graph with parameters that are no inputs")
    graphs = KeptGraphs()
    with config.patch(TORCHS_CACHE):
        CaptureAhead(options, graphs, graphs.compiled).traced(gm, inputs)  # type: ignore[arg-type]
    known = graphs.metadata
    try:
        if len(known.input_info) != len(inputs) or known.tokens or known.num_graphsafe_rng_states:
            raise NoText("inputs that share memory, or effects")
        metadata = trace_metadata.to_data(without_views(known))
    except NoText as reason:
        raise UnsupportedGraph(f"aot_compile cannot keep a graph with {reason}") from reason
    data = {
        "made for": made_for(),
        "graphs": graphs.graphs,
        "metadata": metadata,
        "configuration": made.to_data(configuration),
        "detach": graphs.detach,
        "tangents": graphs.tangents,
        "freeze": options.freeze,
        "starts": list(starts),
        "read storages": list(read),
        "memory": None if memory is None else memory_data(memory),
    }
    return AheadOfTime(pack([KEY], CacheEntry(data, graphs.blobs)))


def without_views(known: Any) -> Any:
    """The metadata without lists of views, which have no text: then AOTAutograd sees by `as_strided` where a result lies in an input."""
    made = copy(known)  # dataclasses.replace would compute the rest anew
    made.output_info = [replace(x, view_meta_sequence=None) for x in known.output_info]
    return made


@dataclass
class KeptGraphs:
    """The compiled graphs of one graph of Dynamo's, as data, and what AOTAutograd knows. Hears of them as a trace does."""

    graphs: dict[str, Any] = field(default_factory=dict)
    blobs: list[bytes] = field(default_factory=list)
    detach: list[int] = field(default_factory=list)
    tangents: list[int] = field(default_factory=list)
    metadata: Any = None

    def compiled(self, gm: GraphModule, kind: str, options: Options) -> Boxed:
        graph = AtenGraph(gm, kind, options, statistics.GraphReport(kind), tuple(parameter_positions(kind)))
        why = in_python(gm) or ("it has tensors on a GPU" if graph.on_gpu else "")
        if why or constants_of(gm):
            raise UnsupportedGraph(f"aot_compile cannot keep the {kind} graph: {why or 'it has a tensor of its own'}")
        arguments = graph.arguments
        compiled, objects = with_room(compiled_whole, graph)
        if objects:
            raise UnsupportedGraph(f"aot_compile cannot keep an object that has no text: {objects[0][:60]}")
        statistics.record(graph.report)
        self.graphs[kind] = to_data(compiled, self.blobs) | {"arguments": arguments}
        return wrap(compiled, arguments, [], compiled.program.native)

    def note(self, kind: str, gm: GraphModule, run: Callable, undefined: tuple[int, ...] = ()) -> None:
        if kind != "backward":
            self.metadata = TracingContext.get().fw_metadata

    def note_backward(self, gm: GraphModule, inputs: Sequence[Any]) -> None:
        made = results()
        assert made is not None
        self.detach, self.tangents = made.detach(gm, self.metadata), tangents(gm)

    def finish(self) -> None:
        """Nothing: the caller reads what was noted."""


class CaptureAhead(Capture):
    """Compiles the backward graph at once, for gradients that are all there. Nothing runs in eager instead."""

    def backward(self, gm: GraphModule, inputs: Sequence[Any]) -> Callable:
        self.noted.note_backward(gm, inputs)
        return self.graph("backward", gm, inputs)

    def backward_in_eager(self, gm: GraphModule, error: Exception) -> Callable:
        raise error


def restored(content: bytes) -> Callable:
    """The callable. Raises PackageError for bytes that are damaged, or another version's or processor's."""
    made = results()
    if made is None:
        raise PackageError(f"{FILE} cannot be loaded by this PyTorch")
    try:
        entry = unpack(content, KEY)
        check_made_for(FILE, entry.data["made for"])
        return checked(called(entry.data, entry.blobs, made), entry.data)
    except (DamagedEntry, *UNREADABLE) as error:
        if isinstance(error, PackageError):
            raise
        raise PackageError(f"{FILE} is damaged: {error}") from error


def called(data: Mapping[str, Any], blobs: Sequence[bytes], made: Any) -> Callable:
    """What AOTAutograd makes of the graphs."""
    runs: dict[str, Boxed] = {}
    for kind, graph in data["graphs"].items():
        compiled = with_room(from_data, graph, blobs, data["freeze"])
        runs[kind] = wrap(compiled, graph["arguments"], [], compiled.program.native)
    metadata, backward = trace_metadata.from_data(data["metadata"]), None
    if "backward" in runs:
        metadata.bw_donated_idxs = []  # nothing of ours overwrites what is saved: it may be used again
        backward = disable(with_values(data["tangents"], runs["backward"], no_batches), reason="is compiled")
    symbols = metadata.num_symints_saved_for_bw or 0
    forward = runs["forward" if backward is not None else "inference"]
    context = TracingContext.try_get() or TracingContext(FakeTensorMode())
    with tracing(context):
        rebuilt = made.from_data(data["configuration"])
        compiled = made.call(forward, backward, None, metadata, data["detach"], rebuilt, symbols)
    run = lambda *args: compiled(list(args))
    return disable(run if backward is None else with_layouts(run), reason="is compiled")


def no_batches(error: Exception) -> Boxed:
    raise error


def checked(run: Callable, data: Mapping[str, Any]) -> Callable:
    """`run`, which raises where inputs lie in memory in a way that the graph was not traced for, and guards do not tell."""
    memory = None if data["memory"] is None else memory_from(data["memory"])
    starts, read = data["starts"], data["read storages"]
    if memory is None and not starts and not read:
        return run

    def call(*args: Any) -> Any:
        if memory is not None and not memory.same(args):
            raise UnsupportedGraph(ANOTHER_WAY)
        if any(args[k].storage_offset() for k in starts):
            raise UnsupportedGraph(BEGINS_LATER)
        if not all(is_whole(args[k]) for k in read):
            raise UnsupportedGraph(READ_AROUND)
        return run(*args)

    return call


def memory_data(x: TracedMemory) -> dict[str, Any]:
    pairs = [[*pair, distance] for pair, distance in x.overlaps.items()]
    return {"places": list(x.places), "written": sorted(x.written), "overlaps": pairs, "fixed": list(x.fixed)}


def memory_from(data: Mapping[str, Any]) -> TracedMemory:
    pairs = {(j, k): distance for j, k, distance in data["overlaps"]}
    return TracedMemory(tuple(data["places"]), frozenset(data["written"]), pairs, fixed=tuple(data["fixed"]))
