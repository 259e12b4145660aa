"""Runs a graph in eager where its inputs share memory in another way than those it was traced with.

A graph that writes to an input is traced for the memory that its inputs share at that time. Dynamo's guards tell one tensor given
twice from two tensors, but neither two tensors of one memory from two of their own, nor where in that memory each begins.
Where sizes are symbols, what AOTAutograd makes of tensors that overlap is wrong for the inputs themselves that it traced.
Some matrices that overlap it takes for two that do not: see `taken_apart`. In place of tensors that overlap its graph takes what they are views
of, or all of their storage, which no guard asks about either: see `bases`.

Parameters and buffers are many, and stay where they are: whether they overlap is asked again where one has moved.
"""

from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import field
from typing import Any

import torch
from torch.fx import GraphModule, Node

from mlirc.codegen.runtime.tensor_states import State, States
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.frontend.fallback.input_starts import is_strided, written_to
from mlirc.frontend.fallback.unless import in_eager_unless
from mlirc.frontend.torch_compat.fake_tensors import base_of, storage_id

ANOTHER_WAY = "inputs, one of which is written to, share memory in another way than when the graph was traced"
DEVICES = ("cpu", "cuda")
NORMS = {
    "batch_norm": "training",
    "instance_norm": "use_input_stats",
}  # what says whether running statistics are updated
NEVER = -1  # no distance, which is 0 or more: such inputs never share memory as they were traced

Span = tuple[int, int, int]  # address of the first byte, address behind the last one, position of the input
Overlaps = dict[
    tuple[int, int], int
]  # of two inputs, the one that begins first comes first: bytes between their starts
Base = tuple[tuple[int, ...], tuple[int, ...], int] | int
Bases = dict[int, tuple[int, Base]]


@dataclass(frozen=True)
class TracedMemory:
    """What memory the inputs of a graph shared when it was traced.

    places   inputs that may lie elsewhere in each call
    written  those inputs that the graph writes to
    overlaps as the function `overlaps` gives it
    bases    what AOTAutograd takes in their place, as the function `bases` gives it
    fixed    parameters, buffers and an optimizer's state, of known sizes
    """

    places: tuple[int, ...]
    written: frozenset[int]
    overlaps: Overlaps
    bases: Bases = field(default_factory=dict)
    fixed: tuple[int, ...] = ()
    _last: list["FixedMemory"] = field(default_factory=list, compare=False, repr=False)

    def same(self, args: Sequence[Any]) -> bool:
        """Whether the inputs of a call share memory in that way."""
        try:
            fixed = self.fixed_memory(args)
            if not self.overlaps and not fixed.overlaps:
                storages = [args[k].untyped_storage() for k in self.places]
                if apart(storages) and not any(fixed.reaches(storage) for storage in storages):
                    return True
            every = self.places + self.fixed
            if overlaps(spans(args, every), self.written) != self.overlaps:
                return False
            return not self.overlaps or bases({k: args[k] for k in every}, self.overlaps) == self.bases
        except (
            RuntimeError,
            NotImplementedError,
        ):  # a tensor without memory of its own: a subclass, or one that is traced
            return True

    def fixed_memory(self, args: Sequence[Any]) -> "FixedMemory":
        """Where `fixed` lie in this call: as in the last one, unless one of them has moved."""
        if not self.fixed:
            return NOWHERE
        inputs = list(args)
        for known in self._last:
            if known.states.same(inputs, known.state):
                return known
        states = States(self.fixed, counted=False)
        state, where = states.of(inputs), spans(args, self.fixed)
        made = FixedMemory(states, state, overlaps(where, self.written), *merged(where))
        self._last[:] = [made]
        return made


@dataclass(frozen=True)
class FixedMemory:
    """Where tensors that stay lie: their state, which of them overlap, and their memory as spans in order that do not touch."""

    states: States
    state: State
    overlaps: Overlaps
    starts: list[int]
    ends: list[int]

    def reaches(self, storage: torch.UntypedStorage) -> bool:
        """Whether the storage has memory in common with one of them."""
        first = storage.data_ptr()
        before = bisect_left(self.starts, first + storage.nbytes())
        return before > 0 and self.ends[before - 1] > first


NOWHERE = FixedMemory(States((), counted=False), None, {}, [], [])


def traced_memory(gm: GraphModule) -> TracedMemory | None:
    """What a Dynamo graph was traced with: which arguments shared memory. None where it writes to none, or has fewer than two."""
    given, static = arguments(gm)
    written = written_to(gm, given) | running_statistics(gm, given)
    if not written or len(given) < 2:
        return None
    fixed = tuple(k for k in given if k in static and all(isinstance(n, int) for n in numbers(given[k])))
    places = tuple(k for k in given if k not in fixed)
    found = traced_overlaps(given, written)
    return TracedMemory(places, frozenset(written), found, bases(given, found), fixed)


def with_memory(run: Callable, gm: GraphModule, tell: Callable[[Exception], None]) -> Callable:
    """`run`; the graph in eager for inputs that share memory otherwise. `tell` hears of the first such call."""
    traced = traced_memory(gm)
    return run if traced is None else in_eager_unless(traced.same, run, gm, ANOTHER_WAY, tell)


def arguments(gm: GraphModule) -> tuple[dict[int, torch.Tensor], set[int]]:
    """The tensors that a graph of Dynamo's is called with, by position; and which are parameters, buffers or an optimizer's state."""
    found, static = {}, set()
    for k, node in enumerate(gm.graph.find_nodes(op="placeholder")):
        x = node.meta.get("example_value")
        if is_strided(x) and type(x).__name__ == "FakeTensor" and x.device.type in DEVICES:
            found[k] = x
            if is_static(node):
                static.add(k)
    return found, static


def running_statistics(gm: GraphModule, given: dict[int, torch.Tensor]) -> set[int]:
    """Which of the fake tensors norms may update: their kernels count no writes. A norm's parameters count too."""
    nodes: list[Any] = []
    for node in gm.graph.nodes:
        flag = NORMS.get(getattr(node.target, "__name__", "")) if node.op == "call_function" else None
        if flag is not None and [*node.args, *[None] * 6][5] is not False and node.kwargs.get(flag) is not False:
            nodes += [*node.args[1:5], *node.kwargs.values()]
    values = [x.meta.get("example_value") for x in nodes if isinstance(x, Node)]
    memory = {storage_id(x) for x in values if is_strided(x)}
    return {k for k, x in given.items() if storage_id(x) in memory}


def is_static(node: Node) -> bool:
    """Whether Dynamo takes the tensor for one that stays: marked by `mark_static_address`, or a module's."""
    return "_dynamo_static_input_type" in node.meta.get("tensor_dict", {})


def traced_overlaps(given: dict[int, torch.Tensor], written: Set[int]) -> Overlaps:
    """Which of the fake tensors overlap. At no distance: where a symbol has a part in it, and where AOTAutograd is wrong."""
    groups: dict[int, list[int]] = {}
    for k, x in given.items():
        groups.setdefault(storage_id(x), []).append(k)
    found: Overlaps = {}
    for places in groups.values():
        known = [k for k in places if is_known(given[k])]
        spans = [(hint(x.storage_offset()) * x.element_size(), extent(x), k) for k in known for x in (given[k],)]
        fixed = {k for k in known if all(isinstance(n, int) for n in numbers(given[k]))}
        for pair, distance in overlaps(spans, written).items():
            lazy = any(given[k].is_conj() or given[k].is_neg() for k in pair)  # views of a base have no such flags
            exact = fixed.issuperset(pair) and not lazy and not taken_apart(*(given[k] for k in pair))
            found[pair] = distance if exact else NEVER
        found |= {(j, k): NEVER for j in set(places) - set(known) for k in places if j != k and {j, k} & written}
    return found


def taken_apart(first: torch.Tensor, second: torch.Tensor) -> bool:
    """Whether AOTAutograd takes two overlapping matrices of one row stride, `first` begins first, for tensors that do not overlap.

    It asks whether a row of `second` ends before the next row of `first` begins, and not whether it begins behind the end of a row of
    `first`: `x[::2]` and `x[::2][1:]` (compute_overlapping_tensors in torch/csrc/dynamo/guards.cpp).
    """
    if first.dim() != 2 or second.dim() != 2 or first.stride() != second.stride() or first.stride(1) != 1:
        return False
    if first.is_contiguous() and second.is_contiguous():
        return False
    distance, row = second.storage_offset() - first.storage_offset(), first.stride(0)
    return row > 0 and distance >= first.size(1) and distance % row < first.size(1)


def numbers(x: torch.Tensor) -> list[Any]:
    return [x.storage_offset(), *x.shape, *x.stride()]


def is_known(x: torch.Tensor) -> bool:
    return all(hint(n) is not None for n in numbers(x))


def hint(n: Any) -> Any:
    """A size's number when the graph was traced; None where nobody knows it."""
    return n if isinstance(n, int) else n.node.hint


def extent(x: torch.Tensor) -> int:
    """Bytes from a tensor's first element to behind its last one."""
    shape, strides = ([hint(n) for n in part] for part in (x.shape, x.stride()))
    if 0 in shape:
        return 0
    return (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))) * x.element_size()


def spans(args: Sequence[Any], places: Iterable[int]) -> list[tuple[int, int, int]]:
    """(address, bytes, position) of these inputs."""
    return [(args[k].data_ptr(), extent(args[k]), k) for k in places]


def merged(tensors: Iterable[tuple[int, int, int]]) -> tuple[list[int], list[int]]:
    """The first and the last addresses of all memory that tensors, (address, bytes, position), cover, in order."""
    starts: list[int] = []
    ends: list[int] = []
    for first, size, _ in sorted(tensors):
        if size and ends and first <= ends[-1]:
            ends[-1] = max(ends[-1], first + size)
        elif size:
            starts.append(first)
            ends.append(first + size)
    return starts, ends


def apart(storages: list[torch.UntypedStorage]) -> bool:
    """Whether no two of these have any memory in common."""
    spans = sorted([(s.data_ptr(), s.nbytes()) for s in storages])
    end = 0
    for first, size in spans:
        if size and first < end:
            return False
        end = max(end, first + size)
    return True


def overlaps(tensors: Iterable[tuple[int, int, int]], written: Set[int]) -> Overlaps:
    """(position, position) -> distance of their starts, for the pairs of tensors with memory in common of which one is written to.
    `tensors` are (address, bytes, position)."""
    found: Overlaps = {}
    reaching: list[Span] = []
    for first, size, k in sorted(tensors):
        reaching = [span for span in reaching if span[1] > first]
        if size:
            found |= {(j, k): first - start for start, _, j in reaching if j in written or k in written}
            reaching.append((first, first + size, k))
    return found


def bases(given: dict[int, torch.Tensor], found: Overlaps) -> Bases:
    """The bases of tensors that overlap: for each storage, by the first such tensor, where this begins in it, and the base."""
    together: dict[int, int] = {}
    for k in sorted({k for pair in found for k in pair}):
        together.setdefault(storage_id(given[k]), k)
    alike = {storage: [x for x in given.values() if storage_id(x) == storage] for storage in together}
    return {k: (hint(given[k].storage_offset()), base_among(alike[storage])) for storage, k in together.items()}


def base_among(tensors: Sequence[torch.Tensor]) -> Base:
    """Sizes, strides and start of what AOTAutograd takes for the base of tensors of one storage, at the call that is traced; the storage's
    bytes where none is a view for autograd."""
    views = [base for x in tensors if (base := base_of(x)) is not None]
    if not views:
        return hint(tensors[0].untyped_storage().nbytes())
    base = views[0]
    return tuple(map(hint, base.shape)), tuple(map(hint, base.stride())), hint(base.storage_offset())
