"""Student's t, held to its density."""

from math import gamma, pi

import numpy as np
import pytest

from dragoman.study.student import STUDENT, student


def test_nineteen_times_in_twenty_t_lies_within_the_quantile() -> None:
    for freedom, quantile in enumerate(STUDENT, start=1):
        t = np.linspace(-quantile, quantile, 10_001)
        factor = gamma((freedom + 1) / 2) / ((freedom * pi) ** 0.5 * gamma(freedom / 2))
        density = factor * (1 + t * t / freedom) ** (-(freedom + 1) / 2)
        assert np.trapezoid(density, t) == pytest.approx(0.95, abs=1e-4)


def test_broken_degrees_of_freedom_claim_no_more_than_whole_ones() -> None:
    assert (student(1), student(2.9), student(3)) == (12.706, 4.303, 3.182)
