"""PyTorch's random generator of an NVIDIA GPU: the C++ functions that take its state, and the offset of its lock.

The lock's offset follows from the sizes of members, which PyTorch's installed headers give. Two checks come before any use. The bytes at
the offset must be an unlocked mutex. The state, taken without advancing it, must be the one that Python's interface gives.
"""

import ctypes
from pathlib import Path

import torch

from mlirc.codegen.abi.reach import LeftOut, Missing, reach
from mlirc.dialects.core import random_state
from mlirc.dialects.lazy_dataclass import dataclass

GENERATOR = "_ZN2at4cuda6detail23getDefaultCUDAGeneratorEa"  # const at::Generator& at::cuda::detail::...(DeviceIndex)
STATE = "_ZN2at17CUDAGeneratorImpl17philox_cuda_stateEm"  # at::PhiloxCudaState at::CUDAGeneratorImpl::...(uint64_t)
WITHIN = 16  # after seed and offset, or their addresses
MUTEX_BYTES = 40


@dataclass(frozen=True)
class GeneratorLayout:
    """Byte offsets of fields in C++ objects.

    mutex    of a CUDAGeneratorImpl
    within   of a PhiloxCudaState: what a recording adds to the offset, an integer of `within_bits`; captured: a bool
    """

    mutex: int
    within_bits: int

    @property
    def captured(self) -> int:
        return WITHIN + self.within_bits // 8


@reach("cuda-generator", instead="random numbers on GPUs are drawn by ATen's kernels")
def layout() -> GeneratorLayout:
    """The layout in this build of PyTorch, read from its headers. Raises LeftOut without a GPU, Missing where it is not as expected."""
    folder = Path(torch.__file__).parent
    include = folder / "include"
    if not torch.cuda.is_available():
        raise LeftOut("there is no GPU")
    library = ctypes.CDLL(str(folder / "lib" / "libtorch_cuda.so"))
    pointer = (include / "c10/util/intrusive_ptr.h").read_text()
    generator = (include / "c10/core/GeneratorImpl.h").read_text()
    state = (include / "ATen/cuda/detail/PhiloxCudaStateRaw.cuh").read_text()
    bits = next((n for n in (32, 64) if f"uint{n}_t offset_intragraph_" in state), None)
    if bits is None or "std::mutex mutex_;" not in generator:
        raise Missing("its headers say something else than what is known")
    known = GeneratorLayout(16 if "combined_refcount_" in pointer else 24, bits)  # after the table of virtual functions
    _try(library, known)
    return known


def _try(library: ctypes.CDLL, known: GeneratorLayout) -> None:
    device = torch.cuda.current_device()
    if torch.cuda.is_current_stream_capturing():
        raise Missing("a CUDA graph is being recorded while it is tried")
    expected = torch.cuda.default_generators[device]
    default, take = library[GENERATOR], library[STATE]
    default.restype = ctypes.POINTER(ctypes.c_uint64)
    self_ = default(ctypes.c_int8(device))[0]
    if any((ctypes.c_uint8 * MUTEX_BYTES).from_address(self_ + known.mutex)):
        raise Missing("its lock is not where the headers say")
    take.restype = _State
    state = take(ctypes.c_void_p(self_), ctypes.c_uint64(0))
    seed = expected.initial_seed() & (1 << 64) - 1
    if (state.seed, state.offset, state.rest[(known.captured - WITHIN)]) != (seed, expected.get_offset(), 0):
        raise Missing("its state is not what Python says of it")


class _State(ctypes.Structure):
    """A PhiloxCudaState, which is returned in memory."""

    _fields_ = [("seed", ctypes.c_uint64), ("offset", ctypes.c_uint64), ("rest", ctypes.c_uint8 * 16)]


random_state.add_native_check(lambda: layout() is not None)
