"""The GPU kernel that stores the state of PyTorch's random generator."""

from mlirc.lowering.gpu.kernel import TritonKernel

STATE = """import triton
import triton.language as tl


@triton.jit
def random_state(out, seed, offset, within, captured):
    recorded = captured != 0  # as part of a CUDA graph: addresses
    held = tl.load(seed.to(tl.pointer_type(tl.int64)), recorded, other=0)
    start = tl.load(offset.to(tl.pointer_type(tl.int64)), recorded, other=0)
    tl.store(out, tl.where(recorded, held, seed))
    tl.store(out + 1, tl.where(recorded, start + within, offset) // 4)
"""


def state_kernel() -> TritonKernel:
    """What writes down a generator's state, for each `mlirc::random_state` (codegen/cuda/random.py launches it).

    A load has its result cleared first (Triton's inline assembly): a variable that is an address on one way and what was
    loaded from there on the other, `seed = tl.load(seed)` in an `if`, gets one register, and the address becomes null.
    """
    return TritonKernel(STATE, ["*i64", "i64", "i64", "i64", "i64"], {}, [1, 1, 1], num_warps=1)
