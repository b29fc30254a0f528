"""The learning rate (section 5.3), and how much of a run's budget is spent."""

from dataclasses import dataclass

from dragoman.recipe import TrainingConfig


@dataclass
class Progress:
    """Where a run stands: a value; with the random states and moments saved beside it, resuming is loading it."""

    step: int = 0
    epoch: int = 0
    position: int = 0  # updates done in this epoch
    tokens: int = 0  # target tokens seen in all
    epoch_tokens: int = 0  # target tokens seen in this epoch
    epoch_share: float = 0.0  # which is this share of all it has
    seconds: float = 0.0  # from the first update after compilation and recording, validation included
    best_score: float | None = None  # the highest BLEU on the validation set
    best_loss: float | None = None  # its loss: where BLEU is equal, the lower loss is better
    best_step: int | None = None
    stale: int = 0  # validations since the best one
    rows_at_once: int | None = None  # found by the program, halved when memory runs out


def spent(progress: Progress, config: TrainingConfig) -> float:
    """The share of the budget that is spent; the run ends when it reaches 1."""
    shares = [
        progress.step / config.steps if config.steps else 0.0,
        (progress.epoch + progress.epoch_share) / config.epochs if config.epochs else 0.0,
        progress.seconds / (60 * config.minutes) if config.minutes else 0.0,
    ]
    return max(shares)


def still_warms_up(config: TrainingConfig, steps: int) -> bool:
    """Whether the learning rate has not reached its peak after so many."""
    return steps < config.warmup


def learning_rate(config: TrainingConfig, width: int, step: int, spent: float) -> float:
    """The rate of update number `step`, counted from 1."""
    # Equation 3 peaks at the end of warm-up with (d_model * warmup_steps)^-0.5.
    peak = config.peak or (width * config.warmup) ** -0.5
    match config.schedule:
        case "paper":
            # Equation 3: d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5), written relative to its peak.
            return peak * min((config.warmup / step) ** 0.5, step / config.warmup)
        case "landing":
            # Departs from the paper: a short run learns more when the rate falls to zero where the run ends.
            return peak * min(1.0, step / config.warmup) * max(0.0, 1.0 - spent)
