"""Differences between two traces of one program, and which of them rounding explains."""

from dataclasses import dataclass

import torch

from tests.fuzz.calls import type_name
from tests.fuzz.observe import Leaf, Trace

RELATIVE = 16  # units in the last place that no further question is asked about
PART = 1 << 20  # values that are compared at once: each takes some 200 bytes beside every run of eager
SPREAD = 4  # times the range of what eager gives with every operation's last bit changed at random


@dataclass(frozen=True)
class Difference:
    """Where two runs differ: the number of the observation, the value in it, and how."""

    observation: int
    path: str
    kind: str
    text: str

    @property
    def place(self) -> tuple:
        return self.observation, self.path, self.kind


def differences(expected: Trace, found: Trace, noisy: list[Trace] | None = None) -> list[Difference]:
    """All differences. With `noisy`, runs of eager with other last bits, only those that they do not explain."""
    result = []
    for number, (wanted, got) in enumerate(zip(expected.observations, found.observations, strict=False)):
        if [leaf.path for leaf in wanted] != [leaf.path for leaf in got]:
            result.append(Difference(number, "", "structure", f"{len(got)} values, eager {len(wanted)}"))
            continue
        for k, (e, f) in enumerate(zip(wanted, got, strict=True)):
            others = None if noisy is None else [_leaf(trace, number, k) for trace in noisy]
            result += [Difference(number, e.path, kind, text) for kind, text in _compare(e, f, others)]
    one, other = _error(expected), _error(found)
    if one != other or len(expected.observations) != len(found.observations):
        unstable = noisy is not None and any(_error(t) != one or _length(t) != _length(expected) for t in noisy)
        if not unstable:
            place = min(_length(expected), _length(found))
            text = f"raises {describe(found.error)}, eager {describe(expected.error)}"
            result.append(Difference(place, "", f"error {other}", text))
    return result


def describe(error: BaseException | None) -> str:
    """An exception in one line: Dynamo wraps what a backend raises."""
    if error is None:
        return "nothing"
    error = getattr(error, "inner_exception", None) or error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0] if lines else ''}"[:300]


def _error(trace: Trace) -> str:
    """The type of what ended a run."""
    return "" if trace.error is None else type_name(trace.error)


def _length(trace: Trace) -> int:
    return len(trace.observations)


def _leaf(trace: Trace, number: int, k: int) -> Leaf | None:
    if number < len(trace.observations) and k < len(trace.observations[number]):
        return trace.observations[number][k]
    return None


def _compare(e: Leaf, f: Leaf, others: list[Leaf | None] | None) -> list[tuple[str, str]]:
    if others is not None:  # a run that ended before this says nothing
        others = [o for o in others if o is not None] or [e]
        if any(o.facts.get("shape") != e.facts.get("shape") for o in others):
            return []
        if "value" in e.facts and any(o.facts != e.facts for o in others):
            return []
    wrong = [
        (name, f"{name} {f.facts.get(name)}, eager {e.facts.get(name)}")
        for name in e.facts.keys() | f.facts.keys()
        if e.facts.get(name) != f.facts.get(name)
    ]
    if (
        e.numbers is None
        or f.numbers is None
        or e.numbers.shape != f.numbers.shape
        or e.numbers.dtype != f.numbers.dtype
    ):
        return wrong
    numbers = None if others is None else [o.numbers for o in others if o.numbers is not None]
    bad = different(e.numbers, f.numbers, numbers)
    if bad.any():
        place = tuple(bad.nonzero()[0].tolist())
        text = f"{int(bad.sum())} of {bad.numel()} values, at {place}: {f.numbers[place].item()}, eager {e.numbers[place].item()}"
        wrong.append(("values", text))
    return wrong


def different(e: torch.Tensor, f: torch.Tensor, noisy: list[torch.Tensor] | None) -> torch.Tensor:
    """Where f is not e: bit for bit for integers, else but for rounding. Zeros have signs, NaN is equal to NaN."""
    if e.numel() > PART:
        flat = [x.expand(e.shape).reshape(-1).split(PART) for x in (e, f, *(noisy or ()))]
        parts = [different(e, f, None if noisy is None else others) for e, f, *others in zip(*flat, strict=True)]
        return torch.cat(parts).view(e.shape)
    if e.dtype.is_complex:
        parts = [None if noisy is None else [torch.view_as_real(n)[..., k] for n in noisy] for k in (0, 1)]
        e, f = torch.view_as_real(e), torch.view_as_real(f)
        return different(e[..., 0], f[..., 0], parts[0]) | different(e[..., 1], f[..., 1], parts[1])
    if not e.dtype.is_floating_point:
        bad = e != f
        for n in noisy or []:
            bad &= n == e
        return bad
    wide = torch.float64
    x, y = e.to(wide), f.to(wide)
    limit = RELATIVE * torch.finfo(e.dtype).eps * x.abs() + torch.finfo(e.dtype).smallest_normal * 4
    if noisy:
        every = torch.stack([n.to(wide) for n in noisy] + [x])
        spread = every.amax(0) - every.amin(0)
        limit = limit + SPREAD * torch.where(spread.isfinite(), spread, torch.inf)
        unstable = (every.isnan() != x.isnan()).any(0) | (every.isinf() != x.isinf()).any(0)
        unstable |= (every.signbit() != x.signbit()).any(0) & (x == 0)
        rounded_away = (every != 0).any(0)  # a zero that is a small number has that one's sign
    else:
        unstable = rounded_away = torch.zeros_like(x, dtype=torch.bool)
    same = (x == y) | (x.isnan() & y.isnan())
    if noisy:
        same |= y.isinf() & (every == y).any(0)  # both infinities, of eager's own
        # a factor that rounding carries across zero, times infinity: either infinity, and NaN at zero itself
        same |= y.isnan() & (every == torch.inf).any(0) & (every == -torch.inf).any(0)
    near = x.isfinite() & y.isfinite() & ((x - y).abs() <= limit)
    signs = (x == 0) & (y == 0) & (x.signbit() != y.signbit()) & ~rounded_away
    return (~(same | near) | signs) & ~unstable
