"""Frozen parameters: tensors computed from parameters alone (packed or folded weights), cached between calls, recomputed after an update."""

from collections.abc import Callable, Sequence
from typing import Any

import torch

from mlirc.codegen.runtime import fingerprint, tensor_states
from mlirc.codegen.runtime.fingerprint import Fingerprint, readable
from mlirc.codegen.runtime.tensor_states import State, States
from mlirc.dialects.lazy_dataclass import dataclass


class FrozenParameters:
    """Tensors computed from some of a graph's inputs, kept until one of those changes.

    A parameter has changed when its version counter, its address or its memory's fingerprint is another one; its memory is
    held, so that no other parameter gets that address. With `freeze` there is no fingerprint: the user says that nobody
    changes parameters but through PyTorch's operators. A tensor whose memory cannot be read here (of a GPU, of a library's
    own layout) has no fingerprint: with one of those among the inputs, and no `freeze`, nothing is kept.

    Two threads that see a change at once both compute the tensors, and either's are kept: they are never written to
    after that. On a GPU they are there before anybody else can ask for them, in whichever stream; what is computed
    while a caller records a CUDA graph is there when that is replayed, so it is not kept.
    """

    def __init__(self, prepare: Callable[[list], list], positions: Sequence[int], freeze: bool = False):
        """prepare(inputs at `positions`) -> the tensors."""
        self.prepare, self.positions, self.freeze = prepare, tuple(positions), freeze
        self._counted, self._uncounted = States(positions, counted=True), States(positions, counted=False)
        self._frozen: CachedTensors | None = None

    def of(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors for these inputs of the graph."""
        frozen = self._frozen
        if (
            frozen is not None
            and frozen.states.same(inputs, frozen.state)
            and (frozen.fingerprint is None or frozen.fingerprint.same())
        ):
            return frozen.tensors
        self._frozen = frozen = None  # else two copies are held
        used = [inputs[k] for k in self.positions]
        found = self._now(inputs, used)
        tensors = self.prepare(used)
        if found is not None and _are_there(tensors):
            self._frozen = CachedTensors(*found, tensors, [x.untyped_storage() for x in used])
        return tensors

    def _now(
        self, inputs: list[torch.Tensor], used: list[torch.Tensor]
    ) -> tuple[States, State, Fingerprint | None] | None:
        """What there is to tell a change by; None where there is no telling."""
        if not self.freeze and not all(map(readable, used)):
            return None
        states = self._counted
        state = states.of(inputs)
        if state is None:  # an inference tensor has no version counter
            states = self._uncounted
            state = states.of(inputs)
        return states, state, None if self.freeze else Fingerprint(used)


def make_ready() -> None:
    """Makes the native code, which otherwise the first call does."""
    tensor_states.make_ready()
    fingerprint.make_ready()


@dataclass(frozen=True)
class CachedTensors:
    """`tensors`, as long as `states` and the fingerprint are what they were; `memory` is what they were computed from."""

    states: States
    state: State
    fingerprint: Fingerprint | None
    tensors: list[torch.Tensor]
    memory: list[Any]


def _are_there(tensors: list[torch.Tensor]) -> bool:
    """Waits until the tensors are computed; False where that would be to wait for a replay."""
    devices = {x.device for x in tensors if x.is_cuda}
    if devices and torch.cuda.is_current_stream_capturing():
        return False
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return True
