"""Compares two sides on subjects: alternating samples, what compiling said, and the error against float64.

Each side is compiled several times. What its compilations differ by is noise: the machine's, and that of where code and memory lie.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from mlirc.measurement.alternate import Samples, alternate, spread
from mlirc.measurement.error import RelativeError, error_of
from mlirc.measurement.facts import CompiledFacts
from mlirc.measurement.intervals import METHOD, Interval, geometric_mean, ratio_of_compilations
from mlirc.measurement.machine import describe_machine
from mlirc.measurement.sides import Side
from mlirc.measurement.subjects import CompiledSubject, Subject

SCHEMA = 2
CLOCKS = ("wall", "cpu")
NOISY = 1.05  # a larger margin by wall clock says that the machine is too busy to be measured on
ROUNDS = 6  # the range of so many samples holds their median in 97% of cases; of 5 in 94%
NAMES = ("A", "B")


@dataclass(frozen=True)
class SubjectComparison:
    """One subject under A and B.

    samples   by side, for each of its compilations
    facts     by side, of its last compilation
    errors    likewise; None where float64 has no meaning
    faster    by clock: how many times faster B is than A
    """

    name: str
    samples: dict[str, list[Samples]]
    facts: dict[str, CompiledFacts]
    errors: dict[str, RelativeError | None]
    faster: dict[str, Interval]

    @property
    def same_plan(self) -> bool:
        """Whether B has A's kernels, calls and arena, by their ops and sizes."""
        return self.facts["A"].plan == self.facts["B"].plan != ""

    @property
    def verdicts(self) -> dict[str, str]:
        """Verdicts by the clock that measured them."""
        return {clock: verdict(self.faster[clock], self.rounds) for clock in CLOCKS}

    @property
    def rounds(self) -> int:
        return len(self.samples["A"][0].wall)

    def seconds(self, side: str, clock: str) -> list[list[float]]:
        """The samples of each compilation of a side, by one clock."""
        return seconds_by(self.samples[side], clock)

    def as_dict(self) -> dict[str, Any]:
        sides = {
            side: {
                **{clock: spread_of(self.seconds(side, clock)) for clock in CLOCKS},
                **self.facts[side].as_dict(),
                "error": None if (error := self.errors[side]) is None else asdict(error),
            }
            for side in NAMES
        }
        return {
            "name": self.name,
            "sides": sides,
            "faster": {clock: asdict(self.faster[clock]) for clock in CLOCKS},
            "margin": {clock: self.faster[clock].margin for clock in CLOCKS},
            "verdict": self.verdicts,
        }


class SideFailed(RuntimeError):
    """A side that does not compile or run a subject."""


def compare_on(subject: Subject, a: Side, b: Side, rounds: int, compilations: int) -> SubjectComparison:
    """Compiles and measures a subject under both sides. `compilations` is that of each side, from 2 to 10. Raises SideFailed."""
    import torch

    torch._dynamo.reset()  # models share functions, and Dynamo compiles each a few times: further ones would run in eager
    limits = {"fail_on_recompile_limit_hit": True, "recompile_limit": 6 * compilations}
    made: dict[str, list[CompiledSubject]] = {name: [] for name in NAMES}
    both = (("A", a), ("B", b))
    for number in range(compilations):
        for name, side in both[:: -1 if number % 2 else 1]:  # neither side has its memory always behind the other's
            try:
                with torch._dynamo.config.patch(limits):
                    made[name].append(subject.compiled(side))
            except Exception as error:  # of any kind: whatever the pass, the compiler or the model raises
                text = " ".join(str(error).split())
                raise SideFailed(f"{subject.name} under '{side.text}': {type(error).__name__}: {text}") from error
    exact = subject.exact()
    last = {name: made[name][-1] for name in NAMES}  # the first paid for what a process does once
    samples = alternate_compilations(
        {name: [one.step for one in made[name]] for name in NAMES}, rounds, subject.finish()
    )
    return SubjectComparison(
        subject.name,
        samples,
        {name: last[name].facts for name in NAMES},
        {name: None if exact is None else error_of(last[name].results, exact) for name in NAMES},
        {clock: ratio_of_compilations(*(seconds_by(samples[name], clock) for name in NAMES)) for clock in CLOCKS},
    )


def alternate_compilations(
    steps: Mapping[str, Sequence[Callable[[], Any]]], rounds: int, finish: Callable[[], None] | None = None
) -> dict[str, list[Samples]]:
    """Samples of several compilations of each side: each round measures each compilation once."""
    flat = {
        f"{name} {k}": step
        for k in range(max(map(len, steps.values())))
        for name in steps
        for step in steps[name][k : k + 1]
    }
    samples = alternate(flat, rounds, finish)
    return {name: [samples[f"{name} {k}"] for k in range(len(steps[name]))] for name in steps}


def seconds_by(samples: Iterable[Samples], clock: str) -> list[list[float]]:
    return [getattr(one, clock) for one in samples]


def spread_of(compilations: Sequence[list[float]]) -> dict[str, Any]:
    """The median of the compilations' medians, and each compilation's own median, quartiles and samples. In seconds."""
    found = [spread(samples) for samples in compilations]
    return {"median": median(one["median"] for one in found), "compilations": found}


def verdict(faster: Interval, rounds: int) -> str:
    """The verdict as text: a difference counts where its interval excludes 1, and none where rounds are too few for a median."""
    if rounds < ROUNDS:
        return "too few rounds to say"
    if not faster.excludes_one:
        return "no difference beyond noise"
    return "faster" if faster.value > 1 else "slower"


def overall(found: Iterable[SubjectComparison], clock: str) -> Interval:
    """The geometric mean over subjects of how many times faster B is than A."""
    return geometric_mean([(c.seconds("A", clock), c.seconds("B", clock)) for c in found])


def noise_in_words(found: Sequence[SubjectComparison]) -> str:
    """What the compilations of each side say of the measurement."""
    margins = {clock: max(c.faster[clock].margin for c in found) for clock in CLOCKS}
    said = (
        f"Noise: {len(found[0].samples['A'])} compilations of each side, which vary so that a difference of less than a factor of "
        f"{margins['wall']:.3f} by wall clock or {margins['cpu']:.3f} by CPU time is none."
    )
    if margins["wall"] > NOISY:
        said += (
            " The machine is too busy or too uneven for small differences: measure again when it is idle, with more --rounds "
            "and --compilations."
        )
    rounds = min(c.rounds for c in found)
    if rounds < ROUNDS:
        said += f" {rounds} rounds are too few for a verdict: give at least --rounds {ROUNDS}."
    return said


def as_json(
    a: Side, b: Side, found: list[SubjectComparison], rounds: int, compilations: int, failed: list[str]
) -> dict[str, Any]:
    """docs/debugging.md describes it."""
    result: dict[str, Any] = {
        "schema": SCHEMA,
        "A": a.text,
        "B": b.text,
        "machine": describe_machine(),
        "rounds": rounds,
        "compilations": compilations,
        "method": METHOD,
        "subjects": [comparison.as_dict() for comparison in found],
        "failed": failed,
    }
    if found:
        result["overall"] = {
            "faster": {clock: asdict(overall(found, clock)) for clock in CLOCKS},
            "noise": noise_in_words(found),
        }
    return result
