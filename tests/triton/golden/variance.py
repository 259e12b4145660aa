# ruff: noqa: F841
# grid 4096, 1, 1; {'RBLOCK': 1024}; 2 warps
import triton
import triton.language as tl


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def is_odd(mean, squares, size):
    rounding = mean * 9.5367431640625e-07
    return ((squares > 0.0) & (squares < rounding * rounding * size)) | (squares - squares != 0.0)


@triton.jit
def settle_squares(squares, scaled, least, largest):
    overflows = (squares - squares != 0.0) & (scaled - scaled == 0.0)
    return tl.where(overflows, tl.where(least < largest, float("inf"), 0.0), squares)


@triton.jit
def fold_spread(scaled, least, largest, other, less, larger):
    return scaled + other, tl.minimum(least, less), tl.maximum(largest, larger)


@triton.jit
def settle_mean(mean, scaled, least, largest, size):
    scaled = scaled / size
    inside = tl.where(mean - mean == 0.0, mean, scaled * 18446744073709551616.0)
    inside = tl.minimum(tl.maximum(inside, least), largest) + 0.0
    return tl.where(scaled - scaled == 0.0, inside, mean)


@triton.jit
def kernel_0(p0, p1, RBLOCK: tl.constexpr):
    x = tl.program_id(0)
    r = tl.arange(0, RBLOCK)
    r_mask = r < 768
    v0 = tl.load(p0 + (x * 768 + r), r_mask)
    v1 = v0.to(tl.float32)
    v2 = tl.where(r_mask, v1, 0.0)
    v3 = tl.reduce(v2, 0, fold_sum)
    v4 = tl.div_rn(v3, tl.full([], 768.0, tl.float32))
    v5 = v1 - v4
    v6 = v5 * v5
    v7 = tl.where(r_mask, v6, 0.0)
    v8 = tl.reduce(v7, 0, fold_sum)
    v9 = is_odd(v4, v8, tl.full([], 768.0, tl.float32))
    v10 = v4
    v11 = v8
    if v9:
        v12 = tl.where(r_mask, v1, 0.0)
        v13 = v12 * 5.421010862427522e-20
        v14 = tl.where(r_mask, v12, float("inf"))
        v15 = tl.where(r_mask, v12, float("-inf"))
        v16 = tl.reduce((v13, v14, v15), 0, fold_spread)
        v17 = v16[0]
        v18 = v16[1]
        v19 = v16[2]
        v20 = settle_mean(v4, v17, v18, v19, tl.full([], 768.0, tl.float32))
        v21 = v1 - v20
        v22 = v21 * v21
        v23 = tl.where(r_mask, v22, 0.0)
        v24 = tl.reduce(v23, 0, fold_sum)
        v11 = tl.where(v9, settle_squares(v24, v17, v18, v19), v11)
        v10 = tl.where(v9, v20, v10)
    v25 = v1 - v10
    v26 = v25 * v25
    v27 = tl.div_rn(v11, tl.full([], 768.0, tl.float32))
    v28 = tl.sqrt_rn(v27)
    v29 = tl.div_rn(tl.full([], 1.0, tl.float32), v28)
    v30 = v25 * v29
    tl.store(p1 + (x * 768 + r), v30, r_mask)
