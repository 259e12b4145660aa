"""Confidence intervals: they hold the true ratio as often as they say, and rounds that are slow for both sides cancel out."""

import math

import numpy as np
import pytest

from mlirc.measurement.comparing import verdict
from mlirc.measurement.intervals import STUDENT, Interval, geometric_mean, ratio_of_compilations, ratio_of_medians


@pytest.mark.parametrize("paired", [True, False])
def test_coverage(paired):
    """Of 200 experiments with a known ratio, about 95% hold it: never fewer than 88%."""
    random = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        before, after = 2 * random.lognormal(0, 0.1, 21), random.lognormal(0, 0.1, 21)
        found = ratio_of_medians(before, after, paired)
        assert found.low <= found.value <= found.high
        held += found.low <= 2 <= found.high
    assert held >= 176


def test_a_drift_of_both_sides_cancels():
    random = np.random.default_rng(1)
    drift = np.linspace(1, 3, 25)
    before, after = drift * random.normal(1, 0.01, 25), drift * random.normal(0.9, 0.01, 25)
    paired, unpaired = (ratio_of_medians(before, after, paired) for paired in (True, False))
    assert paired.excludes_one and not unpaired.excludes_one
    assert (paired.high - paired.low) < 0.5 * (unpaired.high - unpaired.low)


def test_the_same_samples_give_the_same_interval():
    samples = [1.0, 1.2, 1.1], [0.9, 1.3, 1.0]
    assert ratio_of_medians(*samples) == ratio_of_medians(*samples)
    assert ratio_of_medians([1.0] * 5, [1.0] * 5) == Interval(1.0, 1.0, 1.0)


def test_geometric_mean():
    sides = {seconds: [[seconds] * 5] * 3 for seconds in (1.0, 2.0, 8.0)}
    found = geometric_mean([(sides[2.0], sides[1.0]), (sides[1.0], sides[2.0]), (sides[8.0], sides[1.0])])
    assert found.value == pytest.approx(2.0) and found.low == pytest.approx(2.0) == found.high


def compiled(random, ratio, place, noise, compilations=3, rounds=15):
    """Samples of two sides, of which the second takes `ratio` times as long: a round slows all compilations, and each compilation has a
    speed of its own, by where its code lies."""
    drift = random.lognormal(0, 0.1, rounds)
    sides = []
    for seconds in (1.0, ratio):
        speeds = random.lognormal(0, place, compilations)
        sides.append([list(seconds * s * drift * random.lognormal(0, noise, rounds)) for s in speeds])
    return sides


@pytest.mark.parametrize(("place", "noise"), [(0.0, 0.02), (0.02, 0.01), (0.03, 0.05), (0.02, 0.0), (0.0, 0.3)])
def test_equal_code_is_called_different_once_in_a_hundred(place, noise):
    """Whatever compilations of one code differ by: where its code lies, noise, or both. With one compilation of each side it was one in four."""
    random = np.random.default_rng(0)
    said = [verdict(ratio_of_compilations(*compiled(random, 1.0, place, noise)), 15) for _ in range(500)]
    assert len(said) - said.count("no difference beyond noise") <= 12


@pytest.mark.parametrize(("ratio", "said"), [(1.2, "slower"), (1 / 1.2, "faster")])
def test_a_difference_beyond_that_is_told(ratio, said):
    random = np.random.default_rng(1)
    found = [verdict(ratio_of_compilations(*compiled(random, ratio, 0.01, 0.02)), 15) for _ in range(100)]
    assert found.count(said) >= 95


def test_more_compilations_tell_smaller_differences():
    random = np.random.default_rng(2)
    margins = [
        np.mean([ratio_of_compilations(*compiled(random, 1.0, 0.02, 0.01, n)).margin for _ in range(100)])
        for n in (2, 3, 6)
    ]
    assert margins == sorted(margins, reverse=True) and margins[2] < 1.04


def test_quantiles_of_student():
    """By integration of the density, with 2 * (n - 1) degrees of freedom."""
    for n, quantile in STUDENT.items():
        freedom = 2 * (n - 1)
        scale = math.gamma((freedom + 1) / 2) / math.sqrt(freedom * math.pi) / math.gamma(freedom / 2)
        x = np.linspace(0, quantile, 20001)
        assert 0.5 + np.trapezoid(scale * (1 + x * x / freedom) ** (-(freedom + 1) / 2), x) == pytest.approx(
            0.995, abs=2e-5
        )


@pytest.mark.parametrize(
    ("faster", "said"),
    [
        (Interval(1.2, 1.1, 1.3), "faster"),
        (Interval(0.8, 0.7, 0.9), "slower"),
        (Interval(1.2, 0.9, 1.3), "no difference beyond noise"),
    ],
)
def test_a_difference_counts_where_its_interval_excludes_one(faster, said):
    assert verdict(faster, 6) == said
    assert verdict(faster, 5) == "too few rounds to say"
