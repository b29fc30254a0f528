"""Attention over a picture: a panel a word, brighter where it is looked; a map alone where there is no picture."""

from xml.etree import ElementTree

import numpy as np

from dragoman.plots.captions import SHADOW, Looked, draw_glimpses
from dragoman.plots.charts import as_svg

PICTURE = np.full((6, 9, 3), 200, dtype=np.uint8)
SHARE = np.array([[0.0, 0.5, 0.25], [0.0, 0.25, 0.0]], dtype=np.float32)


def test_what_is_looked_at_is_bright_and_the_rest_in_shadow() -> None:
    figure = draw_glimpses([Looked(PICTURE, ["a", "red"], [SHARE, SHARE]), Looked(PICTURE, ["a"], [SHARE])])
    [axes] = figure.axes
    assert [text.get_text() for text in axes.texts] == ["", "a", "red", "", "a"]
    assert len(axes.images) == 5
    assert np.array_equal(axes.images[0].get_array(), PICTURE)
    shown = np.asarray(axes.images[1].get_array())
    assert shown.shape == PICTURE.shape
    light = SHADOW + (1 - SHADOW) * SHARE / 0.5
    assert np.array_equal(shown[::3, ::3, 0], (200 * light).astype(np.uint8))


def test_no_panel_lies_over_another() -> None:
    [axes] = draw_glimpses([Looked(PICTURE, ["a", "red"], [SHARE, SHARE])] * 3).axes
    boxes = [image.get_extent() for image in axes.images]
    for number, (left, right, bottom, top) in enumerate(boxes):
        assert axes.get_xlim()[0] <= left < right <= axes.get_xlim()[1]
        assert axes.get_ylim()[0] >= bottom > top >= axes.get_ylim()[1]
        for other in boxes[:number]:
            assert right <= other[0] or left >= other[1] or top >= other[2] or bottom <= other[3]


def test_without_a_picture_the_shares_are_drawn_alone() -> None:
    [axes] = draw_glimpses([Looked(None, ["a"], [SHARE])]).axes
    [image] = axes.images
    assert np.array_equal(image.get_array(), SHARE)


def test_a_word_is_shown_as_it_is_whatever_it_holds() -> None:
    words = ["$_$", "bell\x01", "10 %"]
    figure = draw_glimpses([Looked(PICTURE, words, [SHARE] * 3)])
    ElementTree.fromstring(as_svg(figure))
    assert [text.get_text() for text in figure.axes[0].texts] == ["", "$_$", "bell\\x01", "10 %"]


def test_a_picture_of_which_nothing_was_said_is_shown() -> None:
    [axes] = draw_glimpses([Looked(PICTURE, [], [])]).axes
    assert len(axes.images) == 1
