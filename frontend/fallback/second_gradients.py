"""Gradients of gradients: `torch.autograd.grad(..., create_graph=True)` of a compiled call, then a gradient of what that gave.

The first gradient is the compiled backward graph's. AOTAutograd gives it no history that could be differentiated: where it does not raise,
a hessian is zeros. Here its history is the graph of Dynamo's in eager, which runs on the call's inputs once somebody asks for a second gradient.

    x, y -> compiled call -> r          first    dr -> compiled backward graph -> dx, dy
                                        second   (x, y, dr) -> eager: r = graph(x, y);  dx, dy = grad(r, dr) -> grad of these

So is a third. Where the graph cannot run again (it draws random numbers, writes to inputs, an input has changed or is gone) that is an error.
"""

import functools
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from operator import attrgetter, itemgetter
from typing import Any

import torch
from torch.compiler import disable
from torch.fx import GraphModule

from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback
from mlirc.frontend.fallback.shared_memory import is_static
from mlirc.frontend.torch_compat.aot_autograd import calls
from mlirc.frontend.torch_compat.autocast import autocast_devices
from mlirc.frontend.torch_compat.dynamo.lazy_graph import forward_of, without_notes

LIMIT = "mlirc does not currently support double backward here: "
TOLD = "a gradient of a gradient, of which PyTorch's AOTAutograd has no graph, runs in eager"
Given = tuple[list[Any], list[int]]
"""The arguments of a call, of tensors that are no parameters weak references, and the versions of those that are tensors."""

_version = attrgetter("_version")


def versions_of(tensors: Sequence[torch.Tensor]) -> list[int]:
    """How often each was written to; -1 for those of inference mode, which count no writes."""
    try:
        return list(map(_version, tensors))
    except RuntimeError:
        return [-1 if x.is_inference() else x._version for x in tensors]


class Graph:
    """A graph of Dynamo's, to run again in eager. `why_not`: why it cannot, for all of its calls."""

    def __init__(self, gm: GraphModule, tell: Callable[[Exception], None]):
        parameters = any(True for _ in gm.parameters()) or any(True for _ in gm.buffers())
        self.why_not = "the graph holds tensors of its own" if parameters else ""
        self.forward = without_notes(gm)
        self.autocast = dict(autocast_devices())
        self.tell = tell
        self.told = False

    def count(self) -> None:
        if not self.told:
            self.told = True
            self.tell(UnsupportedGraph(TOLD))

    @contextmanager
    def as_traced(self) -> Iterator[None]:
        """Around a run: with gradients, and under the autocast of the graph's tracing."""
        with ExitStack() as stack:
            for kind in {*self.autocast, *(kind for kind, _ in autocast_devices())}:
                dtype = self.autocast.get(kind, torch.get_autocast_dtype(kind))
                stack.enter_context(torch.autocast(kind, dtype, enabled=kind in self.autocast))
            stack.enter_context(torch.enable_grad())
            yield

    def __call__(self, args: Sequence[Any]) -> list:
        devices = {x.device for x in args if isinstance(x, torch.Tensor) and x.is_cuda}
        with torch.random.fork_rng(devices=[d.index for d in devices]):
            before = states(devices)
            results = list(forward_of(self.forward)(*args))
            if any(not torch.equal(a, b) for a, b in zip(before, states(devices), strict=True)):
                raise RuntimeError(LIMIT + "the graph draws random numbers")
        return results


def states(devices: set[torch.device]) -> list[torch.Tensor]:
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def with_second_gradients(
    run: Callable, gm: GraphModule, inputs: Sequence[Any], tell: Callable[[Exception], None]
) -> Callable:
    """`run`, the callable of the graph, whose gradients have gradients. `tell` hears of the first that is asked for."""
    if not torch.is_grad_enabled() or any(isinstance(x, (list, tuple, dict)) for x in inputs):
        return run
    graph = fallback.optional(Graph, gm, tell)
    if graph is None:
        return run

    tensors = [k for k, x in enumerate(inputs) if isinstance(x, torch.Tensor)]
    kept = [is_static(node) for node in gm.graph.find_nodes(op="placeholder")]
    weak = [k for k in tensors if not kept[k]]
    chosen = itemgetter(*tensors) if len(tensors) > 1 else lambda args: [args[k] for k in tensors]

    def differentiate(node: Any, gradients: list, first: Callable[[], Any]) -> Any:
        call = getattr(node, "given", None)
        return first() if call is None else differentiable(graph, call, node, gradients, first)

    @functools.wraps(run)
    def call(*args: Any) -> Any:
        results = run(*args)
        node = calls.node_of(results)
        if node is not None:
            calls.differentiate_with(node, differentiate)
            given = list(args)
            node.given = given, versions_of(chosen(args))
            for k in weak:
                given[k] = weakref.ref(given[k])
        return results

    return call


def differentiable(graph: Graph, given: Given, node: Any, gradients: list, first: Callable[[], Any]) -> Any:
    """The gradients `first()` with a history: of the inputs of the call, and of the results' gradients."""
    held, versions = given
    args = [x() if isinstance(x, weakref.ref) else x for x in held]
    if any(isinstance(x, weakref.ref) and arg is None for x, arg in zip(held, args, strict=True)):
        raise RuntimeError(LIMIT + "an input of the compiled graph, which a graph break made, is gone")
    why_not = graph.why_not
    if versions_of([x for x in args if isinstance(x, torch.Tensor)]) != versions:
        why_not = "an input of the compiled graph has been modified since"
    elif calls.returns_more_or_less(node):
        why_not = "the graph writes to its inputs, or returns views of a tensor that is no result"
    places = [k for k, x in enumerate(args) if isinstance(x, torch.Tensor)]
    known = [k for k, x in enumerate(gradients) if isinstance(x, torch.Tensor)]
    rest = [None if isinstance(x, torch.Tensor) else x for x in args]

    def firsts(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        """The gradients of the call's arguments in eager, with a history. Of the call's tensors and the results' gradients."""
        if why_not:
            raise RuntimeError(LIMIT + why_not)
        graph.count()
        inputs, tangents = tensors[: len(places)], dict(zip(known, tensors[len(places) :], strict=True))
        args: list[Any] = list(rest)
        found: list[torch.Tensor | None] = [None] * len(rest)
        for k, x in zip(places, inputs, strict=True):
            args[k] = x
        with graph.as_traced():
            results = graph(args)
            if len(results) != len(gradients):
                raise RuntimeError(LIMIT + "the graph has other results than the call")
            reached = [k for k in known if isinstance(results[k], torch.Tensor) and results[k].requires_grad]
            wanted = [k for k in places if args[k].requires_grad]
            made = gradients_of(
                [results[k] for k in reached], [args[k] for k in wanted], [tangents[k] for k in reached], True
            )
        for k, x in zip(wanted, made, strict=True):
            found[k] = x
        return found

    def again(tensors: Sequence[torch.Tensor], second: Sequence[torch.Tensor | None]) -> tuple:
        """The gradients of the call's tensors and of the results' gradients, from those of what `first()` gave."""
        tensors = apart(tensors)
        pairs = [
            (x, g)
            for x, g in zip(firsts(tensors), second, strict=True)
            if x is not None and x.requires_grad and g is not None
        ]
        sources = [x for x in tensors if x.requires_grad]
        found = iter(gradients_of([x for x, _ in pairs], sources, [g for _, g in pairs], torch.is_grad_enabled()))
        return tuple(next(found) if x.requires_grad else None for x in tensors)

    tensors: list[Any] = [args[k] for k in places] + [gradients[k] for k in known]
    if not why_not and any(calls.has_hooks(x) for x in tensors):
        return tuple(firsts(apart(tensors)))  # `again` gives None where eager has no history; no hook takes that
    return History.apply(first, again, *tensors)


def apart(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The tensors, of which none is behind another one."""
    with torch.enable_grad():
        return [x.view_as(x) if x.requires_grad else x for x in tensors]


def gradients_of(results: list, inputs: list, gradients: list, create_graph: bool) -> Sequence[torch.Tensor | None]:
    if not results or not inputs:
        return [None] * len(inputs)
    return torch.autograd.grad(results, inputs, gradients, create_graph=create_graph, allow_unused=True)


@disable(reason="is eager")
def untraced(work: Callable, *args: Any) -> Any:
    """`work(*args)`, also where autograd calls it of a function that Dynamo traces."""
    return work(*args)


class History(torch.autograd.Function):
    """`first()`, whose gradients are `again(tensors, gradients)`."""

    @staticmethod
    def forward(ctx: Any, first: Callable, again: Callable, *tensors: torch.Tensor) -> Any:
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.again = again
        return first()

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return None, None, *untraced(ctx.again, ctx.saved_tensors, gradients)
