# grid 2048, 1, 1; {'XBLOCK': 32, 'RBLOCK': 64}; 4 warps
import triton
import triton.language as tl


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def kernel_0(p0, p1, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, RBLOCK)[None, :]
    r_mask = r < 60
    v0 = tl.load(p0 + (x * 60 + r), r_mask)
    v1 = tl.where(r_mask, v0, 0.0)
    v2 = tl.reduce(v1, 1, fold_sum, keep_dims=True)
    tl.store(p1 + x, v2)
