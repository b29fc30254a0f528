"""Every row of Table 3 is a recipe that states what the paper states, and counts the parameters the paper counts."""

from pathlib import Path
from typing import NamedTuple

import pytest
import torch

from dragoman.models.transformer import Transformer
from dragoman.recipe import preset_folders, read_recipe

FOLDER = preset_folders()[-1] / "table3"
# The printed counts fit a shared vocabulary near this size.
VOCABULARY = 40_000


class Row(NamedTuple):
    """A row of Table 3, written out."""

    layers: int = 6  # N
    width: int = 512  # d_model
    hidden: int = 2048  # d_ff
    heads: int = 8  # h
    key_width: int = 64  # d_k
    value_width: int = 64  # d_v
    dropout: float = 0.1  # P_drop
    smoothing: float = 0.1  # epsilon_ls
    steps: int = 100_000
    positions: str = "sinusoidal"
    millions: int = 65  # where the paper prints no number, nothing that counts has changed


TABLE = {
    "base": Row(),
    "a-1-head": Row(heads=1, key_width=512, value_width=512),
    "a-4-heads": Row(heads=4, key_width=128, value_width=128),
    "a-16-heads": Row(heads=16, key_width=32, value_width=32),
    "a-32-heads": Row(heads=32, key_width=16, value_width=16),
    "b-key-width-16": Row(key_width=16, millions=58),
    "b-key-width-32": Row(key_width=32, millions=60),
    "c-2-layers": Row(layers=2, millions=36),
    "c-4-layers": Row(layers=4, millions=50),
    "c-8-layers": Row(layers=8, millions=80),
    "c-width-256": Row(width=256, key_width=32, value_width=32, millions=28),
    "c-width-1024": Row(width=1024, key_width=128, value_width=128, millions=168),
    "c-hidden-1024": Row(hidden=1024, millions=53),
    "c-hidden-4096": Row(hidden=4096, millions=90),
    "d-dropout-0.0": Row(dropout=0.0),
    "d-dropout-0.2": Row(dropout=0.2),
    "d-smoothing-0.0": Row(smoothing=0.0),
    "d-smoothing-0.2": Row(smoothing=0.2),
    "e-learned-positions": Row(positions="learned"),
    "big": Row(width=1024, hidden=4096, heads=16, dropout=0.3, steps=300_000, millions=213),
}

each_row = pytest.mark.parametrize("name", TABLE)


def recipe_file(name: str) -> Path:
    return FOLDER / f"{name}.toml"


def count(name: str, vocabulary: int = VOCABULARY) -> int:
    with torch.device("meta"):
        model = Transformer(read_recipe(recipe_file(name)).model, vocabulary)
    return sum(parameter.numel() for parameter in model.parameters())


def test_every_row_has_a_recipe_and_every_recipe_a_row() -> None:
    assert {file.name for file in FOLDER.iterdir()} == {f"{name}.toml" for name in TABLE}


@each_row
def test_a_recipe_states_what_the_paper_states(name: str) -> None:
    recipe, row = read_recipe(recipe_file(name)), TABLE[name]
    model, training = recipe.model, recipe.training
    found = Row(
        model.layers,
        model.width,
        model.hidden,
        model.heads,
        *model.channels,
        model.dropout,
        training.smoothing,
        training.steps or 0,
        model.positions,
        row.millions,
    )
    assert found == row
    assert (training.epochs, training.minutes) == (None, None)


@each_row
def test_a_row_differs_from_the_paper_in_nothing_else(name: str) -> None:
    recipe = read_recipe(recipe_file(name))
    assert recipe.data.shared  # section 5.1: one vocabulary of source and target
    assert recipe.data.algorithm == "bpe"
    assert recipe.model.norm == "post"  # section 3.1: LayerNorm(x + Sublayer(x))
    training = recipe.training
    assert (training.beta1, training.beta2, training.epsilon) == (0.9, 0.98, 1e-9)  # section 5.3
    assert (training.schedule, training.warmup, training.peak, training.clip) == ("paper", 4000, None, None)
    assert training.batch_tokens == 25_000  # section 5.1
    assert (recipe.decoding.beam, recipe.decoding.alpha, recipe.decoding.extra) == (4, 0.6, 50)  # section 6.1
    assert training.keep_last == (20 if name == "big" else 5)  # section 6.1: so many are averaged


@each_row
def test_a_row_counts_the_parameters_the_paper_counts(name: str) -> None:
    assert count(name) == pytest.approx(TABLE[name].millions * 1e6, rel=0.03)


def test_the_base_model_has_as_many_parameters_as_by_hand() -> None:
    attention = 4 * 512 * 512
    feed_forward = 512 * 2048 + 2048 + 2048 * 512 + 512
    norm = 2 * 512
    encoder = 6 * (attention + feed_forward + 2 * norm)
    decoder = 6 * (2 * attention + feed_forward + 3 * norm)
    assert count("base") == VOCABULARY * 512 + encoder + decoder


def test_learned_positions_are_the_only_parameters_row_e_adds() -> None:
    longest = read_recipe(recipe_file("e-learned-positions")).model.longest
    assert count("e-learned-positions") - count("base") == longest * 512


@pytest.mark.parametrize("name", [name for name in TABLE if name[0] in "ad"])
def test_heads_dropout_and_smoothing_cost_no_parameters(name: str) -> None:
    assert count(name) == count("base")


@each_row
def test_one_embedding_serves_source_target_and_projection(name: str) -> None:
    width = TABLE[name].width
    assert count(name, VOCABULARY + 7) - count(name) == 7 * width


def test_the_presets_base_and_big_are_the_papers_own() -> None:
    for name in ("base", "big"):
        assert read_recipe(name) == read_recipe(recipe_file(name))
