"""Attention maps and curves as text."""

import pytest
import torch

from dragoman.plots.charts import Line
from dragoman.plots.terminal import CURVE_HEIGHT, CURVE_WIDTH, MARKS, SHADES, attention_map, line_chart

SOURCE = ["▁the", "▁c", "at", "</s>"]
TARGET = ["▁die", "▁Katze", "</s>"]


def columns(line: str, margin: int) -> list[str]:
    """The cells of a line, two characters each."""
    return [line[start : start + 2] for start in range(margin, margin + 2 * len(SOURCE), 2)]


def test_a_map_has_a_row_a_target_piece_under_the_source_pieces_read_downwards() -> None:
    lines = attention_map(torch.zeros(3, 4), TARGET, SOURCE).split("\n")
    height, margin = 4, len("▁Katze") + 2
    assert len(lines) == height + len(TARGET)
    for number, piece in enumerate(SOURCE):
        place = margin + 2 * number
        standing = "".join(line.ljust(place + 1)[place] for line in lines[:height])
        assert standing == piece.rjust(height)
    for line, piece in zip(lines[height:], TARGET, strict=True):
        assert line.startswith(f"{piece:>{margin - 2}}  ")


def test_each_weight_stands_below_its_source_piece_beside_its_target_piece() -> None:
    margin = len("▁Katze") + 2
    for row in range(3):
        for column in range(4):
            weights = torch.zeros(3, 4)
            weights[row, column] = 1.0
            cells = [columns(line, margin) for line in attention_map(weights, TARGET, SOURCE).split("\n")[4:]]
            found = [(r, c) for r, each in enumerate(cells) for c, cell in enumerate(each) if cell.strip()]
            assert found == [(row, column)]
            assert cells[row][column] == SHADES[-1] * 2


def test_more_weight_is_never_lighter_and_every_shade_has_its_fifth() -> None:
    shares = [step / 100 for step in range(101)]
    shades = [attention_map(torch.tensor([[share]]), ["t"], ["s"])[-1] for share in shares]
    darkness = [SHADES.index(shade) for shade in shades]
    assert darkness == sorted(darkness)
    # Each of the five shades stands for a fifth of the hundred steps.
    assert all(19 <= darkness.count(shade) <= 21 for shade in range(len(SHADES)))
    assert (darkness[0], darkness[-1]) == (0, len(SHADES) - 1)


def test_as_many_pieces_as_rows_are_needed() -> None:
    for pieces in (TARGET[:2], [*TARGET, "more"]):
        with pytest.raises(ValueError, match="argument 2"):
            attention_map(torch.zeros(3, 4), pieces, SOURCE)


def test_a_wide_character_takes_the_two_cells_of_its_column() -> None:
    lines = attention_map(torch.eye(2), ["東京", "t"], ["日本", "s"]).split("\n")
    assert lines[:2] == ["      日", "      本s"]
    assert lines[2:] == ["東京  " + SHADES[-1] * 2 + "  ", "   t  " + "  " + SHADES[-1] * 2]


def test_curves_go_from_corner_to_corner_in_their_own_marks() -> None:
    lines = [Line("falls", [0, 5, 10], [1.0, 0.5, 0.0]), Line("rises", [0.0, 10.0], [0.0, 1.0])]
    label, *rows, axis, numbers, first, second = line_chart(lines, "step", "loss").split("\n")
    assert (label, first, second) == ("loss", f"  {MARKS[0]} falls", f"  {MARKS[1]} rises")
    frame = [row.split("│") for row in rows]
    assert len(frame) == CURVE_HEIGHT
    assert (frame[0][0].strip(), frame[-1][0].strip()) == ("1", "0")
    assert frame[0][1] == MARKS[0] + " " * (CURVE_WIDTH - 2) + MARKS[1]
    assert frame[-1][1] == MARKS[1] + " " * (CURVE_WIDTH - 2) + MARKS[0]
    assert axis.strip() == "└" + "─" * CURVE_WIDTH
    assert numbers.split() == ["0", "10", "step"]


def test_one_point_is_a_curve_too() -> None:
    assert line_chart([Line("run", [720], [0.1])], "step", "loss").count(MARKS[0]) == 2  # in the frame and its name
