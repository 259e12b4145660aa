"""PyTorch's random numbers on an NVIDIA GPU (Philox), so that kernels draw the same numbers as eager.

A generator has a seed and an offset. An operator takes the offset, moves it on by what a thread of its kernel draws, and
thread t draws Philox4x32-10(key = seed, counter = [offset/4 + j, t]) for j = 0, 1, ...: 4 words of 32 bits each.
Which element gets which word follows from the launch, which follows from the number of elements and of multiprocessors.

`mlirc::random_state(device, increment)` is the operator that takes the seed and offset/4, as a tensor of two int64.
A host program has it in native code (codegen/cuda/random.py); from Python it is for what interprets a graph.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch

OPERATOR = "mlirc.random_state.default"
BLOCK, UNROLL = 256, 4  # threads of a block of ATen's kernel, words that a thread draws at once


_answers: list[Callable[[], bool]] = []


def told_by(answer: Callable[[], bool]) -> None:
    """Lets `answer` say whether native code can take a generator's state (codegen/abi/cuda_generator.py)."""
    _answers.append(answer)


def is_native() -> bool:
    """Whether it can: then kernels draw the numbers themselves."""
    return any(answer() for answer in _answers)


@dataclass(frozen=True)
class DropoutLaunch:
    """How aten::native_dropout launches its kernel for dense tensors that begin at multiples of 16 bytes.

    width      elements that a thread has next to each other
    threads    in all
    increment  of the generator's offset
    """

    width: int
    threads: int
    increment: int


def dropout_launch(elements: int, itemsize: int, device: str) -> DropoutLaunch | None:
    """None where a thread has fewer than 4 elements next to each other, or where indices take 64 bits."""
    width = 16 // itemsize
    while elements % width:
        width //= 2
    if width < UNROLL or elements >= 1 << 31 or elements == 0:
        return None
    blocks = min(most_blocks(device), -(-elements // BLOCK))
    return DropoutLaunch(width, BLOCK * blocks, ((elements - 1) // (BLOCK * blocks * UNROLL) + 1) * UNROLL)


def most_blocks(device: str) -> int:
    """Blocks of 256 threads that the GPU holds at once."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK)


def random_state(device: int, increment: int) -> torch.Tensor:
    """The seed and offset/4 of the GPU's generator, which moves on by `increment`."""
    generator = torch.cuda.default_generators[device]
    offset = generator.get_offset()
    generator.set_offset(offset + increment)
    return torch.tensor([_signed(generator.initial_seed()), offset // UNROLL], device=torch.device("cuda", device))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_library = torch.library.Library("mlirc", "DEF")
_library.define("random_state(int device, int increment) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.impl("random_state", random_state, "CompositeExplicitAutograd")
