"""Reductions and scans of a block as Triton text, and the functions that combine two values.

Booleans and integers of 8 and 16 bits fold as int32, and wrap around when they are narrowed again.
"""

import torch

from mlirc.dialects.core.dialect import COMBINED
from mlirc.dialects.lazy_dataclass import dataclass
from mlirc.lowering.gpu.triton.builder import TRITON_DTYPE, Lines, TritonBuilder, TritonValue
from mlirc.lowering.kernel.fold import Fold

# the functions' text, by name; a kernel's text holds those that it uses
_VALUES = {
    "sum": "a + b",
    "prod": "a * b",
    "any": "a | b",
    "all": "a & b",
    "max": "tl.maximum(a, b)",
    "min": "tl.minimum(a, b)",
    "nan_max": "tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    "nan_min": "tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)",
    # of equal values the later one, which may be a zero of the other sign; a NaN stays
    "last_max": "tl.where((b >= a) | (b != b), b, a)",
    "last_min": "tl.where((b <= a) | (b != b), b, a)",
}
_POSITION = """@triton.jit
def fold_NAME(a, i, b, j):
    later = (b SIGN a)NAN
    later |= SAME & (j < i)
    return tl.where(later, b, a), tl.where(later, j, i)
"""


_LATEST = """@triton.jit
def fold_latest(a, i, b, j):
    return tl.where(j > i, b, a), tl.maximum(i, j)
"""


def function_text(name: str) -> str:
    """The definition of `fold_NAME`."""
    if name == "latest":
        return _LATEST
    if name in _VALUES:
        return f"@triton.jit\ndef fold_{name}(a, b):\n    return {_VALUES[name]}\n"
    sign = ">" if name.endswith("max") else "<"
    nan, same = "", "(a == b)"
    if name.startswith("nan_"):  # the first NaN wins
        nan, same = " | ((b != b) & (a == a))", "((a == b) | ((a != a) & (b != b)))"
    return _POSITION.replace("NAME", name).replace("SIGN", sign).replace("NAN", nan).replace("SAME", same)


@dataclass(frozen=True)
class TritonFold(Fold):
    """A reduction or scan in a Triton kernel; `function` is the name of what combines two values. For booleans the kind is "any" or
    "all"."""

    @property
    def kind(self) -> str:
        kind: str = self.node.attributes["kind"]
        if self.source == torch.bool:
            return {"sum": "any", "max": "any", "prod": "all", "min": "all"}.get(kind, kind)
        return kind

    @property
    def dtype(self) -> torch.dtype:
        small = self.source.itemsize < 4 and not self.source.is_floating_point
        return torch.int32 if small or self.kind in ("any", "all") else self.source

    @property
    def function(self) -> str:
        if self.kind in COMBINED:
            return f"{self.kind}_{TRITON_DTYPE[self.dtype]}"
        ordered = self.kind.endswith(("max", "min")) and self.source.is_floating_point
        # first_max finds an extreme and its position, as argmax does; a mean folds as a sum
        kind = self.kind.replace("first_", "arg").replace("mean", "sum")
        return f"last_{kind}" if self.keeps_last else f"nan_{kind}" if ordered else kind

    @property
    def function_text(self) -> str:
        """The definition of `fold_FUNCTION`."""
        if self.kind not in COMBINED:
            return function_text(self.function)
        lines = Lines()
        operands = (TritonValue(name, self.dtype) for name in "ab")
        made = COMBINED[self.kind].combine(TritonBuilder(lines, self.dtype), *operands)
        lines.add(f"return {made}")
        return "\n".join(["@triton.jit", f"def fold_{self.function}(a, b):", *lines.text, ""])

    @property
    def is_mean(self) -> bool:
        return self.node.kind == "reduce" and self.kind == "mean"

    @property
    def keeps_last(self) -> bool:
        """Whether the order shows: a running extreme is the last of equal values, of -0.0 and 0.0; a kind that an op defines need not
        take its operands in any order."""
        is_extreme = self.kind in ("max", "min") and self.source.is_floating_point
        return self.node.kind == "scan" and (is_extreme or self.kind in COMBINED)

    def widened(self, b: TritonBuilder, x: TritonValue) -> TritonValue:
        return b.cast(b.cast(x, torch.bool) if self.kind in ("any", "all") else x, self.dtype)

    def narrowed(self, b: TritonBuilder, x: TritonValue) -> TritonValue:
        """What was folded, as the node's own dtype."""
        return b.cast(x, self.node.dtype)
