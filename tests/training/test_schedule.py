"""The learning rate of both schedules, and the budget."""

import pytest

from dragoman.recipe import TrainingConfig
from dragoman.training.schedule import Progress, learning_rate, spent


@pytest.mark.parametrize("schedule", ["paper", "landing"])
def test_the_rate_rises_in_a_straight_line_to_its_peak(schedule: str) -> None:
    config = TrainingConfig(schedule=schedule, warmup=7, peak=0.25)  # type: ignore[arg-type]
    rates = [learning_rate(config, 11, step, spent=0.0) for step in range(1, 8)]
    assert rates == pytest.approx([0.25 * step / 7 for step in range(1, 8)])


@pytest.mark.parametrize("schedule", ["paper", "landing"])
def test_equation_3_gives_the_peak_unless_one_is_given(schedule: str) -> None:
    # (d_model * warmup)^-0.5 = (11 * 7)^-0.5
    config = TrainingConfig(schedule=schedule, warmup=7)  # type: ignore[arg-type]
    assert learning_rate(config, 11, 7, spent=0.0) == pytest.approx(77**-0.5)
    assert learning_rate(config.model_copy(update={"peak": 0.5}), 11, 7, spent=0.0) == pytest.approx(0.5)


def test_after_warm_up_the_paper_s_rate_falls_with_the_root_of_the_step_whatever_is_spent() -> None:
    config = TrainingConfig(warmup=7, peak=1.0)
    for share in (0.0, 0.5, 1.0):
        assert learning_rate(config, 11, 28, share) == pytest.approx(1 / 2)
        assert learning_rate(config, 11, 63, share) == pytest.approx(1 / 3)


def test_a_landing_rate_falls_in_a_straight_line_to_zero_at_the_end_of_the_budget() -> None:
    config = TrainingConfig(schedule="landing", warmup=7, peak=1.0)
    for step in (7, 100, 10_000):
        for share in (0.0, 0.25, 0.5, 1.0):
            assert learning_rate(config, 11, step, share) == pytest.approx(1 - share)
    assert learning_rate(config, 11, 7, 1.01) == 0.0  # a budget of minutes may be overdrawn by a step


def test_a_warm_up_of_one_step_begins_at_the_peak() -> None:
    config = TrainingConfig(warmup=1, peak=1.0)
    assert learning_rate(config, 11, 1, 0.0) == 1.0
    assert learning_rate(config, 11, 4, 0.0) == 0.5


def test_each_budget_is_spent_in_its_own_measure() -> None:
    assert spent(Progress(step=3), TrainingConfig(steps=5)) == pytest.approx(3 / 5)
    assert spent(Progress(epoch=2, epoch_share=0.5), TrainingConfig(epochs=5)) == pytest.approx(2.5 / 5)
    assert spent(Progress(seconds=90.0), TrainingConfig(minutes=2.0)) == pytest.approx(3 / 4)
    assert spent(Progress(step=3, epoch=2, seconds=90.0), TrainingConfig()) == 0.0


def test_the_budget_that_is_spent_first_decides() -> None:
    config = TrainingConfig(steps=100, epochs=10, minutes=1.0)
    assert spent(Progress(step=70, epoch=2, seconds=3.0), config) == pytest.approx(0.7)
    assert spent(Progress(step=7, epoch=9, seconds=3.0), config) == pytest.approx(0.9)
    assert spent(Progress(step=7, epoch=2, seconds=66.0), config) == pytest.approx(1.1)
