# grid 256, 1, 1; {'XBLOCK': 16, 'RBLOCK': 128}; 4 warps
import triton
import triton.language as tl


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def kernel_0(p0, p1, XBLOCK: tl.constexpr, RBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    v0 = tl.full([XBLOCK, RBLOCK], 0.0, tl.float32)
    for start in tl.range(0, 512, RBLOCK, loop_unroll_factor=2):
        r = start + tl.arange(0, RBLOCK)[None, :]
        v1 = tl.load(p0 + (x + r * 4096))
        v0 = fold_sum(v0, v1)
    v2 = tl.reduce(v0, 1, fold_sum, keep_dims=True)
    tl.store(p1 + x, v2)
