# grid s0, 1, 1; {'RBLOCK': 2048}; 8 warps
import triton
import triton.language as tl


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def kernel_0(p0, p1, s0, RBLOCK: tl.constexpr):
    x = tl.program_id(0).to(tl.int64)
    carry0 = tl.full([], 0.0, tl.float32)
    for start in range(0, 20000, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < 20000
        v0 = tl.load(p0 + (x * 20000 + r), r_mask)
        v1 = tl.where(r_mask, v0, 0.0)
        v2 = tl.associative_scan(v1, 0, fold_sum)
        v3 = fold_sum(carry0, v2)
        v4 = tl.reduce(v1, 0, fold_sum)
        carry0 = fold_sum(carry0, v4)
        tl.debug_barrier()  # a warp may still have to read what another one writes
        tl.store(p1 + (x * 20000 + r), v3, r_mask)
