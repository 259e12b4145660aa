"""Conversions between dtypes, as `Tensor.to` does them on a CPU."""

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from mlirc.lowering.vector_builder import Value, VectorBuilder

_HALF = (torch.float16, torch.bfloat16)


def cast(b: "VectorBuilder", x: "Value", dtype: torch.dtype) -> "Value":
    source = x.dtype
    if source == dtype:
        return x
    if source == torch.bfloat16:
        return cast(b, _from_bfloat16(b, x), dtype)
    if source in _HALF:
        return cast(b, b.convert("arith.extf", x, torch.float32), dtype)
    if dtype == torch.bool:
        return b.ne(x, b.constant(0, source))
    if dtype in _HALF and source != torch.float32:
        return cast(b, cast(b, x, torch.float32), dtype)  # as eager: rounds twice
    if dtype == torch.bfloat16:
        return _to_bfloat16(b, x)
    if source.is_floating_point:
        if dtype.is_floating_point:
            return b.convert("arith.extf" if dtype.itemsize > source.itemsize else "arith.truncf", x, dtype)
        return _to_integer(b, x, dtype)
    if dtype.is_floating_point:
        return b.convert("arith.uitofp" if _is_unsigned(source) else "arith.sitofp", x, dtype)
    return _between_integers(b, x, dtype)


def _between_integers(b: "VectorBuilder", x: "Value", dtype: torch.dtype) -> "Value":
    source = x.dtype
    if source == torch.bool or source.itemsize < dtype.itemsize:
        return b.convert("arith.extui" if _is_unsigned(source) else "arith.extsi", x, dtype)
    if source.itemsize == dtype.itemsize:
        return b.bitcast(x, dtype)
    return b.convert("arith.trunci", x, dtype)


def _to_integer(b: "VectorBuilder", x: "Value", dtype: torch.dtype) -> "Value":
    """Truncation. Of NaN and of what does not fit: what the processor's own instruction gives, as in eager.

    LLVM calls such results poison, from which it may conclude anything; freezing makes them plain numbers.
    Narrow integers are cut out of wider ones, so that they wrap around as C++'s conversions do.
    """
    wide = torch.int64 if dtype.itemsize == 8 or dtype == torch.uint32 else torch.int32
    whole = b.convert("arith.fptosi", x, wide)
    whole = b.emit(f"llvm.freeze {whole} : {b.type_text(wide)}", wide)
    return cast(b, whole, dtype)


def _from_bfloat16(b: "VectorBuilder", x: "Value") -> "Value":
    """On the bits: LLVM would move comparisons and choices of a widened value to bfloat16, which only some processors have."""
    bits = b.convert("arith.extui", b.bitcast(x, torch.int16), torch.int32)
    return b.bitcast(b.binary("arith.shli", bits, b.constant(16, torch.int32)), torch.float32)


def _to_bfloat16(b: "VectorBuilder", x: "Value") -> "Value":
    """Round to nearest even, on the bits: the processor's instruction flushes subnormals to zero, eager keeps them."""
    bits = b.bitcast(x, torch.int32)
    shift = b.constant(16, torch.int32)
    last = b.and_(b.binary("arith.shrui", bits, shift), b.constant(1, torch.int32))
    rounded = b.add(bits, b.add(last, b.constant(0x7FFF, torch.int32)))
    # Not a constant NaN: LLVM would make that a choice between bfloat16 vectors, element by element without AVX-512.
    quiet = b.or_(bits, b.constant(0x400000, torch.int32))
    rounded = b.select(b.ne(x, x), quiet, rounded)
    upper = b.convert("arith.trunci", b.binary("arith.shrui", rounded, shift), torch.int16)
    return b.bitcast(upper, torch.bfloat16)


def _is_unsigned(dtype: torch.dtype) -> bool:
    return not dtype.is_signed
