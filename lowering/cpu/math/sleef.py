"""Calls of SLEEF's vector functions, which libtorch_cpu.so exports: what eager itself calls for most functions.

A call takes as many lanes as a register holds. More lanes are cut into several calls; fewer are padded, so that an
element gets the same result in a loop's vectors as in its scalar tail. Where there is no SLEEF, C's functions are
called lane by lane.
"""

import torch

from mlirc.lowering.cpu.math.arithmetic import Arithmetic
from mlirc.lowering.cpu.math.text import Value

# (architecture, width in bytes) for which PyTorch builds export SLEEF
_SLEEF_WIDTHS = {("x86_64", 64), ("x86_64", 32), ("aarch64", 16)}
_ELEMENT = {torch.float32: "f32", torch.float64: "f64"}
_ERROR_SUFFIX = {"erfc": "_u15", "fmod": ""}  # the others are _u10: at most 1.0 units in the last place


def call(b: Arithmetic, function: str, *operands: Value) -> Value:
    """`function` (C's name for doubles, "exp") of float32 or float64 operands."""
    dtype = operands[0].dtype
    if dtype not in (torch.float32, torch.float64) or any(x.dtype != dtype for x in operands):
        raise TypeError(f"{function} of {', '.join(str(x.dtype) for x in operands)}: expected float32 or float64")
    target = b.text.target
    if (target.arch, target.vector_bytes) not in _SLEEF_WIDTHS:
        return _by_lane(b, function, operands, dtype)
    # the narrowest form that holds all lanes, or the widest there is
    widths = sorted(w for arch, w in _SLEEF_WIDTHS if arch == target.arch and w <= target.vector_bytes)
    width = next((w for w in widths if w >= b.lanes * dtype.itemsize), widths[-1])
    if b.lanes == 1:
        width = widths[-1]  # as the vectors that the tail belongs to
    lanes = width // dtype.itemsize
    symbol = f"Sleef_{function}{'f' if dtype == torch.float32 else 'd'}{lanes}{_ERROR_SUFFIX.get(function, '_u10')}"
    return _by_vector(b, symbol, operands, dtype, lanes)


def _by_vector(b: Arithmetic, symbol: str, operands: tuple, dtype: torch.dtype, lanes: int) -> Value:
    element = _ELEMENT[dtype]
    part = f"vector<{lanes}x{element}>"
    b.text.declare(symbol, [part] * len(operands), part)
    signature = f"({', '.join([part] * len(operands))}) -> {part}"
    whole = b.type_text(dtype)
    if b.lanes == lanes:
        return b.emit(f"llvm.call @{symbol}({', '.join(operands)}) : {signature}", dtype)
    if b.lanes == 1:
        wide = [b.emit(f"vector.broadcast {x} : {element} to {part}", dtype) for x in operands]
        result = b.emit(f"llvm.call @{symbol}({', '.join(wide)}) : {signature}", dtype)
        return b.emit(f"vector.extract {result}[0] : {element} from {part}", dtype)
    if b.lanes < lanes:
        pad = list(range(b.lanes)) + [0] * (lanes - b.lanes)
        wide = [b.emit(f"vector.shuffle {x}, {x} {pad} : {whole}, {whole}", dtype) for x in operands]
        result = b.emit(f"llvm.call @{symbol}({', '.join(wide)}) : {signature}", dtype)
        return b.emit(f"vector.shuffle {result}, {result} {list(range(b.lanes))} : {part}, {part}", dtype)
    if b.lanes % lanes:
        raise ValueError(f"{symbol} on {b.lanes} lanes: expected a multiple of {lanes}")
    results = []
    for first in range(0, b.lanes, lanes):
        picked = list(range(first, first + lanes))
        parts = [b.emit(f"vector.shuffle {x}, {x} {picked} : {whole}, {whole}", dtype) for x in operands]
        results.append(b.emit(f"llvm.call @{symbol}({', '.join(parts)}) : {signature}", dtype))
    return _joined(b, results, lanes, element, dtype)


def _joined(b: Arithmetic, parts: list[Value], lanes: int, element: str, dtype: torch.dtype) -> Value:
    """The parts, a power of two of them, one after the other in one vector."""
    while len(parts) > 1:
        type_, everything = f"vector<{lanes}x{element}>", list(range(2 * lanes))
        parts = [
            b.emit(f"vector.shuffle {x}, {y} {everything} : {type_}, {type_}", dtype)
            for x, y in zip(parts[::2], parts[1::2], strict=True)
        ]
        lanes *= 2
    return parts[0]


def _by_lane(b: Arithmetic, function: str, operands: tuple[Value, ...], dtype: torch.dtype) -> Value:
    symbol = function + ("f" if dtype == torch.float32 else "")
    element = _ELEMENT[dtype]
    b.text.declare(symbol, [element] * len(operands), element)
    signature = f"({', '.join([element] * len(operands))}) -> {element}"
    if b.lanes == 1:
        return b.emit(f"llvm.call @{symbol}({', '.join(operands)}) : {signature}", dtype)
    whole = b.type_text(dtype)
    result = operands[0]
    for lane in range(b.lanes):
        scalars = [b.emit(f"vector.extract {x}[{lane}] : {element} from {whole}", dtype) for x in operands]
        one = b.emit(f"llvm.call @{symbol}({', '.join(scalars)}) : {signature}", dtype)
        result = b.emit(f"vector.insert {one}, {result} [{lane}] : {element} into {whole}", dtype)
    return result
