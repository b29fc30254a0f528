"""Fitted exponents: exact where the law is, and inside their interval where it is noisy."""

import numpy as np
import pytest

from dragoman.study.power_law import fit_power_law


def test_an_exact_law_is_found_exactly() -> None:
    x = [3, 5, 7, 11, 13]
    law = fit_power_law(x, [17 * each**1.5 for each in x])
    assert law == pytest.approx((1.5, 1.5, 1.5, 17), abs=1e-9)


def test_the_interval_holds_the_true_exponent_nineteen_times_in_twenty() -> None:
    draw = np.random.default_rng(0)
    x = [2, 3, 5, 7, 11, 13, 17]
    laws = [fit_power_law(x, [each**2 * draw.lognormal(0, 0.1) for each in x]) for _ in range(1000)]
    share = sum(law.low <= 2 <= law.high for law in laws) / len(laws)
    # 95 % of 1000 independent intervals: three standard errors are 0.021.
    assert abs(share - 0.95) < 0.021
