# grid 512, 1, 1; {'RBLOCK': 4096}; 8 warps
import triton
import triton.language as tl


@triton.jit
def fold_nan_argmax(a, i, b, j):
    later = (b > a) | ((b != b) & (a == a))
    later |= ((a == b) | ((a != a) & (b != b))) & (j < i)
    return tl.where(later, b, a), tl.where(later, j, i)


@triton.jit
def kernel_0(p0, p1, RBLOCK: tl.constexpr):
    x = tl.program_id(0)
    v0 = tl.full([RBLOCK], float("-inf"), tl.float32)
    v1 = tl.full([RBLOCK], 0, tl.int32)
    for start in range(0, 49152, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        v2 = tl.load(p0 + (x * 50257 + r))
        v3 = v2.to(tl.float32)
        v0, v1 = fold_nan_argmax(v0, v1, v3, r)
    for start in range(49152, 50257, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        r_mask = r < 50257
        v4 = tl.load(p0 + (x * 50257 + r), r_mask)
        v5 = v4.to(tl.float32)
        v6 = tl.where(r_mask, v5, float("-inf"))
        v0, v1 = fold_nan_argmax(v0, v1, v6, r)
    v7 = tl.reduce((v0, v1), 0, fold_nan_argmax)
    v8 = v7[1]
    v9 = v8.to(tl.int64)
    tl.store(p1 + x, v9)
