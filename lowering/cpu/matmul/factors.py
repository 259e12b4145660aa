"""What a gemm's tile multiplies at a step along k: float32, bfloat16 widened as it is loaded, or pairs of bfloat16."""

import torch

from mlirc.lowering.cpu.emitter.addresses import BF16, F32, load_scalar
from mlirc.lowering.cpu.emitter.emitter import VectorEmitter
from mlirc.lowering.cpu.emitter.memory import load_vector
from mlirc.lowering.cpu.math.builder import Value, VectorBuilder

BLOCK = 256  # steps along k that are summed before they are added to the tile


class Floats:
    """Factors of float32.

    element   the dtype whose size the strides of rows count
    panel     the dtype whose size the strides of a panel count
    block     steps along k that are summed before they are added to a tile
    """

    element, panel, block = F32, F32, BLOCK

    def load_columns(self, e: VectorEmitter, address: Value, align: int) -> Value:
        b = e.builder(F32, True)
        return b.emit(f"llvm.load {address} {{alignment = {align} : i64}} : !llvm.ptr -> {b.type_text(F32)}", F32)

    def load_element(self, e: VectorEmitter, address: Value) -> Value:
        """One element in every lane."""
        return broadcast(e.builder(F32, True), load_scalar(e, address), F32)

    def multiply(self, e: VectorEmitter, x: Value, y: Value, total: Value) -> Value:
        return e.builder(F32, True).fma(x, y, total)


class Widened(Floats):
    """Rows are float32. A panel is bfloat16 and is widened as it is loaded: few instructions, beside the multiplications of all rows."""

    panel = BF16

    def load_columns(self, e: VectorEmitter, address: Value, align: int) -> Value:
        b = e.builder(torch.int32, True)
        halves = load_vector(e, address, None, torch.int16)
        words = b.emit(f"arith.extui {halves} : {b.type_text(torch.int16)} to {b.type_text(b.dtype)}", b.dtype)
        return b.bitcast(b.binary("arith.shli", words, b.constant(16)), F32)


class Pairs:
    """Pairs of bfloat16 along k, 32 bits a step. The instruction reads subnormal factors as 0, as eager's does."""

    element, panel, block = torch.int32, torch.int32, BLOCK // 2

    def load_columns(self, e: VectorEmitter, address: Value, align: int) -> Value:
        return load_vector(e, address, None, torch.int32)

    def load_element(self, e: VectorEmitter, address: Value) -> Value:
        pair = e.index.emit(f"llvm.load {address} {{alignment = 2 : i64}} : !llvm.ptr -> i32", torch.int32)
        return broadcast(e.builder(torch.int32, True), pair, torch.int32)

    def multiply(self, e: VectorEmitter, x: Value, y: Value, total: Value) -> Value:
        """total[lane] += the products of both halves of x and y; held in registers of float32 or int32."""
        lanes, b = e.lanes, e.builder(F32, True)
        pairs, sums = f"vector<{2 * lanes}xbf16>", b.type_text(F32)
        x, y = (b.emit(f"llvm.bitcast {v} : {b.type_text(v.dtype)} to {pairs}", BF16) for v in (x, y))
        instruction = f'"llvm.x86.avx512bf16.dpbf16ps.{lanes * 32}"'
        return b.emit(
            f"llvm.call_intrinsic {instruction}({total}, {x}, {y}) : ({sums}, {pairs}, {pairs}) -> {sums}", F32
        )


class PairsOfElements(Pairs):
    """Pairs whose rows have strides in elements of 16 bits, not in pairs."""

    element = torch.int16


def broadcast(b: VectorBuilder, x: Value, dtype: torch.dtype) -> Value:
    scalar = b.type_text(dtype).split("x")[-1].rstrip(">")
    return b.emit(f"vector.broadcast {x} : {scalar} to {b.type_text(dtype)}", dtype)
