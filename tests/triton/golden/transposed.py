# grid 1536, 1, 1; {'YBLOCK': 64, 'XBLOCK': 64}; 16 warps
import triton
import triton.language as tl


@triton.jit
def kernel_0(p0, p1, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr):
    program = tl.program_id(0)
    x = (program % 12) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    program = program // 12
    y = (program % 8) * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    program = program // 8
    d0 = program
    v0 = tl.load(p0 + (y + x * 512 + d0 * 393216))
    v1 = v0 * 2.0
    tl.store(p1 + (y * 768 + x + d0 * 393216), v1)
