# grid s0, 1, 1; {'RBLOCK': 1024}; 2 warps
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
def fold_exponentials(top, total, x):
    x = tl.reshape(x, [16, x.shape[0] // 16])
    new = tl.maximum(top, tl.reduce(x, 0, fold_nan_max), propagate_nan=tl.PropagateNan.ALL)
    return new, total * libdevice.exp(top - new) + tl.reduce(libdevice.exp(x - new[None, :]), 0, fold_sum)


@triton.jit
def kernel_0(p0, p1, s0, s1, RBLOCK: tl.constexpr):
    x = tl.program_id(0).to(tl.int64)
    v0 = tl.full([RBLOCK // 16], -3.4028234663852886e38, tl.float32)
    v1 = tl.full([RBLOCK // 16], 0.0, tl.float32)
    for start in range(0, s1, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < s1
        v2 = tl.load(p0 + (x * s1 + r), r_mask)
        v3 = tl.where(r_mask, v2, float("-inf"))
        v0, v1 = fold_exponentials(v0, v1, v3)
    v4 = tl.reduce(v0, 0, fold_nan_max)
    v5 = tl.reduce(v1 * libdevice.exp(v0 - v4), 0, fold_sum)
    v6 = v5 == 0.0
    v7 = tl.where(v6, tl.full([], float("-inf"), tl.float32), v4)
    v8 = v7 - v7
    v9 = libdevice.exp(v8)
    v10 = tl.abs(v7)
    v11 = v10 == float("inf")
    v12 = tl.where(v11, v9, v5)
    v13 = tl.where(s1 > 0, v12, 0.0)
    for start in range(0, s1, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < s1
        v14 = tl.load(p0 + (x * s1 + r), r_mask)
        v15 = v14 - v7
        v16 = libdevice.exp(v15)
        v17 = tl.div_rn(v16, v13)
        tl.debug_barrier()  # a warp may still have to read what another one writes
        tl.store(p1 + (x * s1 + r), v17, r_mask)
