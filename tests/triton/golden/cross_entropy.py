# grid 4096, 1, 1; {'RBLOCK': 2048}; 8 warps
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
def kernel_0(p0, p1, RBLOCK: tl.constexpr):
    x = tl.program_id(0)
    v0 = tl.full([RBLOCK], float("-inf"), tl.float32)
    for start in range(0, 50257, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        r_mask = r < 50257
        v1 = tl.load(p0 + (x * 50257 + r), r_mask)
        v2 = v1.to(tl.float32)
        v3 = tl.where(r_mask, v2, float("-inf"))
        v0 = fold_nan_max(v0, v3)
    v4 = tl.reduce(v0, 0, fold_nan_max)
    v5 = tl.full([RBLOCK], 0.0, tl.float32)
    for start in range(0, 50257, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        r_mask = r < 50257
        v6 = tl.load(p0 + (x * 50257 + r), r_mask)
        v7 = v6.to(tl.float32)
        v8 = v7 - v4
        v9 = libdevice.exp(v8)
        v10 = tl.where(r_mask, v9, 0.0)
        v5 = fold_sum(v5, v10)
    v11 = tl.reduce(v5, 0, fold_sum)
    v12 = libdevice.log(v11)
    v13 = v12 + v4
    tl.store(p1 + x, v13)
