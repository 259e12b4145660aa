"""Whether what a module computes is still right: against float64, within about twice the error of the module as it was given."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from mlirc.dialects.core.bindings import ir
from mlirc.dialects.interpreter.float64 import in_float64, widened
from mlirc.execution.modules import Outcome, copies, interpret
from mlirc.execution.random_state import Inputs

TIMES = 2.0  # the error of the input module
ROUNDINGS = {torch.float32: 16.0, torch.float64: 256.0, torch.complex64: 16.0, torch.complex128: 256.0}
HALF_ROUNDINGS = 4.0  # units in the last place of the largest element that are no error by themselves
ALONE = 64.0  # units, where there is no float64 to compare with


@dataclass(frozen=True)
class Wrong:
    """The largest error of a value that is wrong.

    what   "result 0", or "argument 2" that is overwritten
    said   what is wrong where it is no element: strides, memory; else ""
    """

    what: str
    position: int
    index: tuple[int, ...]
    error: float
    limit: float
    got: Any
    expected: Any
    said: str = ""

    def __str__(self) -> str:
        if self.said:
            return self.said
        at = f" at {list(self.index)}" if self.index else ""
        if self.error == self.limit == 0.0 and self.got == self.expected:
            return f"{self.what}{at} is {self.got}, not {self.expected}: a zero of the other sign"
        return f"{self.what}{at} is {self.got}, not {self.expected}: error {self.error:.3g}, where {self.limit:.3g} is allowed"


UNSIGNED = re.compile(
    r"mlirc\.(maximum|minimum|clamp|relu|amax|amin|fmax|fmin)\w*\b|\"(max|min)\"|device = \"cuda|aten\."
)


def zeros_have_signs(text: str) -> bool:
    """Whether the interpreter's zeros have the signs that compiled code gives them: of two zeros torch.maximum takes either one, by
    which loop of PyTorch's runs, and a GPU's kernels are not those of the CPU that interprets them."""
    return UNSIGNED.search(text) is None


class Expectation:
    """What the module computes as it is given: in its own dtypes, and in float64 where that has a meaning.

    why   there is nothing in float64 to compare with; "" where there is
    """

    def __init__(self, module: ir.Module, inputs: Sequence[Any]):
        """Raises what the interpreter raises."""
        self.own = interpret(module, inputs)
        self.signs = zeros_have_signs(str(module))
        self.exact: Outcome | None = None
        self.wide = in_float64(module)
        self.why = (
            ""
            if self.wide
            else "float64 would mean something else in it: bits are read, or random numbers drawn in place"
        )
        if self.wide is not None:
            try:
                self.exact = interpret(self.wide, in_wider_dtypes(inputs))
            except Exception as error:  # an operator that does not take float64, or a view of bits
                self.wide, self.why = (
                    None,
                    f"in float64 it raises {' '.join(f'{type(error).__name__}: {error}'.split())}",
                )
        self.started = copies(inputs)

    def compare(self, outcome: Outcome) -> Wrong | None:
        """The worst of what is wrong, of the first value that is."""
        for what, own, exact, got in (
            ("result", self.own.results, self.exact and self.exact.results, outcome.results),
            ("argument", self.own.arguments, self.exact and self.exact.arguments, outcome.arguments),
        ):
            for k, (mine, found) in enumerate(zip(own, got, strict=True)):
                wrong = compared(f"{what} {k}", k, mine, exact[k] if exact else None, found)
                if wrong is None and self.signs:
                    wrong = signs(f"{what} {k}", k, mine, exact[k] if exact else None, found)
                if wrong is None and what == "result":
                    wrong = strides(k, mine, found)
                if wrong is not None:
                    return wrong
        if outcome.shared:
            return Wrong("memory", -1, (), 0.0, 0.0, None, None, outcome.shared)
        return None


def in_wider_dtypes(inputs: Sequence[Any]) -> Inputs:
    """Inputs for the module in float64, with the same random state."""
    return Inputs((widened(x) for x in inputs), getattr(inputs, "random_state", None))


def compared(what: str, position: int, own: Any, exact: Any, got: Any, least: float = 0.0) -> Wrong | None:
    """`own` is what the given module computes, `exact` the same in float64, or None. `least` of the largest element is no error."""
    if not isinstance(own, torch.Tensor) or not isinstance(got, torch.Tensor):
        same = own == got or (own != own and got != got)
        if not same and isinstance(own, float) and isinstance(got, float):
            same = abs(own - got) <= 1e-12 * abs(own)
        return None if same else Wrong(what, position, (), abs(float(got) - float(own)), 0.0, got, own)
    if (own.dtype, own.shape) != (got.dtype, got.shape):
        describe = lambda x: f"{x.dtype} {list(x.shape)}"
        return Wrong(what, position, (), float("inf"), 0.0, describe(got), describe(own))
    if own.numel() == 0 or torch.equal(_comparable(own), _comparable(got)):  # whose own error is within the limit
        return None
    if not (own.is_floating_point() or own.is_complex()):
        return _discrete(what, position, own, exact, got)
    wide = torch.complex128 if own.is_complex() else torch.float64
    right = own.to(wide) if exact is None else exact.to(wide)
    mine, found = own.to(wide), got.to(wide)
    finite = torch.isfinite(mine) & torch.isfinite(right)
    scale = float(right[finite].abs().max()) if finite.any() else 0.0
    unit = torch.finfo(own.dtype).eps * scale
    roundings = ROUNDINGS.get(own.dtype, HALF_ROUNDINGS)
    limit = ALONE * unit if exact is None else TIMES * _most((mine - right)[finite]) + roundings * unit
    limit = max(limit, least * scale)
    error = (found - right).abs()
    error = torch.where(finite & ~torch.isfinite(found), torch.inf, torch.where(finite, error, 0.0))
    # where the given module is not finite, and float64 agrees, neither may be finite
    agreed = ~finite & ((mine == right) | (mine.isnan() & right.isnan()))
    differs = agreed & ~((found == mine) | (found.isnan() & mine.isnan()))
    error = torch.where(differs, torch.inf, error)
    worst = int(error.argmax())
    if float(error.flatten()[worst]) <= limit:
        return None
    return _wrong(what, position, got, right, worst, float(error.flatten()[worst]), limit)


def strides(position: int, own: Any, got: Any) -> Wrong | None:
    """A result with other strides than it is promised to have."""
    if not isinstance(own, torch.Tensor) or own.layout != torch.strided or not own.numel():
        return None
    mine, found = ([s for n, s in zip(x.shape, x.stride(), strict=True) if n > 1] for x in (own, got))
    if mine == found:
        return None
    said = f"result {position} has strides {list(got.stride())}, not {list(own.stride())}"
    return Wrong(f"result {position}", position, (), 0.0, 0.0, None, None, said)


def signs(what: str, position: int, own: Any, exact: Any, got: Any) -> Wrong | None:
    """A zero of the other sign than the given module has, where float64 agrees with that."""
    if not isinstance(own, torch.Tensor) or not isinstance(exact, torch.Tensor) or not own.is_floating_point():
        return None
    zero = (own == 0) & (exact == 0) & (got == 0) & (own.signbit() == exact.signbit())
    bad = zero & (got.signbit() != own.signbit())
    return _wrong(what, position, got, own, int(bad.int().argmax()), 0.0, 0.0) if bad.any() else None


def _comparable(x: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(x) if x.dtype == torch.complex32 else x  # of which PyTorch has no `equal`


def _most(x: torch.Tensor) -> float:
    return float(x.abs().max()) if x.numel() else 0.0


def _discrete(what: str, position: int, own: torch.Tensor, exact: Any, got: torch.Tensor) -> Wrong | None:
    """Integers and truths, which are equal, but where the given module is not sure of them itself."""
    bad = own != got
    if exact is not None:
        bad &= own == exact
    if not bad.any():
        return None
    error = torch.where(bad, (got.double() - own.double()).abs(), -1.0)
    worst = int(error.argmax())
    return _wrong(what, position, got, own, worst, float(error.flatten()[worst]), 0.0)


def _wrong(what: str, position: int, got: Any, right: Any, worst: int, error: float, limit: float) -> Wrong:
    index = tuple(int(i) for i in torch.unravel_index(torch.tensor(worst), got.shape))
    expected = right[index].item()
    return Wrong(what, position, index, error, limit, got[index].item(), expected)
