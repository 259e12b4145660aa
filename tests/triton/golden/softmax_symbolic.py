# grid s0, 1, 1; {'RBLOCK': 1024}; 4 warps
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
def kernel_0(p0, p1, s0, s1, RBLOCK: tl.constexpr):
    x = tl.program_id(0).to(tl.int64)
    v0 = tl.full([RBLOCK], float("-inf"), tl.float32)
    for start in range(0, s1, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < s1
        v1 = tl.load(p0 + (x * s1 + r), r_mask)
        v2 = tl.where(r_mask, v1, float("-inf"))
        v0 = fold_nan_max(v0, v2)
    v3 = tl.reduce(v0, 0, fold_nan_max)
    v4 = tl.full([RBLOCK], 0.0, tl.float32)
    for start in range(0, s1, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < s1
        v5 = tl.load(p0 + (x * s1 + r), r_mask)
        v6 = v5 - v3
        v7 = libdevice.exp(v6)
        v8 = tl.where(r_mask, v7, 0.0)
        v4 = fold_sum(v4, v8)
    v9 = tl.reduce(v4, 0, fold_sum)
    for start in range(0, s1, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < s1
        v10 = tl.load(p0 + (x * s1 + r), r_mask)
        v11 = v10 - v3
        v12 = libdevice.exp(v11)
        v13 = tl.div_rn(v12, v9)
        tl.debug_barrier()  # a warp may still have to read what another one writes
        tl.store(p1 + (x * s1 + r), v13, r_mask)
