"""The sizes of five models, and what their training must have cost."""

import pytest

from dragoman.study.sizes import MODELS, SHAPES, Size
from tests.paper.test_table3 import TABLE, count

SIZES = {published.name: Size.of(published) for published in MODELS}


@pytest.mark.parametrize("name", ["base", "GPT-2 XL", "Megatron-LM", "GPT-3"])
def test_parameters_are_as_many_as_published(name: str) -> None:
    assert SIZES[name].parameters == pytest.approx(SIZES[name].published.parameters, rel=0.01)


def test_the_big_model_counts_what_the_paper_counts_but_for_its_vocabulary() -> None:
    size = SIZES["big"]
    apart = abs(size.parameters - size.published.parameters)
    assert apart / size.width < 5_000  # pieces: the paper's number is not known
    assert f"which counts {size.parameters / 1e6:.0f} million where the paper prints 213 (+2 %)" in SHAPES
    off = {name: abs(count(name) / 1e6 - row.millions) for name, row in TABLE.items()}
    assert max(millions for name, millions in off.items() if name != "big") < 1.2
    assert round(100 * (size.parameters / size.published.parameters - 1)) == 2


def test_operations_of_gpt_3_are_those_published() -> None:
    operations = SIZES["GPT-3"].operations
    assert operations
    assert operations == pytest.approx(3.14e23, rel=0.01)
    assert operations / 8.64e19 == pytest.approx(3640, rel=0.01)  # petaflop/s-days


@pytest.mark.parametrize("name", ["base", "big"])
def test_published_operations_of_the_paper_are_days_times_rate(name: str) -> None:
    published = SIZES[name].published
    assert published.days
    assert published.rate
    assert published.days * 86_400 * published.rate == pytest.approx(published.operations, rel=0.01)


def test_nothing_takes_less_time_than_its_operations() -> None:
    timed = [size for size in SIZES.values() if size.days and size.published.days]
    assert len(timed) == 3
    assert all(size.days < size.published.days for size in timed if size.days and size.published.days)
