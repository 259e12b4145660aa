# grid s0, 1, 1; {'RBLOCK': 4096}; 8 warps
import triton
import triton.language as tl


@triton.jit
def fold_sum(a, b):
    return a + b


@triton.jit
def kernel_0(p0, p1, s0, RBLOCK: tl.constexpr):
    x = tl.program_id(0).to(tl.int64)
    carry0 = tl.full([], 0.0, tl.float32)
    for start in range(0, 16384, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        v0 = tl.load(p0 + (x * 20000 + r))
        v1 = tl.associative_scan(v0, 0, fold_sum)
        v2 = fold_sum(carry0, v1)
        v3 = tl.reduce(v0, 0, fold_sum)
        carry0 = fold_sum(carry0, v3)
        tl.debug_barrier()  # a warp may still have to read what another one writes
        tl.store(p1 + (x * 20000 + r), v2)
    for start in range(16384, 20000, RBLOCK):
        r = start + tl.arange(0, RBLOCK).to(tl.int64)
        r_mask = r < 20000
        v4 = tl.load(p0 + (x * 20000 + r), r_mask)
        v5 = tl.where(r_mask, v4, 0.0)
        v6 = tl.associative_scan(v5, 0, fold_sum)
        v7 = fold_sum(carry0, v6)
        v8 = tl.reduce(v5, 0, fold_sum)
        carry0 = fold_sum(carry0, v8)
        tl.debug_barrier()  # a warp may still have to read what another one writes
        tl.store(p1 + (x * 20000 + r), v7, r_mask)
