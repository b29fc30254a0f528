"""How one quantity grows with another: the exponent of a power law, with its interval."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dragoman.study.student import student


class PowerLaw(NamedTuple):
    """y = factor * x^exponent, with the 95 % interval of the exponent."""

    exponent: float
    low: float
    high: float
    factor: float


def fit_power_law(x: Sequence[int | float], y: Sequence[int | float]) -> PowerLaw:
    """The straight line through the logarithms that leaves the least squares."""
    log_x, log_y = np.log(np.asarray(x, dtype=float)), np.log(np.asarray(y, dtype=float))
    from_mean = log_x - log_x.mean()
    exponent = float(from_mean @ log_y / (from_mean @ from_mean))
    at_one = float(log_y.mean() - exponent * log_x.mean())
    left = log_y - at_one - exponent * log_x
    freedom = len(log_x) - 2
    error = float(np.sqrt(left @ left / freedom / (from_mean @ from_mean)))
    reach = student(freedom) * error
    return PowerLaw(exponent, exponent - reach, exponent + reach, float(np.exp(at_one)))
