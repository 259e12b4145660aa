# grid 4096, 1, 1; {'RBLOCK': 4096}; 8 warps
import triton
import triton.language as tl


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def fold_moments(mean, squares, x, share):
    rest = x - mean
    mean = tl.fma(rest, share, mean)
    return mean, tl.fma(rest, x - mean, squares)


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
    v0 = tl.full([RBLOCK], 0.0, tl.float32)
    v1 = tl.full([RBLOCK], 0.0, tl.float32)
    v2 = tl.full([RBLOCK], 0.0, tl.float32)
    v3 = tl.full([RBLOCK], 0.0, tl.float32)
    for start in range(0, 32768, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        v4 = tl.load(p0 + (x * 32768 + r))
        v5 = v4.to(tl.float32)
        v0 = fold_sum(v0, v5)
        v3 = tl.fma(v5, 5.421010862427522e-20, v3)
        v1, v2 = fold_moments(v1, v2, v5, 1.0 / (start // RBLOCK + 1))
    v6 = tl.reduce(v0, 0, fold_sum)
    v7 = ((32768 - tl.arange(0, RBLOCK) + (RBLOCK - 1)) // RBLOCK).to(tl.float32)
    v8 = tl.where(v7 > 0.0, tl.where(v1 - v1 == 0.0, v1, float("-inf")), float("inf"))
    v9 = tl.where(v7 > 0.0, tl.where(v1 - v1 == 0.0, v1, float("inf")), float("-inf"))
    v10 = tl.div_rn(v6, tl.full([], 32768.0, tl.float32))
    v11 = v1 - v10
    v12 = tl.where(v7 > 0.0, v2 + v7 * v11 * v11, 0.0)
    v13 = tl.reduce(v12, 0, fold_sum)
    v14 = is_odd(v10, v13, tl.full([], 32768.0, tl.float32))
    v15 = v10
    v16 = v13
    if v14:
        v17 = tl.reduce((v3, v8, v9), 0, fold_spread)
        v18 = v17[0]
        v19 = v17[1]
        v20 = v17[2]
        v21 = settle_mean(v10, v18, v19, v20, tl.full([], 32768.0, tl.float32))
        v22 = v1 - v21
        v23 = tl.where(v7 > 0.0, v2 + v7 * v22 * v22, 0.0)
        v24 = tl.reduce(v23, 0, fold_sum)
        v16 = tl.where(v14, settle_squares(v24, v18, v19, v20), v16)
        v15 = tl.where(v14, v21, v15)
    v25 = tl.div_rn(v16, tl.full([], 32768.0, tl.float32))
    v26 = tl.sqrt_rn(v25)
    v27 = tl.div_rn(tl.full([], 1.0, tl.float32), v26)
    for start in range(0, 32768, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        v28 = tl.load(p0 + (x * 32768 + r))
        v29 = v28.to(tl.float32)
        v30 = v29 - v15
        v31 = v30 * v27
        tl.store(p1 + (x * 32768 + r), v31)
