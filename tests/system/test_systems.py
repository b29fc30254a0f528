"""Every system of recipes/systems trains from its recipe, and learns to reverse digits."""

from pathlib import Path

import pytest
import torch
from rich.console import Console

import dragoman
from dragoman.decoding.steps import show_steps
from dragoman.recipe import read_recipe
from dragoman.training.run import run_training

ROOT = Path(__file__).parents[2]
NAMES = sorted(path.stem for path in (ROOT / "recipes" / "systems").glob("*.toml"))
# Of the recipes, only what decides how long a test takes.
SMALL = [
    "model.width=64",
    "model.dropout=0.0",
    "training.batch_tokens=768",
    "training.row_length=16",
    "training.warmup=60",
    "training.peak=4e-3",
    "training.save_every=10000",
]
# None: it has no such key; 1 unless said.
LAYERS = {
    "transformer": 2,
    "restricted": 2,
    "wu": 3,
    "gpt": 2,
    "lstmn": None,
    "convs2s": 2,
    "bytenet": 10,
}
# What has to fit into one vector takes longer to learn, and is not learned for good.
FIXED_VECTOR = {"rnn": 0.2, "cho": 0.7, "sutskever": 0.2}
# Convolutions alone have to carry each digit to a place that depends on the length: learned ever better, but slowly.
UNGUIDED = {"bytenet": 0.5, "neural-gpu": 0.8}
BOUNDS = FIXED_VECTOR | UNGUIDED  # of what looks at nothing
QUICK = ["convs2s"]  # the others take their time elsewhere


def train(name: str, steps: int, reversals: Path, out: Path) -> dragoman.Translator:
    layers = LAYERS.get(name, 1)
    words = [*SMALL, f"training.steps={steps}", *([f"model.layers={layers}"] if layers else [])]
    recipe = read_recipe(f"systems/{name}", words)
    run_training(recipe, reversals / "data", out, torch.device("cpu"), Console(quiet=True))
    return dragoman.load(out, device="cpu")


def right(translator: dragoman.Translator, reversals: Path) -> float:
    """The share of unseen numbers that are reversed without a mistake."""
    sources = (reversals / "test.fwd").read_text().split()
    answers = translator.translate(sources)
    return sum(answer.text == source[::-1] for answer, source in zip(answers, sources, strict=True)) / len(sources)


@pytest.mark.parametrize("name", NAMES)
def test_a_system_trains_from_its_recipe_and_translates(name: str, reversals: Path, tmp_path: Path) -> None:
    translator = train(name, 20, reversals, tmp_path / "run")
    answers = translator.translate(["12345", "", "90"], n_best=2)
    assert [bool(answer.alternatives) for answer in answers] == [True, False, True]
    steps = list(show_steps(translator, "12345"))
    assert steps
    assert all(("looking at" in str(step)) == (name not in BOUNDS) for step in steps)
    maps = translator.attention("12345", "54321")
    shape = (0,) if name in BOUNDS else (len(maps.target_pieces), len(maps.source_pieces))
    assert maps.cross.shape[-2:] == shape


@pytest.mark.parametrize("name", QUICK)
def test_a_system_learns_to_reverse_digits(name: str, reversals: Path, tmp_path: Path) -> None:
    assert right(train(name, 350, reversals, tmp_path / "run"), reversals) >= 0.98


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NAMES if name not in QUICK])
def test_every_other_system_learns_to_reverse_digits_too(name: str, reversals: Path, tmp_path: Path) -> None:
    steps = 2000 if name in FIXED_VECTOR else 1000
    assert right(train(name, steps, reversals, tmp_path / "run"), reversals) >= BOUNDS.get(name, 0.98)


@pytest.mark.parametrize("name", NAMES)
def test_systems_are_of_one_size_and_drop_out_alike(name: str) -> None:
    recipe, transformer = (read_recipe(f"systems/{each}") for each in (name, "transformer"))
    with torch.device("meta"):
        sizes = [sum(p.numel() for p in each.model.build(10_260).parameters()) for each in (recipe, transformer)]
    assert sizes[0] == pytest.approx(sizes[1], rel=0.05)
    assert recipe.model.dropout == transformer.model.dropout
    assert recipe.training == transformer.training
