# ruff: noqa: SIM102
# fmt: off
# grid 768, 1, 1; {'YBLOCK': 16, 'XBLOCK': 256, 'TRAP': 1}; 4 warps
import triton
import triton.language as tl


@triton.jit
def kernel_0(p0, p1, p2, failure, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, TRAP: tl.constexpr):
    program = tl.program_id(0)
    x = (program % 3) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    program = program // 3
    y = program * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    v0 = tl.load(p0 + y)
    v1 = v0 >= 0
    v2 = v0 < 50257
    v3 = v1 & v2
    v4 = ~v3
    if tl.max(v4.to(tl.int32)) > 0:
        if tl.atomic_cas(failure, tl.full([], 0, tl.int64), tl.full([], 1, tl.int64)) == 0:
            worst = tl.max(tl.where(v4, v0, -9223372036854775808))
            tl.store(failure + 1, worst)
            tl.store(failure + 2, tl.full([], 50257, tl.int64))
            if TRAP:
                tl.debug_barrier()
                tl.inline_asm_elementwise("membar.sys; trap; mov.b64 $0, $1;", "=l,l", [tl.full([], 1, tl.int64)], tl.int64, False, 1)
    v5 = tl.where(v3, v0, tl.full([], 0, tl.int64))
    v6 = v5.to(tl.int32)
    v7 = tl.load(p1 + (x + v6 * 768))
    tl.store(p2 + (y * 768 + x), v7)
