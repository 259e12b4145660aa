"""Building blocks of the inline float32 functions: polynomials, and exponent and mantissa of numbers.

The forms with own instructions of AVX-512 or AVX2 and the general ones give the same bits, but where they use tables.
"""

import math
import struct

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.text import Value

# Adding 1.5 * 2^23 to a number of magnitude below 2^22 leaves it rounded to nearest even in the lowest bits of the sum.
ROUNDING = 12582912.0


def polynomial(b: Arithmetic, x: Value, coefficients: tuple[float, ...]) -> Value:
    """Horner's rule with fma; coefficients from the highest power down to the constant."""
    result = b.constant(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        result = b.fma(result, x, b.constant(c, x.dtype))
    return result


def shift_left(b: Arithmetic, x: Value, bits: int) -> Value:
    """Shifts integers left. The builder's own shl also checks the width."""
    return b.binary("arith.shli", x, b.constant(bits, x.dtype))


def shift_right(b: Arithmetic, x: Value, bits: int) -> Value:
    """Shifts signed integers right, and keeps the sign."""
    return b.binary("arith.shrsi", x, b.constant(bits, x.dtype))


def nearest_integer(b: Arithmetic, x: Value, factor: float) -> tuple[Value, Value]:
    """x * factor rounded to the nearest integer: as a float32, and as the sum with ROUNDING, whose lowest bits hold it.

    |x * factor| is at most 2^22.
    """
    shifted = b.fma(x, b.constant(factor), b.constant(ROUNDING))
    return b.sub(shifted, b.constant(ROUNDING)), shifted


def power_of_two(b: Arithmetic, shifted: Value) -> Value:
    """2^n as a float32 for n from -126 to 127, of nearest_integer's second result."""
    exponent = shift_left(b, b.bitcast(shifted, torch.int32), 23)
    return b.bitcast(b.add(exponent, b.constant(0x3F800000, torch.int32)), torch.float32)


def scaled(b: Arithmetic, x: Value, n: Value, shifted: Value) -> Value:
    """x * 2^n rounded once, for 0.5 <= x < 2 and n from -250 to 250, of nearest_integer's results."""
    if uses_avx512(b):
        return avx512(b, "scalef", x, n)
    whole = b.bitcast(shifted, torch.int32)
    half = shift_right(b, whole, 1)
    for part in (half, b.sub(whole, half)):
        x = b.mul(x, power_of_two(b, b.bitcast(part, torch.float32)))
    return x


def scaled_normal(b: Arithmetic, x: Value, n: Value, shifted: Value) -> Value:
    """x * 2^n for n from -126 to 127."""
    if uses_avx512(b):
        return avx512(b, "scalef", x, n)
    return b.mul(x, power_of_two(b, shifted))


def uses_avx512(b: Arithmetic) -> bool:
    return b.text.target.has_avx512 and b.lanes == 16


def picks_eight(b: Arithmetic) -> bool:
    """Whether one instruction picks a number out of eight for each lane."""
    return b.text.target.has_avx2 and b.lanes == 8


def avx512(b: Arithmetic, instruction: str, *operands: "Value | str") -> Value:
    """Writes one AVX-512 instruction on 16 float32 lanes, unmasked, in the current rounding mode.

    scalef(x, n) is x * 2^n; getexp(x) the exponent; getmant(x, form) the mantissa, form an immediate.
    """
    vector = b.type_text(torch.float32)
    first = operands[0]
    # the operands, what masked-out lanes would hold, the mask, the rounding mode
    everything = [*operands, first, b.text.constant("-1", "i16", torch.int16, -1), immediate(b, 4)]
    types = [vector if getattr(x, "dtype", None) == torch.float32 else "i32" for x in operands] + [vector, "i16", "i32"]
    signature = f"({', '.join(types)}) -> {vector}"
    name = f"llvm.x86.avx512.mask.{instruction}.ps.512"
    return b.emit(f'llvm.call_intrinsic "{name}"({", ".join(everything)}) : {signature}', torch.float32)


def permuted(b: Arithmetic, table: tuple[float, ...], number: Value) -> Value:
    """table[number % lanes] in each lane, of float32 by int32: 16 of them with AVX-512, 8 with AVX2."""
    bits = ", ".join(f"0x{struct.unpack('<I', struct.pack('<f', x))[0]:08X}" for x in table)
    values = b.text.constant(f"dense<[{bits}]>", b.type_text(torch.float32), torch.float32, math.nan)
    floats, numbers = b.type_text(torch.float32), b.type_text(torch.int32)
    name = "llvm.x86.avx512.permvar.sf.512" if b.lanes == 16 else "llvm.x86.avx2.permps"
    return b.emit(
        f'llvm.call_intrinsic "{name}"({values}, {number}) : ({floats}, {numbers}) -> {floats}', torch.float32
    )


def immediate(b: Arithmetic, value: int) -> Value:
    return b.text.constant(str(value), "i32", torch.int32, value)
