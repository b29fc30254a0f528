"""Attention as pictures: what is drawn is the model's matrix, cell by cell and line by line."""

import numpy as np
import pytest
import torch

from dragoman.plots.attention import FAINTEST, Looks, colours_of, draw_lines, draw_maps, find_word

QUERIES = ["▁die", "▁Kat", "ze", "$a$", "</s>"]
KEYS = ["▁the", "▁cat", "</s>"]


def looks(heads: int) -> Looks:
    torch.manual_seed(7)
    weights = torch.randn(heads, len(QUERIES), len(KEYS)).mul(3).softmax(-1)
    return Looks(weights, QUERIES, KEYS, [f"head {number}" for number in range(1, heads + 1)])


@pytest.mark.parametrize("heads", [1, 3])
def test_a_map_has_a_matrix_a_head_and_each_is_the_weights(heads: int) -> None:
    from matplotlib.collections import QuadMesh

    given = looks(heads)
    figure = draw_maps(given, "title")
    meshes = [each for axes in figure.axes for each in axes.collections if isinstance(each, QuadMesh)]
    drawn = [np.asarray(mesh.get_array()) for mesh in meshes if np.asarray(mesh.get_array()).shape == (5, 3)]
    assert len(drawn) == heads
    assert np.array_equal(np.stack(drawn), given.weights.numpy())
    assert figure.axes[0].yaxis_inverted()  # the first query is on top
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == QUERIES
    assert [text.get_text() for text in figure.axes[0].get_xticklabels()] == KEYS


def test_a_small_map_has_its_numbers_in_its_cells_and_a_large_one_has_not() -> None:
    small, several = (draw_maps(looks(heads), "title").axes for heads in (1, 2))
    written = [text.get_text() for text in small[0].texts]
    assert written == [f"{weight:.2f}" for weight in looks(1).weights.flatten().tolist()]
    assert not [text for axes in several for text in axes.texts]


@pytest.mark.parametrize("chosen", [None, {1, 2}], ids=["all", "one word"])
def test_a_line_goes_from_each_piece_to_what_it_looks_at_as_thick_as_the_weight(chosen: set[int] | None) -> None:
    given = looks(2)
    lines = [line for line in draw_lines(given, "title", chosen).axes[0].get_lines() if len(line.get_xdata())]
    expected = [
        (number, query, key, weight)
        for number, head in enumerate(given.weights.tolist())
        for query, row in enumerate(head)
        for key, weight in enumerate(row)
        if weight >= FAINTEST and (chosen is None or query in chosen)
    ]
    assert len(lines) == len(expected)
    thicknesses = [line.get_linewidth() / weight for line, (*_, weight) in zip(lines, expected, strict=True)]
    assert thicknesses == pytest.approx([thicknesses[0]] * len(lines))
    for line, (head, query, key, _) in zip(lines, expected, strict=True):
        left, right = line.get_ydata()
        assert (round(left), round(right)) == (key, query)
        assert line.get_color() == colours_of(2)[head]


def test_every_head_has_a_colour_of_its_own() -> None:
    for heads in (1, 7, 8, 32):
        assert len(set(colours_of(heads))) == heads


@pytest.mark.parametrize(
    ("word", "places"),
    [
        ("die", {0}),
        ("Katze", {1, 2}),
        ("ze", {2}),
        ("4", {3}),
        ("$a$", {3}),
        ("6", set()),
        ("0", set()),
        ("Hund", set()),
    ],
)
def test_a_word_is_found_by_its_text_over_several_pieces_or_by_its_number(word: str, places: set[int]) -> None:
    assert find_word(word, QUERIES) == places


def test_a_word_that_comes_twice_is_found_twice() -> None:
    assert find_word("a", ["▁a", "▁b", "▁a", "a"]) == {0, 2, 3}
    assert find_word("1", ["▁2", "▁1"]) == {1}  # a text before a number
