"""Student's t: what makes a 95 % interval of a standard error."""

# The 97.5 % quantile with 1, 2, ... degrees of freedom; 18 are those of two times ten seeds.
STUDENT = (
    *(12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262),
    *(2.228, 2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101),
)


def student(freedom: int | float) -> float:
    """With broken degrees of freedom the next lower whole ones count, which claims less."""
    return STUDENT[int(freedom) - 1]
