"""Conversions, and integer divisions that never trap, as several vector ops each."""

import torch

from mlirc.dialects.core.scalar_builder import safe_divisor
from mlirc.lowering.cpu.math import cast as vector_cast
from mlirc.lowering.cpu.math.text import Instructions, Value, is_unsigned, literal_text


class Arithmetic(Instructions):
    """Instructions, and `cast`, `div` and `rem` of any dtype that computes; but for `rem` of floating-point numbers."""

    def cast(self, x: Value, dtype: torch.dtype) -> Value:
        return vector_cast.cast(self, x, dtype)

    def div(self, x: Value, y: Value) -> Value:
        if x.dtype.is_floating_point:
            return self.binary("arith.divf", x, y)
        exact = self._exact_float(x.dtype)
        if self.constant_value(y) is not None or exact is None:
            return self.binary("arith.divui" if is_unsigned(x.dtype) else "arith.divsi", x, self._safe_divisor(x, y))
        quotient = self.binary("arith.divf", self.cast(x, exact), self.cast(y, exact))
        return self.cast(quotient, x.dtype)

    def rem(self, x: Value, y: Value) -> Value:
        if self.constant_value(y) is not None or self._exact_float(x.dtype) is None:
            return self.binary("arith.remui" if is_unsigned(x.dtype) else "arith.remsi", x, self._safe_divisor(x, y))
        return self.sub(x, self.mul(self.div(x, y), y))

    def _exact_float(self, dtype: torch.dtype) -> torch.dtype | None:
        """The floating-point dtype whose quotients, truncated, are those of this integer dtype.

        Processors divide vectors of floating-point numbers, but no vectors of integers.
        """
        if self.lanes == 1 or dtype.itemsize == 8 or dtype == torch.uint32:
            return None
        return torch.float64 if dtype.itemsize == 4 else torch.float32

    def _safe_divisor(self, x: Value, y: Value) -> Value:
        known = self.constant_value(y)
        if known is not None and literal_text(known, y.dtype) not in ("0", "-1"):
            return y
        return safe_divisor(self, x, y)
