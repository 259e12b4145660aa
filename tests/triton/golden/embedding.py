# ruff: noqa: SIM102
# grid 3072, 1, 1; {'XBLOCK': 1024}; 4 warps
import triton
import triton.language as tl


@triton.jit
def kernel_0(p0, p1, p2, failure, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    v0 = x // 768
    v1 = tl.load(p0 + v0)
    v2 = v1 >= 0
    v3 = v1 < 50257
    v4 = v2 & v3
    v5 = ~v4
    if tl.max(v5.to(tl.int32)) > 0:
        if tl.atomic_cas(failure, tl.full([], 0, tl.int64), tl.full([], 1, tl.int64)) == 0:
            worst = tl.max(tl.where(v5, v1, -9223372036854775808))
            tl.store(failure + 1, worst)
            tl.store(failure + 2, tl.full([], 50257, tl.int64))
    v6 = tl.where(v4, v1, tl.full([], 0, tl.int64))
    v7 = v6.to(tl.int32)
    v8 = x % 768
    v9 = tl.load(p1 + (v8 + v7 * 768))
    tl.store(p2 + x, v9)
