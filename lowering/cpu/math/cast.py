"""Conversions between dtypes, as `Tensor.to` does them on a CPU."""

import torch

from mlirc.lowering.cpu.math.text import Instructions, Value, is_unsigned

_HALF = (torch.float16, torch.bfloat16)


def cast(b: Instructions, x: Value, dtype: torch.dtype) -> Value:
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
        return b.convert("arith.uitofp" if is_unsigned(source) else "arith.sitofp", x, dtype)
    return _between_integers(b, x, dtype)


def _between_integers(b: Instructions, x: Value, dtype: torch.dtype) -> Value:
    source = x.dtype
    if source == torch.bool or source.itemsize < dtype.itemsize:
        return b.convert("arith.extui" if is_unsigned(source) else "arith.extsi", x, dtype)
    if source.itemsize == dtype.itemsize:
        return b.bitcast(x, dtype)
    return b.convert("arith.trunci", x, dtype)


def _to_integer(b: Instructions, x: Value, dtype: torch.dtype) -> Value:
    """Truncation, and of NaN and of what does not fit what eager gives, in every lane and for constants too.

    Eager converts to a wider integer and cuts the narrow one out of it: uint8 out of int64, int8 and int16 out of int32.
    """
    wide = torch.int64 if dtype in (torch.int64, torch.uint8) else torch.int32
    if b.text.target.arch == "aarch64":
        return cast(b, _saturated(b, x, wide), dtype)
    if dtype == torch.uint8 and x.dtype == torch.float32:
        wide = torch.int32  # the same lowest byte: of a float32 from 2^31 on it is 0, as it is of both lowest integers
    return cast(b, _or_lowest(b, x, wide), dtype)


def _or_lowest(b: Instructions, x: Value, dtype: torch.dtype) -> Value:
    """Converts as x86's instructions do: the lowest integer for NaN and each float out of range.

    `fptosi` makes poison of these, so that LLVM may take its result for anything; a select passes no poison on from the
    arm that it does not choose.
    """
    inside = b.lt(b.abs(x), b.constant(-float(torch.iinfo(dtype).min), x.dtype))
    return b.select(inside, b.convert("arith.fptosi", x, dtype), b.constant(torch.iinfo(dtype).min, dtype))


def _saturated(b: Instructions, x: Value, dtype: torch.dtype) -> Value:
    """Converts as aarch64's instructions do: the nearest integer in range, 0 for NaN."""
    types = f"({b.type_text(x.dtype)}) -> {b.type_text(dtype)}"
    return b.emit(f'llvm.call_intrinsic "llvm.fptosi.sat"({x}) : {types}', dtype)


def _from_bfloat16(b: Instructions, x: Value) -> Value:
    """On the bits: LLVM would move comparisons and choices of a widened value to bfloat16, which only some processors have."""
    bits = b.convert("arith.extui", b.bitcast(x, torch.int16), torch.int32)
    return b.bitcast(b.binary("arith.shli", bits, b.constant(16, torch.int32)), torch.float32)


def _to_bfloat16(b: Instructions, x: Value) -> Value:
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
