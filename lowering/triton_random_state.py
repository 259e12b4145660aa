"""The kernel that writes down the state of a GPU's random generator."""

from mlirc.lowering.triton_kernel import TritonKernel

STATE = """import triton
import triton.language as tl


@triton.jit
def random_state(out, seed, offset, within, captured):
    if captured != 0:  # while a CUDA graph is recorded: addresses
        seed = tl.load(seed.to(tl.pointer_type(tl.int64)))
        offset = tl.load(offset.to(tl.pointer_type(tl.int64))) + within
    tl.store(out, seed)
    tl.store(out + 1, offset // 4)
"""


def state_kernel() -> TritonKernel:
    """What writes down a generator's state, for each `mlirc::random_state` (codegen/cuda_random.py launches it)."""
    return TritonKernel(STATE, ["*i64", "i64", "i64", "i64", "i64"], {}, [1, 1, 1], num_warps=1)
