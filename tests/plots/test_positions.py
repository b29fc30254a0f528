"""Pictures of positions hold the paper's numbers, in both orders."""

from math import pi

import numpy as np
import pytest
import torch
from matplotlib.collections import QuadMesh

from dragoman.models.positions import sinusoids
from dragoman.plots.charts import as_svg
from dragoman.plots.positions import ARRANGEMENTS, draw_positions, draw_table, in_halves, periods


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
    images = [as_svg(draw_table(torch.ones(*shape), "title")).count("<image") for shape in ((3, 7), (20, 512))]
    assert images == [1, 2]  # one is the colour bar's
