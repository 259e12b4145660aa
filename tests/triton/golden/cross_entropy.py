# grid 4096, 1, 1; {'RBLOCK': 4096, 'PTX': 1}; 8 warps
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def fold_nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def exp2_flushed(x, PTX: tl.constexpr):
    if PTX:
        made = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        made = tl.exp2(x)
    return made


@triton.jit
def exp_flushed(x, PTX: tl.constexpr):
    return exp2_flushed(x * 1.4426950408889634, PTX)


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def fold_fast_exponentials(top, total, x, PTX: tl.constexpr):
    x = tl.reshape(x, [16, x.shape[0] // 16])
    new = tl.maximum(top, tl.reduce(x, 0, fold_nan_max), propagate_nan=tl.PropagateNan.ALL)
    return new, total * exp_flushed(top - new, PTX) + tl.reduce(exp_flushed(x - new[None, :], PTX), 0, fold_sum)


@triton.jit
def kernel_0(p0, p1, RBLOCK: tl.constexpr, PTX: tl.constexpr):
    x = tl.program_id(0)
    v0 = tl.full([RBLOCK // 16], -3.4028234663852886e38, tl.float32)
    v1 = tl.full([RBLOCK // 16], 0.0, tl.float32)
    for start in range(0, 49152, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        v2 = tl.load(p0 + (x * 50257 + r))
        v3 = v2.to(tl.float32)
        v0, v1 = fold_fast_exponentials(v0, v1, v3, PTX)
    for start in range(49152, 50257, RBLOCK):
        r = start + tl.arange(0, RBLOCK)
        r_mask = r < 50257
        v4 = tl.load(p0 + (x * 50257 + r), r_mask)
        v5 = v4.to(tl.float32)
        v6 = tl.where(r_mask, v5, float("-inf"))
        v0, v1 = fold_fast_exponentials(v0, v1, v6, PTX)
    v7 = tl.reduce(v0, 0, fold_nan_max)
    v8 = tl.reduce(v1 * tl.exp(v0 - v7), 0, fold_sum)
    v9 = v8 == 0.0
    v10 = tl.where(v9, tl.full([], float("-inf"), tl.float32), v7)
    v11 = v10 - v10
    v12 = tl.exp(v11)
    v13 = tl.abs(v10)
    v14 = v13 == float("inf")
    v15 = tl.where(v14, v12, v8)
    v16 = libdevice.log(v15)
    v17 = v16 + v10
    tl.store(p1 + x, v17)
