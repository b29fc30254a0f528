"""Pictures of positions hold the paper's numbers, in both orders."""

from math import pi

import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh

from dragoman.models.positions import sinusoids
from dragoman.plots.charts import as_svg
from dragoman.plots.positions import ARRANGEMENTS, draw_positions, draw_tables, find_tables, in_halves, periods
from dragoman.recipe import read_recipe
from dragoman.saved import build_model


def test_halves_are_the_sines_then_the_cosines_of_the_same_angles() -> None:
    encoding = sinusoids(11, 13)
    halves = in_halves(encoding)
    assert torch.equal(halves[:, :7], encoding[:, 0::2])
    assert torch.equal(halves[:, 7:], encoding[:, 1::2])


def test_a_channel_repeats_itself_after_its_period() -> None:
    width = 14
    assert float(periods(width)[0]) == pytest.approx(2 * pi)
    angles = 2 * pi / periods(width)[::2].double()
    assert torch.allclose((17 * angles).sin().float(), sinusoids(18, width)[17, 0::2], atol=1e-5)


def test_what_is_drawn_is_the_encoding() -> None:
    figure = draw_positions(5, 7, ARRANGEMENTS)
    encoding = sinusoids(5, 7)
    for axes, expected in zip(figure.axes, (encoding, in_halves(encoding)), strict=False):
        (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
        assert np.array_equal(np.asarray(mesh.get_array()), expected.numpy())
    assert [axes.get_ylabel() for axes in figure.axes[:3]] == ["position", "position", "added"]


def test_a_large_encoding_is_an_image_in_the_picture() -> None:
    tables = {"small": torch.ones(3, 7), "large": torch.ones(20, 127)}
    assert as_svg(draw_tables(tables)).count("<image") == 2 + 1  # each has a colour bar, which is one


def test_each_side_with_positions_of_its_own_has_a_panel() -> None:
    recipe = read_recipe(
        "systems/convs2s", ["model.width=7", "model.layers=1", "model.longest=11", "training.row_length=8"]
    )
    tables = find_tables(build_model(recipe, 13, 13))
    assert list(tables) == ["source positions", "target positions"]
    figure = draw_tables({name: table.detach() for name, table in tables.items()})
    for axes, (name, table) in zip(figure.axes, tables.items(), strict=False):
        assert axes.get_title() == name
        (mesh,) = (each for each in axes.collections if isinstance(each, QuadMesh))
        assert np.array_equal(np.asarray(mesh.get_array()), table.detach().numpy())
    for name in ("base", "systems/rnn"):
        with torch.device("meta"):
            model = build_model(read_recipe(name), 13, 13)
        assert list(find_tables(model)) == (["positions"] if name == "base" else [])


def test_a_model_may_be_called_anything() -> None:
    as_svg(draw_tables({"r$_$x\x07": torch.eye(3)}))
