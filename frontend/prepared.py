"""What a graph keeps of its parameters between calls: packed weights, made anew when a parameter has changed."""

from collections.abc import Callable, Sequence

import torch


class Prepared:
    """Tensors computed from some of a graph's inputs, kept until one of those changes.

    A parameter has changed when its version counter or its address is another one; its memory is held, so that no other
    parameter gets that address. An inference tensor has no version counter: with one of those among the inputs nothing is
    kept. Two threads that see a change at once both compute the tensors, and either's are kept: they are never written to
    after that.
    """

    def __init__(self, prepare: Callable[[list], list], positions: Sequence[int]):
        """prepare(inputs at `positions`) -> the tensors."""
        self.prepare, self.positions = prepare, tuple(positions)
        self._kept: tuple[list, list, list] = ([], [], [])

    def of(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The tensors for these inputs of the graph."""
        used = [inputs[k] for k in self.positions]
        try:
            state = [(x.data_ptr(), x._version) for x in used]
        except RuntimeError:  # an inference tensor
            return self.prepare(used)
        known, tensors, _ = self._kept
        if state != known:
            tensors = self.prepare(used)
            self._kept = (state, tensors, [x.untyped_storage() for x in used])
        return tensors
