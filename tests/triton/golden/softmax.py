# grid 1024, 1, 1; {'XBLOCK': 4, 'RBLOCK': 512}; 4 warps
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def fold_nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def kernel_0(p0, p1, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    v0 = tl.load(p0 + (x * 512 + r))
    v1 = tl.reduce(v0, 1, fold_nan_max, keep_dims=True)
    v2 = v0 - v1
    v3 = libdevice.exp(v2)
    v4 = tl.reduce(v3, 1, fold_sum, keep_dims=True) + 0.0
    v5 = tl.div_rn(v3, v4)
    tl.debug_barrier()  # a warp may still have to read what another one writes
    tl.store(p1 + (x * 512 + r), v5)
