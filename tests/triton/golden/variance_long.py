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
    v4 = tl.full([RBLOCK], float("inf"), tl.float32)
    v5 = tl.full([RBLOCK], float("-inf"), tl.float32)
    for start in range(0, 32768, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        v6 = tl.load(p0 + (x * 32768 + r))
        v7 = v6.to(tl.float32)
        v0 = fold_sum(v0, v7)
        v8 = v7 * 5.421010862427522e-20
        v3 = v3 + v8
        v4 = tl.minimum(v4, v7)
        v5 = tl.maximum(v5, v7)
        v1, v2 = fold_moments(v1, v2, v7, 1.0 / (start // RBLOCK + 1))
    v9 = tl.reduce(v0, 0, fold_sum)
    v10 = ((32768 - tl.arange(0, RBLOCK) + (RBLOCK - 1)) // RBLOCK).to(tl.float32)
    v11 = tl.div_rn(v9, tl.full([], 32768.0, tl.float32))
    v12 = v1 - v11
    v13 = tl.where(v10 > 0.0, v2 + v10 * v12 * v12, 0.0)
    v14 = tl.reduce(v13, 0, fold_sum)
    v15 = is_odd(v11, v14, tl.full([], 32768.0, tl.float32))
    v16 = v11
    v17 = v14
    if v15:
        v18 = tl.reduce((v3, v4, v5), 0, fold_spread)
        v19 = v18[0]
        v20 = v18[1]
        v21 = v18[2]
        v22 = settle_mean(v11, v19, v20, v21, tl.full([], 32768.0, tl.float32))
        v23 = v1 - v22
        v24 = tl.where(v10 > 0.0, v2 + v10 * v23 * v23, 0.0)
        v25 = tl.reduce(v24, 0, fold_sum)
        v17 = tl.where(v15, settle_squares(v25, v19, v20, v21), v17)
        v16 = tl.where(v15, v22, v16)
    v26 = tl.div_rn(v17, tl.full([], 32768.0, tl.float32))
    v27 = tl.sqrt_rn(v26)
    v28 = tl.div_rn(tl.full([], 1.0, tl.float32), v27)
    for start in range(0, 32768, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        v29 = tl.load(p0 + (x * 32768 + r))
        v30 = v29.to(tl.float32)
        v31 = v30 - v16
        v32 = v31 * v28
        tl.store(p1 + (x * 32768 + r), v32)
