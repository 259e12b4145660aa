"""PyTorch's random numbers on an NVIDIA GPU (Philox), so that kernels draw the same numbers as eager.

A generator has a seed and an offset. An operator reads the offset, and advances it by the numbers that one thread of its kernel draws.
Thread t draws Philox4x32-10(key = seed, counter = [offset/4 + j, t]) for j = 0, 1, ...: 4 words of 32 bits each. Which thread, and so which word, an
element gets depends on how ATen launches its kernel. `dropout_launch` computes that from the number of elements and the GPU's multiprocessors.

The operator `mlirc::random_state(device, increment)` returns the seed and offset/4, as a tensor of two int64. A host program calls native code
in its place (codegen/cuda/random.py); the interpreter calls it from Python.
"""

from collections.abc import Callable

import torch

from mlirc.dialects.lazy_dataclass import dataclass

OPERATOR = "mlirc.random_state.default"
BLOCK, UNROLL = 256, 4  # threads of a block of ATen's kernel, words that a thread draws at once


_native_checks: list[Callable[[], bool]] = []


def add_native_check(check: Callable[[], bool]) -> None:
    """Registers a function that says whether native code can read a generator's state. codegen/abi/cuda_generator.py has one; none: it cannot."""
    _native_checks.append(check)


def is_native() -> bool:
    """Whether native code can read a generator's state, so that kernels draw the numbers."""
    return any(check() for check in _native_checks)


@dataclass(frozen=True)
class DropoutLaunch:
    """How aten::native_dropout launches its kernel for dense tensors that begin at multiples of 16 bytes.

    width      contiguous elements that a thread reads at once
    threads    of all blocks together
    increment  what the operator adds to the generator's offset
    """

    width: int
    threads: int
    increment: int


def dropout_launch(elements: int, itemsize: int, device: str) -> DropoutLaunch | None:
    """The launch for a tensor of this many elements; None where a thread has fewer than 4 contiguous elements, or indices take 64 bits."""
    width = 16 // itemsize
    while elements % width:
        width //= 2
    if width < UNROLL or elements >= 1 << 31 or elements == 0:
        return None
    blocks = min(most_blocks(device), -(-elements // BLOCK))
    return DropoutLaunch(width, BLOCK * blocks, ((elements - 1) // (BLOCK * blocks * UNROLL) + 1) * UNROLL)


def most_blocks(device: str) -> int:
    """The number of blocks of 256 threads that run on the GPU at once."""
    properties = torch.cuda.get_device_properties(device)
    return properties.multi_processor_count * (properties.max_threads_per_multi_processor // BLOCK)


def random_state(device: int, increment: int) -> torch.Tensor:
    """The seed and offset/4 of the GPU's generator, as two int64. Advances the offset by `increment`."""
    generator = torch.cuda.default_generators[device]
    offset = generator.get_offset()
    generator.set_offset(offset + increment)
    return torch.tensor([_signed(generator.initial_seed()), offset // UNROLL], device=torch.device("cuda", device))


def _signed(word: int) -> int:
    return word - (1 << 64) if word >> 63 else word


_library = torch.library.Library("mlirc", "DEF")
_library.define("random_state(int device, int increment) -> Tensor", tags=(torch.Tag.nondeterministic_seeded,))
_library.impl("random_state", random_state, "CompositeExplicitAutograd")
