# grid 6144, 1, 1; {'YBLOCK': 16, 'XBLOCK': 256, 'PTX': 1}; 4 warps
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def exp2_flushed(x, PTX: tl.constexpr):
    if PTX:
        made = tl.inline_asm_elementwise("ex2.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        made = tl.exp2(x)
    return made


@triton.jit
def reciprocal_flushed(x, PTX: tl.constexpr):
    if PTX:
        made = tl.inline_asm_elementwise("rcp.approx.ftz.f32 $0, $1;", "=f,f", [x], tl.float32, True, 1)
    else:
        made = 1.0 / x
    return made


@triton.jit
def erf_beside_one(x, PTX: tl.constexpr):
    a = tl.abs(x)
    t = reciprocal_flushed(tl.fma(a, 0.3275911, 1.0), PTX)
    p = tl.fma(t, 1.061405429, -1.453152027)
    p = tl.fma(p, t, 1.421413741)
    p = tl.fma(p, t, -0.284496736)
    p = tl.fma(p, t, 0.254829592)
    return libdevice.copysign(tl.fma(-p * t, exp2_flushed(a * -1.4426950408889634 * a, PTX), 1.0), x)


@triton.jit
def kernel_0(p0, p1, p2, YBLOCK: tl.constexpr, XBLOCK: tl.constexpr, PTX: tl.constexpr):
    program = tl.program_id(0)
    x = (program % 12) * XBLOCK + tl.arange(0, XBLOCK)[None, :]
    program = program // 12
    y = program * YBLOCK + tl.arange(0, YBLOCK)[:, None]
    v0 = tl.load(p0 + (y * 3072 + x))
    v1 = v0.to(tl.float32)
    v2 = tl.load(p1 + x)
    v3 = v2.to(tl.float32)
    v4 = v1 + v3
    v5 = v4 * 0.5
    v6 = v4 * 0.7071067811865476
    v7 = erf_beside_one(v6, PTX)
    v8 = v7 + 1.0
    v9 = v5 * v8
    v10 = v9.to(tl.bfloat16)
    tl.debug_barrier()  # a warp may still have to read what another one writes
    tl.store(p2 + (y * 3072 + x), v10)
