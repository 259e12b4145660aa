# grid 24576, 1, 1; {'XBLOCK': 1024}; 4 warps
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel_0(p0, p1, p2, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)
    v0 = tl.load(p0 + x)
    v1 = v0.to(tl.float32)
    v2 = x % 3072
    v3 = tl.load(p1 + v2)
    v4 = v3.to(tl.float32)
    v5 = v1 + v4
    v6 = v5 * 0.5
    v7 = v5 * 0.7071067811865476
    v8 = libdevice.erf(v7)
    v9 = v8 + 1.0
    v10 = v6 * v9
    v11 = v10.to(tl.bfloat16)
    tl.store(p2 + x, v11)
