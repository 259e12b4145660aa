"""What a graph keeps of its parameters between calls: packed weights, made anew when a parameter has changed."""

from collections.abc import Callable, Sequence

import torch

from mlirc.codegen.tensor_states import State, States


class Prepared:
    """Tensors computed from some of a graph's inputs, kept until one of those changes.

    A parameter has changed when its version counter or its address is another one; its memory is held, so that no other
    parameter gets that address. An inference tensor has no version counter: with one of those among the inputs nothing is
    kept. Two threads that see a change at once both compute the tensors, and either's are kept: they are never written to
    after that. On a GPU they are there before anybody else can ask for them, in whichever stream; what is computed
    while a caller records a CUDA graph is there when that is replayed, so it is not kept.
    """

    def __init__(self, prepare: Callable[[list], list], positions: Sequence[int]):
        """prepare(inputs at `positions`) -> the tensors."""
        self.prepare, self.positions = prepare, tuple(positions)
        self._states = States(positions, counted=True)
        self._kept: tuple[State | None, list, list] = (None, [], [])

    def of(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors for these inputs of the graph."""
        known, tensors, _ = self._kept
        if known is not None and self._states.same(inputs, known):
            return tensors
        used, state = [inputs[k] for k in self.positions], self._states.of(inputs)
        tensors = self.prepare(used)
        if state is not None and _are_there(tensors):
            self._kept = (state, tensors, [x.untyped_storage() for x in used])
        return tensors


def _are_there(tensors: list[torch.Tensor]) -> bool:
    """Waits until the tensors are computed; False where that would be to wait for a replay."""
    devices = {x.device for x in tensors if x.is_cuda}
    if devices and torch.cuda.is_current_stream_capturing():
        return False
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return True
