"""Compares two sides on subjects: alternating samples beside a control, what compiling said, and the error against float64.

The control is a second compilation of A. What it differs from A by is noise: the machine's, and that of where code and memory lie.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from math import exp, log
from typing import Any

from mlirc.measurement.alternate import Samples, alternate, spread
from mlirc.measurement.error import RelativeError, error_of
from mlirc.measurement.facts import CompiledFacts
from mlirc.measurement.intervals import METHOD, Interval, geometric_mean, ratio_of_medians
from mlirc.measurement.machine import describe_machine
from mlirc.measurement.sides import Side
from mlirc.measurement.subjects import Subject

SCHEMA = 1
CLOCKS = ("wall", "cpu")
NOISY = 1.05  # a control that reaches farther than this says that the machine is too busy to be measured on
ROUNDS = 6  # the range of so many samples holds their median in 97% of cases; of 5 in 94%
NAMES = ("A", "control", "B")


@dataclass(frozen=True)
class SubjectComparison:
    """One subject under A, B and the control.

    samples   by side; facts and errors likewise. An error is None where float64 has no meaning
    faster    by clock: how many times faster B is than A
    noise     by clock: the same of the control, which is A
    """

    name: str
    samples: dict[str, Samples]
    facts: dict[str, CompiledFacts]
    errors: dict[str, RelativeError | None]
    faster: dict[str, Interval]
    noise: dict[str, Interval]

    @property
    def same_plan(self) -> bool:
        """Whether B has A's kernels, calls and arena, by their ops and sizes."""
        return self.facts["A"].plan == self.facts["B"].plan != ""

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdicts by the clock that measured them."""
        rounds = len(self.samples["A"].wall)
        return {clock: verdict(self.faster[clock], self.noise[clock], rounds) for clock in CLOCKS}

    def as_dict(self) -> dict[str, Any]:
        sides = {
            side: {
                "wall": spread(self.samples[side].wall),
                "cpu": spread(self.samples[side].cpu),
                **self.facts[side].as_dict(),
                "error": None if (error := self.errors[side]) is None else asdict(error),
            }
            for side in NAMES
        }
        return {
            "name": self.name,
            "sides": sides,
            "faster": {clock: asdict(self.faster[clock]) for clock in CLOCKS},
            "noise": {clock: asdict(self.noise[clock]) for clock in CLOCKS},
            "verdict": self.verdicts,
        }


class SideFailed(RuntimeError):
    """A side that does not compile or run a subject."""


def compare_on(subject: Subject, a: Side, b: Side, rounds: int) -> SubjectComparison:
    """Raises SideFailed."""
    import torch

    torch._dynamo.reset()  # models share functions, and Dynamo compiles each a few times: further ones would run in eager
    made = {}
    for name, side in (("control", a), ("A", a), ("B", b)):  # the first pays for what a process does once
        try:
            with torch._dynamo.config.patch(fail_on_recompile_limit_hit=True):
                made[name] = subject.compiled(side)
        except Exception as error:  # of any kind: whatever the pass, the compiler or the model raises
            text = " ".join(str(error).split())
            raise SideFailed(f"{subject.name} under '{side.text}': {type(error).__name__}: {text}") from error
    exact = subject.exact()
    samples = alternate({name: made[name].step for name in NAMES}, rounds, subject.finish())
    errors = {name: None if exact is None else error_of(made[name].results, exact) for name in NAMES}
    return SubjectComparison(
        subject.name,
        samples,
        {name: made[name].facts for name in NAMES},
        errors,
        {clock: ratio(samples, "B", clock) for clock in CLOCKS},
        {clock: ratio(samples, "control", clock) for clock in CLOCKS},
    )


def ratio(samples: dict[str, Samples], other: str, clock: str) -> Interval:
    return ratio_of_medians(getattr(samples["A"], clock), getattr(samples[other], clock))


def verdict(faster: Interval, noise: Interval, rounds: int) -> str:
    """The verdict as text. A difference counts where its interval excludes 1 and reaches farther than the control's, and none where
    rounds are too few for an interval."""
    if rounds < ROUNDS:
        return "too few rounds to say"
    if not faster.excludes_one or exp(abs(log(faster.value))) <= noise.reach:
        return "no difference beyond noise"
    return "faster" if faster.value > 1 else "slower"


def overall(found: Iterable[SubjectComparison], other: str, clock: str) -> Interval:
    """The geometric mean over subjects of how many times faster a side is than A."""
    return geometric_mean([(getattr(c.samples["A"], clock), getattr(c.samples[other], clock)) for c in found])


def noise_in_words(found: Sequence[SubjectComparison]) -> str:
    """What the control says of the measurement."""
    reaches = {clock: max(c.noise[clock].reach for c in found) for clock in CLOCKS}
    said = (
        f"A/A control: two compilations of A may differ by a factor of {reaches['wall']:.3f} by wall clock and "
        f"{reaches['cpu']:.3f} by CPU time; what differs less is noise."
    )
    if reaches["wall"] > NOISY:
        said += " The machine is too busy or too uneven for small differences: measure again when it is idle, with more --rounds."
    rounds = min(len(c.samples["A"].wall) for c in found)
    if rounds < ROUNDS:
        said += f" {rounds} rounds are too few for an interval of 95%, and so for a verdict: give at least --rounds {ROUNDS}."
    return said


def as_json(a: Side, b: Side, found: list[SubjectComparison], rounds: int, failed: list[str]) -> dict[str, Any]:
    """docs/debugging.md describes it."""
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "A": a.text,
        "B": b.text,
        "machine": describe_machine(),
        "rounds": rounds,
        "method": METHOD,
        "subjects": [comparison.as_dict() for comparison in found],
        "failed": failed,
    }
    if found:
        result["overall"] = {
            "faster": {clock: asdict(overall(found, "B", clock)) for clock in CLOCKS},
            "noise": {clock: asdict(overall(found, "control", clock)) for clock in CLOCKS},
            "control": noise_in_words(found),
        }
    return result
