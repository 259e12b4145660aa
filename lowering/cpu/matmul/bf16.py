"""Matmuls of bfloat16 factors, summed in float32.

PairWriter       panels of pairs along k: one AVX-512 instruction multiplies 16 pairs and adds both products to a float32
WideningWriter   plain panels, on every other processor: rows are widened as they are packed, columns as they are loaded
"""

import torch

from mlirc.lowering.cpu.emitter.addresses import BF16, advance, load_scalar
from mlirc.lowering.cpu.math.builder import Value
from mlirc.lowering.cpu.matmul.factors import PairsOfElements, Widened
from mlirc.lowering.cpu.matmul.function import GemmWriter
from mlirc.lowering.cpu.matmul.match import Gemm
from mlirc.lowering.target import CpuTarget


class PairWriter(GemmWriter):
    """A step along k is a pair, 32 bits. Elements are moved as int16, because no arithmetic is done on them here."""

    source, factors = torch.int16, PairsOfElements()

    def __init__(self, gemm: Gemm, name: str, target: CpuTarget):
        super().__init__(gemm, name, target)
        self.steps = -(-self.K // 2)

    def must_pack(self) -> bool:
        return self.p.k_size % 2 != 0 or super().must_pack()

    def tile_strides(self, size: int, lda: Value) -> tuple[Value, Value]:
        e = self.e
        return (e.i64(2), e.i64(2 * size)) if self.packs else (lda, e.i64(2))

    def pack(self, a: Value, size: int, lda: Value, ka: Value) -> None:
        """packed[pair * size + i] = a[i, 2 * pair], a[i, 2 * pair + 1]; where K is odd, the second of the last pair is 0.

        size      rows of the tile
        lda, ka   strides of `a` along the rows and along k, in elements
        """
        e, b = self.e, self.e.index

        def pair(number: Value, whole: bool = True) -> None:
            source = advance(e, a, b.mul(number, b.add(ka, ka)), self.source)
            target = advance(e, e.env["packed"], b.mul(number, e.i64(size)))
            for i in range(size):
                first = advance(e, source, b.mul(lda, e.i64(i)), self.source) if i else source
                at = advance(e, target, i)
                if whole and self.p.ka == 1:
                    self.copy(first, at, torch.int32)
                    continue
                self.copy(first, at, torch.int16)
                second = advance(e, at, 1, torch.int16)
                if whole:
                    self.copy(advance(e, first, ka, self.source), second, torch.int16)
                else:
                    zero = e.builder(torch.int16).constant(0, torch.int16)
                    e.lines.append(f"llvm.store {zero}, {second} {{alignment = 2 : i64}} : i16, !llvm.ptr")

        with e.each(0, self.K // 2) as number:
            pair(number)
        if self.K % 2:
            with e.scope():
                pair(e.i64(self.K // 2), whole=False)

    def copy(self, source: Value, target: Value, dtype: torch.dtype) -> None:
        b = self.e.builder(dtype)
        type_ = b.type_text(dtype)
        x = b.emit(f"llvm.load {source} {{alignment = 2 : i64}} : !llvm.ptr -> {type_}", dtype)
        self.e.lines.append(f"llvm.store {x}, {target} {{alignment = 2 : i64}} : {type_}, !llvm.ptr")


class WideningWriter(GemmWriter):
    """Rows are packed as float32. A panel of columns stays bfloat16 in memory, and the tile widens each vector that it loads."""

    source, factors = torch.int16, Widened()

    def must_pack(self) -> bool:
        return True

    def load_scalar(self, address: Value) -> Value:
        return load_scalar(self.e, address, BF16)
