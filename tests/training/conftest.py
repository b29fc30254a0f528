"""A run so small that a test can afford several."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from rich.console import Console

from dragoman.recipe import read_recipe
from dragoman.training.loop import Outcome
from dragoman.training.run import run_training

MINUSCULE = [
    "model.layers=1",
    "model.width=12",
    "model.hidden=17",
    "model.heads=3",
    "model.dropout=0.1",
    "training.batch_tokens=96",
    "training.row_length=48",
    "training.schedule=paper",
    "training.warmup=5",
    "training.samples=1",
]

Train = Callable[..., Outcome]


@pytest.fixture
def train_small(reversals: Path) -> Train:
    """Train a minuscule model on reversed digits."""

    def train(
        out: Path, *overrides: str, resume: bool = False, start: Path | None = None, data: Path | None = None
    ) -> Outcome:
        recipe = read_recipe("tiny", [*MINUSCULE, *overrides])
        console = Console(stderr=True)
        return run_training(recipe, data or reversals / "data", out, torch.device("cpu"), console, resume, start)

    return train
