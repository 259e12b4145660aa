"""Confidence intervals of ratios of medians, by the bootstrap (Efron, 1979).

Rounds are drawn with replacement, and the ratio of medians is taken of each draw. The interval is the middle 95% of 4,000 such ratios."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, log

import numpy as np

RESAMPLES = 4000
COVERAGE = 0.95
METHOD = "95% interval of 4,000 bootstrap resamples of rounds; ratio of medians, of the same rounds on both sides"


@dataclass(frozen=True)
class Interval:
    """An estimate, and the ends of its confidence interval."""

    value: float
    low: float
    high: float

    @property
    def excludes_one(self) -> bool:
        return self.low > 1 or self.high < 1

    @property
    def reach(self) -> float:
        """The distance of the interval's farther end from 1, as a factor of at least 1."""
        return exp(max(abs(log(self.low)), abs(log(self.high))))

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio_of_medians(before: Sequence[float], after: Sequence[float], paired: bool = True) -> Interval:
    """The interval of median(before) / median(after): how many times faster `after` is. Paired: the k-th samples are of one round."""
    logs = resampled_logs(before, after, paired)
    return interval(float(np.median(before) / np.median(after)), logs)


def geometric_mean(pairs: Sequence[tuple[Sequence[float], Sequence[float]]]) -> Interval:
    """The interval of the geometric mean of several pairs' ratios, each resampled by itself."""
    logs = np.mean([resampled_logs(a, b, True, seed) for seed, (a, b) in enumerate(pairs)], axis=0)
    value = exp(sum(log(np.median(a) / np.median(b)) for a, b in pairs) / len(pairs))
    return interval(value, logs)


def resampled_logs(before: Sequence[float], after: Sequence[float], paired: bool, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)  # the same samples give the same interval
    a, b = np.asarray(before), np.asarray(after)
    rounds = generator.integers(0, len(a), (RESAMPLES, len(a)))
    others = rounds if paired else generator.integers(0, len(b), (RESAMPLES, len(b)))
    return np.log(np.median(a[rounds], axis=1)) - np.log(np.median(b[others], axis=1))


def interval(value: float, logs: np.ndarray) -> Interval:
    low, high = np.quantile(logs, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return Interval(value, float(np.exp(low)), float(np.exp(high)))
