"""Literals of floating-point numbers in LLVM IR: MLIR's LLVM prints forms that llvmlite's LLVM 22 does not parse:

    fadd float %0, f0x3F3504F3        older: 0x3FE6A09E60000000, the bits of the double of equal value
    splat (float 1.000000e-01)        the shortest decimal that rounds to the value; older: it must be exact
    fadd half %0, +inf                also +qnan, and nan(0x5) for a payload; older: hexadecimal

`older_literals` writes each in the older hexadecimal form, bit for bit. A literal has the nearest floating-point type to its left
on the line: the printer does not repeat the type for each operand.
"""

import re
import struct
from functools import lru_cache

_CONSTANT = r"f0x[0-9A-Fa-f]+|[+-](?:inf|qnan)|[+-]?s?nan\(0x[0-9A-Fa-f]+\)|-?\d+\.\d+e[+-]\d+"
# The common case goes first: `re` searches for its literal prefix quickly.
_FLOAT = re.compile(r"float (f0x[0-9A-F]{8})\b")
_TYPE_OR_CONSTANT = re.compile(rf'\b(float|double|half|bfloat)\b|(?<![\w.%@"$#-])({_CONSTANT})')
# A line without any of these has no such literal.
_HINTS = ("f0x", "e+", "e-", "inf", "nan")

_WIDTH = {"float": 32, "double": 64, "half": 16, "bfloat": 16}
_FRACTION = {"float": 23, "double": 52, "half": 10, "bfloat": 7}
_PACKED = {"float": ("<f", "<I"), "double": ("<d", "<Q"), "half": ("<e", "<H")}


def older_literals(text: str) -> str:
    """`text` with every floating-point literal in the older hexadecimal form; the same bits."""
    text = _FLOAT.sub(lambda match: "float " + _hexadecimal(match[1], "float"), text)
    lines = text.split("\n")
    for i, line in enumerate(lines):
        for hint in _HINTS:
            if hint in line:
                lines[i] = _rewrite_line(line)
                break
    return "\n".join(lines)


def _rewrite_line(line: str) -> str:
    type_ = ""

    def constant(match: re.Match) -> str:
        nonlocal type_
        if match[1]:
            type_ = match[1]
            return type_
        return _hexadecimal(match[2], type_)

    return _TYPE_OR_CONSTANT.sub(constant, line)


@lru_cache(maxsize=4096)
def _hexadecimal(literal: str, kind: str) -> str:
    bits = _bits_of(literal, kind)
    if kind == "float":
        return f"0x{_float_to_double(bits):016X}"
    return {"double": f"0x{bits:016X}", "half": f"0xH{bits:04X}", "bfloat": f"0xR{bits:04X}"}[kind]


def _bits_of(literal: str, kind: str) -> int:
    """The bit pattern of a literal of the newer form. `kind` is float, double, half or bfloat."""
    if literal.startswith("f0x"):
        return int(literal[3:], 16)
    fraction = _FRACTION[kind]
    sign = (1 << _WIDTH[kind] - 1) if literal.startswith("-") else 0
    infinity = (1 << _WIDTH[kind] - 1) - (1 << fraction)
    quiet = 1 << fraction - 1
    if literal.endswith("inf"):
        return sign | infinity
    if literal.endswith("qnan"):
        return sign | infinity | quiet
    if literal.endswith(")"):
        payload = int(literal[literal.index("0x") : -1], 16)
        return sign | infinity | payload | (0 if "snan" in literal else quiet)
    if (
        kind == "bfloat"
    ):  # round the bits of the float to nearest even; the text is exact or the shortest for bfloat, so two roundings are one
        whole = struct.unpack("<I", struct.pack("<f", float(literal)))[0]
        return (whole + 0x7FFF + (whole >> 16 & 1)) >> 16
    as_float, as_bits = _PACKED[kind]
    return struct.unpack(as_bits, struct.pack(as_float, float(literal)))[0]


def _float_to_double(bits: int) -> int:
    """The bits of the double that equals this float. The payload of a NaN is shifted left by 29, and not quieted."""
    if bits >> 23 & 0xFF == 0xFF:
        return (bits >> 31) << 63 | 0x7FF << 52 | (bits & 0x7FFFFF) << 29
    return struct.unpack("<Q", struct.pack("<d", struct.unpack("<f", struct.pack("<I", bits))[0]))[0]
