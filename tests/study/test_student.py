"""Student's t, held to its density."""

from math import gamma, pi

import numpy as np
import pytest

from dragoman.study.student import STUDENT, differ, student


def test_nineteen_times_in_twenty_t_lies_within_the_quantile() -> None:
    for freedom, quantile in enumerate(STUDENT, start=1):
        t = np.linspace(-quantile, quantile, 10_001)
        factor = gamma((freedom + 1) / 2) / ((freedom * pi) ** 0.5 * gamma(freedom / 2))
        density = factor * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        assert np.trapezoid(density, t) == pytest.approx(0.95, abs=1e-4)


def test_broken_degrees_of_freedom_claim_no_more_than_whole_ones() -> None:
    assert (student(1), student(2.9), student(3)) == (12.706, 4.303, 3.182)


def test_what_welch_tells_apart_worked_by_hand() -> None:
    # 1, 2, 3 and 5, 7, 9: variances 1 and 4, error sqrt(5/3) = 1.291, freedom (5/3)^2 / (1/18 + 16/18) = 2.94.
    assert differ([1.0, 2.0, 3.0], [5.7, 7.7, 9.7])  # 5.7 apart, more than 4.303 * 1.291 = 5.555
    assert not differ([1.0, 2.0, 3.0], [5.5, 7.5, 9.5])
    # Where one of them does not vary the other's freedom is left: 12.706 * sqrt(1/2 / 2) = 6.353.
    for seeds in (2, 3, 5, 7):
        assert differ([0.0, 1.0], [6.9] * seeds)
        assert not differ([6.8] * seeds, [0.0, 1.0])


def test_samples_of_one_law_seldom_differ() -> None:
    draw = np.random.default_rng(0)
    found = [differ(draw.normal(0, 1, 3).tolist(), draw.normal(0, 5, 7).tolist()) for _ in range(2000)]
    # 5 % of 2000: three standard errors are 0.015. Welch's is not exact, and whole freedoms claim a little less.
    assert 0.025 < sum(found) / len(found) < 0.065
