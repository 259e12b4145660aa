"""Confidence intervals of ratios of times: of one program measured twice, and of one that was compiled several times.

Of two series of samples, by the bootstrap (Efron, 1979): rounds are drawn with replacement, the ratio of medians is taken of each draw, and
the interval is the middle 95% of 4,000 such ratios.

Two compilations of the same code differ, too, because code and memory lie elsewhere (Curtsinger and Berger, Stabilizer, 2013), and more
rounds do not change that. So the interval that compares two compilers is Student's, of the compilations' medians: what they vary by has
both causes in it, the samples' noise and the place.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, sqrt

import numpy as np

RESAMPLES = 4000
COVERAGE = 0.95
METHOD = "99% interval of Student's t; ratio of the geometric means of the compilations' medians, of the same rounds for all compilations"

# Student's t: n compilations of each side -> the 99.5% quantile for 2 * (n - 1) degrees of freedom
STUDENT = {2: 9.925, 3: 4.604, 4: 3.707, 5: 3.355, 6: 3.169, 7: 3.055, 8: 2.977, 9: 2.921, 10: 2.878}

# seconds: for each compilation of a side its samples, one a round
Compilations = Sequence[Sequence[float]]


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
    def margin(self) -> float:
        """The factor, at least 1, between the middle of the interval and its ends: a smaller difference is none."""
        return sqrt(self.high / self.low)

    def __str__(self) -> str:
        return f"{self.value:.3f} [{self.low:.3f}, {self.high:.3f}]"


def ratio_of_medians(before: Sequence[float], after: Sequence[float], paired: bool = True) -> Interval:
    """The interval of median(before) / median(after): how many times faster `after` is. Paired: the k-th samples are of one round."""
    logs = resampled_logs(before, after, paired)
    return interval(float(np.median(before) / np.median(after)), logs)


def ratio_of_compilations(before: Compilations, after: Compilations) -> Interval:
    """The 99% interval of how many times faster `after` is, from 2 to 10 compilations of each side, as many of both."""
    return geometric_mean([(before, after)])


def geometric_mean(pairs: Sequence[tuple[Compilations, Compilations]]) -> Interval:
    """The 99% interval of the geometric mean of the ratios of several pairs, each with as many compilations."""
    found = [log_ratio(before, after) for before, after in pairs]
    value = sum(ratio for ratio, _ in found) / len(found)
    # one pair's degrees of freedom, though all have more: the interval is rather too wide
    margin = STUDENT[len(pairs[0][0])] * sqrt(sum(variance for _, variance in found)) / len(found)
    return Interval(exp(value), exp(value - margin), exp(value + margin))


def log_ratio(before: Compilations, after: Compilations) -> tuple[float, float]:
    """The log of how many times faster `after` is, and the variance of this estimate."""
    a, b = (np.log([np.median(samples) for samples in side]) for side in (before, after))
    return float(a.mean() - b.mean()), float((a.var(ddof=1) + b.var(ddof=1)) / len(a))


def resampled_logs(before: Sequence[float], after: Sequence[float], paired: bool) -> np.ndarray:
    generator = np.random.default_rng(0)  # the same samples give the same interval
    a, b = np.asarray(before), np.asarray(after)
    rounds = generator.integers(0, len(a), (RESAMPLES, len(a)))
    others = rounds if paired else generator.integers(0, len(b), (RESAMPLES, len(b)))
    return np.log(np.median(a[rounds], axis=1)) - np.log(np.median(b[others], axis=1))


def interval(value: float, logs: np.ndarray) -> Interval:
    low, high = np.quantile(logs, [(1 - COVERAGE) / 2, (1 + COVERAGE) / 2])
    return Interval(value, float(np.exp(low)), float(np.exp(high)))
