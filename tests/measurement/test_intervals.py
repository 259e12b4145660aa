"""Confidence intervals: they hold the true ratio as often as they say, and rounds that are slow for both sides cancel out."""

import numpy as np
import pytest

from mlirc.measurement.comparing import verdict
from mlirc.measurement.intervals import Interval, geometric_mean, ratio_of_medians


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
    found = geometric_mean([([2.0] * 5, [1.0] * 5), ([1.0] * 5, [2.0] * 5), ([8.0] * 5, [1.0] * 5)])
    assert found.value == pytest.approx(2.0) and found.low == pytest.approx(2.0) == found.high


@pytest.mark.parametrize(
    ("faster", "noise", "said"),
    [
        (Interval(1.2, 1.1, 1.3), Interval(1.0, 0.98, 1.02), "faster"),
        (Interval(0.8, 0.7, 0.9), Interval(1.0, 0.98, 1.02), "slower"),
        (Interval(1.2, 0.9, 1.3), Interval(1.0, 0.98, 1.02), "no difference beyond noise"),
        (Interval(1.2, 1.1, 1.3), Interval(1.1, 0.98, 1.3), "no difference beyond noise"),
        (Interval(1.2, 1.1, 1.3), Interval(0.9, 0.8, 1.02), "no difference beyond noise"),
    ],
)
def test_a_difference_within_the_control_is_none(faster, noise, said):
    assert verdict(faster, noise, 6) == said
    assert verdict(faster, noise, 5) == "too few rounds to say"
