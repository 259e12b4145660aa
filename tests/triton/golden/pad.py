# grid 501, 1, 1; {'XBLOCK': 128}; 1 warps
import triton
import triton.language as tl


@triton.jit
def kernel_0(p0, p1, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    v0 = x % 1002
    v1 = (v0 + -1).to(tl.int64)
    v2 = v1 >= 0
    v3 = (v0 + -1).to(tl.int64)
    v4 = v3 < 1000
    v5 = v2 & v4
    v6 = x // 1002
    v7 = tl.load(p0 + (v0 + v6 * 1000 + -1), v5, other=0)
    tl.store(p1 + x, v7)
