"""Inputs with the state of PyTorch's generator before the call, which a capture keeps: what draws at random draws the same again."""

from collections.abc import Iterable
from typing import Any

import torch

NAME = "random_state"
SEED = 0  # of what a graph draws at random without a state: the same in each execution
NUMBERS = 624  # that the Mersenne twister makes at once
LEFT, NEXT = 8, 16  # bytes: where a state has how many are left, an int32, and which is next, an int64


class Inputs(list):
    """The arguments of a module, and the state that they were used with, or None."""

    def __init__(self, values: Iterable[Any], random_state: torch.Tensor | None = None):
        super().__init__(values)
        self.random_state = random_state


def begin(inputs: Any) -> None:
    """Sets PyTorch's generator to what it was for these inputs, or to what it always is."""
    state = getattr(inputs, "random_state", None)
    if state is None:
        torch.manual_seed(SEED)
    else:
        torch.set_rng_state(state)


def why_no_state(state: torch.Tensor) -> str:
    """Why a tensor from a file is no state of the generator, or "". PyTorch itself would read behind the numbers that there are."""
    size = torch.get_rng_state().numel()
    if state.dtype != torch.uint8 or state.dim() != 1 or state.numel() != size:
        return f"is {state.dtype} {list(state.shape)}, not {size} bytes"
    left = int.from_bytes(state[LEFT : LEFT + 4].tolist(), "little", signed=True)
    next_ = int.from_bytes(state[NEXT : NEXT + 8].tolist(), "little")
    if left < 1 or next_ > NUMBERS or left + next_ > NUMBERS + 1:
        return f"has {left} numbers left from number {next_} of {NUMBERS}"
    try:
        torch.Generator().set_state(state)
    except RuntimeError as error:
        return f"is refused: {' '.join(str(error).split())}"
    return ""
