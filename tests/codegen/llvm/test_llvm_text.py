"""Floating-point constants on their way from MLIR's newer LLVM IR text into llvmlite's older LLVM: the same bits."""

import ctypes
import random
import time

import pytest

from mlirc.codegen.llvm.float_literals import older_literals
from mlirc.codegen.llvm.machine_code import compile_ir, mlir_to_llvm

# MLIR's type -> width, bits of the fraction
FORMATS = {"f32": (32, 23), "f64": (64, 52), "f16": (16, 10), "bf16": (16, 7)}
WORDS = {16: ctypes.c_uint16, 32: ctypes.c_uint32, 64: ctypes.c_uint64}


def patterns(width: int, fraction: int) -> list[int]:
    """Zeros, subnormals, limits, infinities, quiet NaNs with payloads, short decimals' bits, and random numbers."""
    sign, infinity, quiet = 1 << width - 1, (1 << width - 1) - (1 << fraction), 1 << fraction - 1
    one = (infinity >> 1) & infinity
    special = [0, 1, quiet, infinity - 1, infinity, infinity | quiet, infinity | quiet | 5, one, one + 1, one | quiet]
    special += [x | sign for x in special]
    numbers = [random.getrandbits(width) for _ in range(300)]
    # a signalling NaN may be quieted on the way: none of those
    return special + [x for x in numbers if x & infinity != infinity]


@pytest.mark.parametrize("kind", FORMATS)
def test_every_constant_comes_back_with_its_bits(kind):
    random.seed(0)
    width, fraction = FORMATS[kind]
    wanted = patterns(width, fraction)
    functions = []
    for n, bits in enumerate(wanted):
        value = f"0x{bits:0{width // 4}X}"
        functions.append(
            f"llvm.func @scalar{n}() -> i{width} {{ %k = llvm.mlir.constant({value} : {kind}) : {kind}\n"
            f"%b = llvm.bitcast %k : {kind} to i{width}\nllvm.return %b : i{width} }}\n"
            f"llvm.func @vector{n}(%p: !llvm.ptr) {{\n"
            f"%k = llvm.mlir.constant(dense<{value}> : vector<4x{kind}>) : vector<4x{kind}>\n"
            f"llvm.store %k, %p {{alignment = 1 : i64}} : vector<4x{kind}>, !llvm.ptr\nllvm.return }}"
        )
    code = compile_ir(mlir_to_llvm("\n".join(functions)), opt_level=0)
    for n, bits in enumerate(wanted):
        assert ctypes.CFUNCTYPE(WORDS[width])(code.address(f"scalar{n}"))() == bits, hex(bits)
        lanes = (WORDS[width] * 4)()
        ctypes.CFUNCTYPE(None, ctypes.c_void_p)(code.address(f"vector{n}"))(ctypes.addressof(lanes))
        assert list(lanes) == [bits] * 4, hex(bits)


def test_each_form_of_literal():
    rewritten = {
        "fadd float %0, f0x3F3504F3": "fadd float %0, 0x3FE6A09E60000000",
        "<4 x float> splat (float 1.000000e-01)": "<4 x float> splat (float 0x3FB99999A0000000)",
        "fadd half %0, +inf": "fadd half %0, 0xH7C00",
        "fadd bfloat %0, -inf": "fadd bfloat %0, 0xRFF80",
        "ret double +qnan": "ret double 0x7FF8000000000000",
        "ret float -nan(0x5)": "ret float 0xFFF80000A0000000",
        "ret double -2.500000e+00": "ret double 0xC004000000000000",
        "phi double [ 1.0e+00, %3 ], [ +inf, %5 ]": "phi double [ 0x3FF0000000000000, %3 ], [ 0x7FF0000000000000, %5 ]",
    }
    for newer, older in rewritten.items():
        assert older_literals(f"a\n{newer}\nb") == f"a\n{older}\nb"


def test_names_and_integers_are_left_alone():
    for line in (
        "define void @f0x3F(ptr %inf, i64 %e-1.0) #0 {",
        '@s = constant [8 x i8] c"1.0e+00\\00"',
        "%1 = add i64 %x, 15",
    ):
        assert older_literals(line) == line


def test_ten_thousand_lines_take_milliseconds():
    line = "  %{} = fmul <16 x float> %{}, %{}\n"
    text = "".join(
        line.format(n, n - 1, n - 2) + (f"  %c{n} = fadd float %{n}, {n}.5e-01\n" if n % 10 == 0 else "")
        for n in range(9000)
    )
    start = time.thread_time()
    older_literals(text)
    assert time.thread_time() - start < 0.25
