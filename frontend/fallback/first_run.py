"""The first call of a compiled graph: eager takes over where it fails for a reason of ours; where an operator is overridden
later (later_overrides.py); and within a `TorchDispatchMode` of the program's, such as one that counts or logs operators.

Until a call has succeeded, what eager would need is held: the inputs, copies of those that the graph writes to, and the state
of the random generators. An error of the user's program passes through: an index out of bounds, what an ATen call raised.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.codegen.abi.modes import depth, hears_operators, without_modes
from mlirc.codegen.host.program import Program
from mlirc.codegen.process.limits import with_room
from mlirc.codegen.user_errors import belongs_to_the_user
from mlirc.dialects.core.fork_locks import fork_lock
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.errors import UnsupportedGraph
from mlirc.frontend.fallback import fallback
from mlirc.frontend.fallback.held_inputs import hold
from mlirc.frontend.fallback.later_overrides import LaterOverrides
from mlirc.frontend.importer.sizes import environment_of
from mlirc.frontend.torch_compat.aot_autograd.higher_order import with_effects

Run = Callable[[list], list]
Instead = Callable[[Exception], Run]
aten = torch.ops.aten

HEARD = "the graph is called within a TorchDispatchMode"

EXACT = tuple(
    f"aten.{name}"
    for name in (
        *("mm.", "bmm.", "addmm.", "baddbmm.", "convolution.", "convolution_backward.", "embedding_dense_backward."),
        *("_scaled_dot_product", "_flash_attention", "_efficient_attention", "_cudnn_attention"),
    )
)
"""Beginnings of operators that give what their meta functions promise, at all sizes."""


@dataclass(frozen=True)
class Effects:
    """What running a graph changes, and what is to be held for eager.

    written   positions of inputs
    random    whether generators are drawn from
    again     whether it can be run again once both are put back
    frees     whether it frees what it takes as it goes, on a GPU
    always    whether an ATen call may give something else than promised at other sizes, so that each call is like the first
    """

    written: tuple[int, ...] = ()
    random: bool = False
    again: bool = True
    always: bool = False
    frees: bool = False


def effects_of(gm: GraphModule, kind: str, program: Program) -> Effects:
    """The effects of an FX graph and of its program."""
    written, again = [], True
    placeholders: list[Node] = gm.graph.find_nodes(op="placeholder")
    targets = {node.target for node in gm.graph.nodes if node.op == "call_function"}
    for target in targets:
        changes = isinstance(target, torch._ops.OpOverload) and target._schema.is_mutable
        if target is with_effects or (changes and target is not aten.copy_.default):
            again = False
    for node in gm.graph.find_nodes(op="call_function", target=aten.copy_.default):
        if node.args[0] in placeholders:
            written.append(placeholders.index(node.args[0]))
        else:
            again = False
    random = any(torch.Tag.nondeterministic_seeded in getattr(target, "tags", ()) for target in targets)
    doubtful = any(not call.op.startswith(EXACT) for call in program.calls)
    always = doubtful and again and not random and not written and environment_of(gm) is not None
    frees = kind == "backward" and program.host.uses_gpu
    return Effects(tuple(written), random, again, always, frees)


def first_run(
    ready: Callable[[], tuple[Run, Effects, Instead | None]], instead: Instead, operators: Iterable[str] = ()
) -> Run:
    """The run that `ready` gives, when it is first called, or what `instead` gives where either fails.

    ready      gives the run, its effects, and what gives another run later on, which is held as long as the run
    operators  of ATen that the graph was made of, by name

    Any number of threads may call it. An interrupt leaves it as it was before.
    """
    lock = fork_lock()
    direct: Run | None = None  # what a call runs without further questions
    settled: Run | None = None
    overridden: Run | None = None
    heard: Run | None = None
    found: tuple[Run, Effects, Instead | None] | None = None
    later: Instead | None = None
    overrides, stale = LaterOverrides(operators), False

    def choose(run: Run) -> Run:
        nonlocal direct, settled, found, ready, instead
        settled = run
        direct = None if stale or overridden else run
        found = ready = instead = None  # type: ignore[assignment]  # they hold the graph
        return run

    def fail(error: Exception) -> Run:
        with lock:
            return settled or choose(instead(error))

    def look() -> None:
        """Somebody has overridden an operator, or taken that back."""
        nonlocal direct, stale
        direct, stale = None, True

    def known_run() -> Run | None:
        """What is to run, where that is known; the lock is held."""
        nonlocal direct, stale, overridden
        if stale and later is not None:
            stale = False
            why = overrides.found()
            overridden = later(UnsupportedGraph(why)) if why else None
        chosen = overridden or settled
        if chosen is not None and not stale:
            direct = chosen
        return chosen

    def make() -> None:
        """Has a run, if there is none; the lock is held."""
        nonlocal found, later
        if settled is None and found is None:
            try:
                found = with_room(ready)
                later = found[2]
            except Exception as error:
                fail(error)

    def run_heard(args: list) -> list:
        """The graph in eager, for a mode that is to see its operators."""
        nonlocal heard
        with lock:
            if heard is None:
                with without_modes():
                    make()
                    heard = settled if later is None else later(UnsupportedGraph(HEARD))
        return (heard or begin)(args)

    def begin(args: list) -> list:
        with lock:
            make()
            chosen, known = known_run(), found
        if chosen is not None or known is None:
            return chosen(args)  # type: ignore[misc]
        run, effects, _ = known
        before = fallback.optional(Before, args, effects) if effects.again else None
        if before is None:
            results = run(args)
        else:
            held = before.held
            try:
                results = run(args)
            except Exception as error:
                if belongs_to_the_user(error):
                    raise
                before.put_back()
                before = None
                return fail(error)(held())
        if not effects.always:
            with lock:
                if settled is None:
                    choose(run)
        return results

    def call(args: list) -> list:
        if depth() and hears_operators():
            return run_heard(args)
        return begin(args) if direct is None else direct(args)

    call._boxed_call = True  # type: ignore[attr-defined]
    call.look = look  # type: ignore[attr-defined]
    overrides.tell(call)
    return call


class Before:
    """The state of what a graph changes, before it runs."""

    def __init__(self, args: Sequence[Any], effects: Effects):
        self.tensors = [(args[k], args[k].clone()) for k in effects.written if isinstance(args[k], torch.Tensor)]
        gpus = {x.device for x in args if isinstance(x, torch.Tensor) and x.is_cuda} if effects.random else ()
        self.held = hold(args, effects.frees)
        self.state = torch.get_rng_state() if effects.random else None
        self.gpu_states = [(device, torch.cuda.get_rng_state(device)) for device in gpus]

    def put_back(self) -> None:
        with torch.no_grad():
            for x, value in self.tensors:
                x.copy_(value)
        if self.state is not None:
            torch.set_rng_state(self.state)
        for device, state in self.gpu_states:
            torch.cuda.set_rng_state(state, device)
