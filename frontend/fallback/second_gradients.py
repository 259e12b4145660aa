"""Gradients of a compiled call that no compiled graph gives: those with a gradient of their own (`create_graph=True`), and batches.

The first gradient is the compiled backward graph's where nobody asks for a second one. AOTAutograd gives it no history that could be
differentiated: where it does not raise, a hessian is zeros. With `create_graph` it is the gradient of Dynamo's graph, which runs again in
eager on the call's inputs.

    x, y -> compiled call -> r          without create_graph    dr -> compiled backward graph -> dx, dy
                                        with it                 (x, y, dr) -> eager: r = graph(x, y);  dx, dy = grad(r, dr)

So is a third. A gradient that stands for several (`is_grads_batched`, a jacobian with `vectorize`) is eager's in the same way, without a history:
under vmap the operators of a backward graph give other strides than those of eager's.

Random numbers are drawn again, from the generators' states at the call. Running statistics of a norm in training are no part of its results: the
graph gets copies of them. Of another input that it writes to, each call keeps a copy, with the history of before the write. Where the graph cannot
run again (an input has changed or is gone) a second gradient is an error, and a gradient that stands for several is the backward graph's in eager.
"""

import functools
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import ExitStack, contextmanager
from dataclasses import field
from operator import attrgetter, itemgetter, or_
from typing import Any

import torch
from torch.compiler import disable
from torch.fx import GraphModule, Node

from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback
from mlirc.frontend.fallback.gone_inputs import Reference
from mlirc.frontend.fallback.input_starts import is_strided, written_to
from mlirc.frontend.fallback.read_inputs import inputs_of_results
from mlirc.frontend.fallback.shared_memory import is_static
from mlirc.frontend.torch_compat.aot_autograd import calls
from mlirc.frontend.torch_compat.aot_autograd.vmap_mode import nesting, outside_vmap
from mlirc.frontend.torch_compat.autocast import autocast_devices
from mlirc.frontend.torch_compat.dynamo.eager_regions import LIMIT, with_eager_regions
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of
from mlirc.frontend.torch_compat.fake_tensors import storage_id

TOLD = "a gradient of a gradient, of which PyTorch's AOTAutograd has no graph, runs in eager"
TOLD_OF_BATCHES = "a gradient stands for several, which torch.vmap gives"
COPIED = 1 << 20
"""Bytes of an input that is written to, up to which each call in training keeps a copy of what was there before."""

Drawn = tuple[list[torch.Tensor], list[torch.Tensor]]
"""The states of the generators before a call, and after it."""

BATCH_NORM = ("input", "running_mean", "running_var", "weight", "bias", "training")
STATISTICS = {"running_mean", "running_var"}

OPERATORS = (torch._ops.OpOverload, torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)

_version = attrgetter("_version")


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each was written to; -1 for those of inference mode, which count no writes."""
    try:
        return list(map(_version, tensors))
    except RuntimeError:
        return [-1 if x.is_inference() else x._version for x in tensors]


class NoHistory(RuntimeError):
    """Why a second gradient cannot be computed."""


@dataclass
class NotedCall:
    """A call.

    args      its arguments, of tensors that are no parameters weak references, of those that the graph writes to copies
    versions  of those arguments that are tensors, and whose values the results depend on
    drawn     the random numbers that it took, if any
    again     gives its node's results once more, or None where the graph cannot run again
    why_not   why the graph cannot run again
    undefined the results that the last backward pass had no gradient of, where autograd makes zeros for them
    """

    args: list[Any]
    versions: list[int]
    drawn: Drawn | None
    again: Callable[[Any], list | None]
    why_not: str = ""
    undefined: list[int] = field(default_factory=list)


class Graph:
    """A graph of Dynamo's, to run again in eager. `why_not`: why it cannot, for all of its calls."""

    def __init__(self, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]):
        parameters = any(True for _ in gm.parameters()) or any(True for _ in gm.buffers())
        self.why_not = "the graph holds tensors of its own" if parameters else ""
        self.forward = with_eager_regions(gm)
        self.autocast = dict(autocast_devices())
        self.statistics = statistics_of(gm)
        self.written, shared = written_by(gm, self.statistics)
        if shared:
            self.why_not = "an input that the graph writes to shares memory with another one"
        self.repeats_effects = has_operators_of_others(gm)
        self.read = inputs_of_results(gm)
        self.unread: dict[tuple[bool, ...], list[int]] = {}
        self.devices = devices_of(inputs)
        self.draws: bool | None = None  # until a call was seen, nobody knows
        self.tell = tell
        self.told: set[str] = set()

    def count(self, why: str) -> None:
        if why not in self.told:
            self.told.add(why)
            self.tell(UnsupportedGraph(why))

    @contextmanager
    def as_traced(self) -> Iterator[None]:
        """Around a run: with gradients, and under the autocast of the graph's tracing."""
        with ExitStack() as stack:
            for kind in {*self.autocast, *(kind for kind, _ in autocast_devices())}:
                dtype = self.autocast.get(kind, torch.get_autocast_dtype(kind))
                stack.enter_context(torch.autocast(kind, dtype, enabled=kind in self.autocast))
            stack.enter_context(torch.enable_grad())
            yield

    def __call__(self, args: Sequence[Any], drawn: Drawn | None) -> tuple[list, list]:
        """The results, and the arguments after the run, of which what it writes to are copies."""
        args = [x.clone() if k in self.statistics or k in self.written else x for k, x in enumerate(args)]
        devices = devices_of(args)
        with outside_vmap(), torch.random.fork_rng(devices=[d.index for d in devices]):
            if drawn is not None:
                set_states(drawn[0], devices)
            before = states(devices)
            results = list(forward_of(self.forward)(*args))
            if not same(before if drawn is None else drawn[1], states(devices)):
                raise NoHistory(LIMIT + "the graph draws random numbers")
        return results, args

    def states_before(self) -> list[torch.Tensor] | None:
        """The generators' states. A GPU's cannot be asked for while a user records a CUDA graph, or
        after an error of its own, which the call itself is to tell."""
        try:
            return None if self.devices and torch.cuda.is_current_stream_capturing() else states(self.devices)
        except RuntimeError:
            return None

    def drawn(self, before: list[torch.Tensor]) -> Drawn | None:
        """What a call has drawn since `states_before`."""
        after = states(self.devices)
        if self.draws is None:
            self.draws = not same(before, after)
        return (before, after) if self.draws else None


def statistics_of(gm: GraphModule) -> frozenset[int]:
    """A module's buffers that a graph of Dynamo's writes statistics of a norm in training to, and does not read: by their old values alone they are
    told from the new ones."""
    found = set()
    for k, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        if node.users and is_static(node) and all(keeps_statistics(user, node) for user in node.users):
            found.add(k)
    return frozenset(found)


def has_operators_of_others(gm: GraphModule) -> bool:
    """Whether the graph may have effects besides the checks of aten's factorizations: it prints, or calls what is no aten operator."""
    targets = [node.target for part in gm.modules() if isinstance(part, GraphModule) for node in part.graph.nodes]
    operators = [t for t in targets if isinstance(t, OPERATORS)]
    return any(getattr(t, "namespace", "") != "aten" or t.__name__.startswith("_print") for t in operators)


def written_by(gm: GraphModule, statistics: Set[int]) -> tuple[frozenset[int], bool]:
    """The inputs, but for those statistics, that a graph of Dynamo's writes to, and whether one shares memory with another input."""
    values = [node.meta.get("example_value") for node in gm.graph.find_nodes(op="placeholder")]
    fakes = {k: x for k, x in enumerate(values) if is_strided(x)}
    norms = gm.graph.find_nodes(op="call_function", target=torch.nn.functional.batch_norm)
    kept = {
        x for norm in norms for name, x in given_to(norm).items() if name in STATISTICS
    }  # the kernel counts no writes
    placeholders = gm.graph.find_nodes(op="placeholder")
    written = (written_to(gm, fakes) | {k for k, node in enumerate(placeholders) if node in kept}) - statistics
    memory = [storage_id(x) for x in fakes.values()]
    return frozenset(written), any(memory.count(storage_id(fakes[k])) > 1 for k in written)


def given_to(norm: Node) -> dict[str, Any]:
    return dict(zip(BATCH_NORM, norm.args, strict=False)) | norm.kwargs


def keeps_statistics(user: Node, x: Node) -> bool:
    if user.target is torch.nn.functional.batch_norm:
        given = given_to(user)
        return given.get("training") is True and {k for k, y in given.items() if y is x} <= STATISTICS
    return user.target == "add_" and user.op == "call_method" and tuple(user.args) == (x, 1) and not user.users


def devices_of(args: Sequence[Any]) -> list[torch.device]:
    return sorted({x.device for x in args if isinstance(x, torch.Tensor) and x.is_cuda}, key=str)


def states(devices: Sequence[torch.device]) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def set_states(states: Sequence[torch.Tensor], devices: Sequence[torch.device]) -> None:
    first, *others = states
    torch.set_rng_state(first)
    for state, device in zip(others, devices, strict=True):
        torch.cuda.set_rng_state(state, device)


def same(a: Sequence[torch.Tensor], b: Sequence[torch.Tensor]) -> bool:
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def with_second_gradients(
    run: Callable, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]
) -> Callable:
    """`run`, the callable of the graph, whose gradients have gradients. `tell` hears of the first that is asked for."""
    if not torch.is_grad_enabled() or any(isinstance(x, (list, tuple, dict)) for x in inputs):
        return run
    graph = fallback.optional(Graph, gm, inputs, tell)
    if graph is None:
        return run

    tensors = [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
    kept = [is_static(node) for node in gm.graph.find_nodes(op="placeholder")]
    written = sorted(graph.written) if any(inputs[k].requires_grad for k in tensors) else []
    weak = [k for k in tensors if not kept[k] and k not in written]
    read = [k for k in tensors if k not in graph.statistics and k not in written]
    chosen = itemgetter(*read) if len(read) > 1 else lambda args: [args[k] for k in read]

    def differentiate(node: Any, gradients: list, first: Callable[[], Any]) -> Any:
        call = getattr(node, "given", None)
        if call is None:
            return first()
        gradients = [None if k in call.undefined else x for k, x in enumerate(gradients)]
        return differentiable(graph, call, node, gradients, first)

    def leave_out(node: Any, absent: list[bool], found: tuple) -> tuple:
        call = getattr(node, "given", None)
        return found if call is None else without_unreached(graph, call, node, absent, found)

    again = functools.partial(results_again, graph)

    @functools.wraps(run)
    def call(*args: Any) -> Any:
        before = None if graph.draws is False else graph.states_before()
        old = [(k, args[k].clone()) for k in written if args[k].nbytes <= COPIED] if written else []
        results = run(*args)
        node = calls.node_of(results)
        if node is None:  # Dynamo guards what needs gradients: no call of this graph has a node
            graph.draws = False
        else:
            calls.differentiate_with(node, differentiate, leave_out)
            drawn = None if before is None else graph.drawn(before)
            node.given = given = NotedCall(list(args), versions_of(chosen(args)), drawn, again)
            calls.note_undefined(node, given.undefined)
            for k in weak:
                given.args[k] = Reference(given.args[k])
            for k, x in old:
                if x.stride() != args[k].stride():
                    given.why_not = "an input that the graph writes to has gaps between its elements"
                given.args[k] = x
            for k in [*written] if len(old) < len(written) else ():
                given.why_not = "an input that the graph writes to is large"
                given.args[k] = Reference(args[k])
        return results

    return call


def differentiable(graph: Graph, given: NotedCall, node: Any, gradients: list, first: Callable[[], Any]) -> Any:
    """The gradients of the call's inputs, from those of its results. With `create_graph` they have a history; where the graph cannot run again
    they are `first()`, whose gradient raises."""
    args = [x.taken() if isinstance(x, Reference) else x for x in given.args]
    why: Exception = NoHistory(LIMIT + (why_not := why_not_again(graph, given, args, node)))
    if not why_not:
        try:
            return tuple(in_eager(graph, given.drawn, args, node, gradients))
        except (NoHistory, UnsupportedGraph) as error:
            why = error
    if not torch.is_grad_enabled():
        return first()
    of = [*args, *gradients, *(x.edge for x in given.args if isinstance(x, Reference))]
    return WithoutHistory.apply(first, why, *(x for x in of if isinstance(x, torch.Tensor)))


def why_not_again(graph: Graph, given: NotedCall, args: Sequence[Any], node: Any) -> str:
    """Why a call's graph cannot run again on its arguments; empty where it can."""
    if any(isinstance(x, Reference) and arg is None for x, arg in zip(given.args, args, strict=True)):
        return "an input of the compiled graph, which was computed before it, is gone"
    own = graph.statistics | graph.written
    read = [x for k, x in enumerate(args) if isinstance(x, torch.Tensor) and k not in own]
    kept = [x for k, x in enumerate(args) if isinstance(x, torch.Tensor) and k in graph.statistics]
    if kept and not set(map(storage_id, kept)).isdisjoint(map(storage_id, read)):
        return "statistics of a norm share memory with what the graph reads"
    if versions_of(read) != given.versions:
        return "an input of the compiled graph has been modified since"
    if calls.returns_more_or_less(node, graph.statistics, graph.written):
        return "the graph writes to its inputs"
    if graph.repeats_effects and calls.has_effects(node):
        return "the graph has effects, which would happen again"
    if given.drawn is not None and not torch.is_grad_enabled() and nesting() is None:
        return "the graph draws random numbers, which vmap refuses"
    return graph.why_not or given.why_not


def in_eager(graph: Graph, drawn: Drawn | None, args: list, node: Any, gradients: list) -> list[torch.Tensor | None]:
    """The gradients of a call's arguments in eager, from those of its results, with a history where `create_graph` asks for one."""
    node.saved_tensors  # noqa: B018  # raises where they were freed
    create_graph = torch.is_grad_enabled()
    graph.count(TOLD if create_graph else TOLD_OF_BATCHES)
    inputs, args = args, [apart(x) if isinstance(x, torch.Tensor) else x for x in args]
    found: list[torch.Tensor | None] = [None] * len(args)
    with graph.as_traced():
        results = results_of(graph, drawn, args, node)
    if len(results) != len(gradients):
        raise NoHistory(LIMIT + "the graph has other results than the call")
    given = [(r, g) for r, g in zip(results, gradients, strict=True) if isinstance(g, torch.Tensor)]
    reached = [(r, g) for r, g in given if isinstance(r, torch.Tensor) and r.requires_grad]
    wanted = [k for k, x in enumerate(args) if isinstance(x, torch.Tensor) and x.requires_grad]
    if reached and wanted:
        results, of_results = zip(*reached, strict=True)
        made = torch.autograd.grad(  # under the autocast of the backward pass
            results, [args[k] for k in wanted], of_results, create_graph=create_graph, allow_unused=True
        )
        for k, x in zip(wanted, made, strict=True):
            found[k] = x
    return [torch.zeros_like(x) if g is None and calls.is_heard(x) else g for x, g in zip(inputs, found, strict=True)]


def results_of(graph: Graph, drawn: Drawn | None, args: Sequence[Any], node: Any) -> list:
    """What the call's node gave, by the number of its gradient, computed in eager."""
    results, after = graph(args, drawn)
    results += calls.bases_of(node, results)
    return [after[k] for k in calls.rewritten(node)] + results


def results_again(graph: Graph, node: Any) -> list | None:
    """The results of an earlier call, for another one that took one of them; None where its graph cannot run again."""
    given: NotedCall = node.given
    args = [x.again() if isinstance(x, Reference) else x for x in given.args]
    if why_not_again(graph, given, args, node):
        return None
    try:
        with graph.as_traced(), torch.no_grad():
            return results_of(graph, given.drawn, args, node)
    except (NoHistory, UnsupportedGraph):
        return None


def without_unreached(graph: Graph, given: NotedCall, node: Any, absent: Sequence[bool], found: tuple) -> tuple:
    """The gradients of a call's inputs, where results have none: None, as in eager, of a leaf that no other result is computed from."""
    key = tuple(absent)
    if key not in graph.unread:
        graph.unread[key] = unread(graph, node, key) if len(found) == len(given.args) else []
    if not graph.unread[key]:
        return found
    made = list(found)
    for k in graph.unread[key]:
        x: Any = given.args[k]
        x = x() if isinstance(x, Reference) else x
        if isinstance(x, torch.Tensor) and not calls.is_heard(x):
            made[k] = None
    return tuple(made)


def unread(graph: Graph, node: Any, absent: Sequence[bool]) -> list[int]:
    """The inputs that no result is computed from but for those that are absent; none where AOTAutograd has results that are not known."""
    try:
        results = [graph.read.of_inputs[k] for k in calls.rewritten(node)] + graph.read.of_results
        results += [graph.read.of_results[k] for k in calls.views_of_bases(node)]
    except (AttributeError, IndexError):
        return []
    if len(results) != len(absent):  # tokens of factorizations
        return []
    read = functools.reduce(or_, (x for x, is_absent in zip(results, absent, strict=True) if not is_absent), 0)
    return [k for k in range(len(graph.read.of_inputs)) if not read >> k & 1]


def apart(x: torch.Tensor) -> torch.Tensor:
    """The tensor, with what is behind it behind a view, so that its own hooks are not called within."""
    with torch.enable_grad():
        return torch.ops.aten.alias.default(x) if x.requires_grad else x


class WithoutHistory(torch.autograd.Function):
    """`first()`, whose gradient raises."""

    @staticmethod
    def forward(ctx: Any, first: Callable, why: Exception, *tensors: torch.Tensor) -> Any:
        ctx.why = why
        return first()

    @staticmethod
    @disable(reason="raises: Dynamo of torch 2.11 gives an error of its own for that")
    def backward(ctx: Any, *gradients: Any) -> Any:
        raise ctx.why
