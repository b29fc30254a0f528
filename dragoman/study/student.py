"""Student's t: what makes a 95 % interval of a standard error, and tells two means apart."""

import math
import statistics
from collections.abc import Sequence

# The 97.5 % quantile with 1, 2, ... degrees of freedom; 18 are those of two times ten seeds.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101),
)


def student(freedom: int | float) -> float:
    """With broken degrees of freedom the next lower whole ones count, which claims less."""
    return STUDENT[int(freedom + 1e-9) - 1]  # what is whole may have been rounded down


def differ(one: Sequence[float], other: Sequence[float]) -> bool:
    """Whether the means of two samples lie further apart than chance brings them nineteen times in twenty (Welch 1947).

    Where nothing varies there is nothing to compare the difference with.
    """
    if min(len(one), len(other)) < 2:
        return False
    shares = [statistics.variance(values) / len(values) for values in (one, other)]
    error = sum(shares)
    if not error:
        return False
    freedoms = [share**2 / (len(values) - 1) for share, values in zip(shares, (one, other), strict=True)]
    apart = abs(statistics.fmean(one) - statistics.fmean(other))
    return apart > student(error**2 / sum(freedoms)) * math.sqrt(error)
