"""Attention maps as pictures: a matrix for each head, or lines from word to word (Figures 3 to 5).

Axes: H heads, Q queries, K keys.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

from jaxtyping import Float
from torch import Tensor

from dragoman.plots.charts import COLOURS, draw_matrix, drawing, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_WITH_NUMBERS = 12  # pieces on a side, up to which each weight is written into its cell
WIDEST = 30.0  # inches, of any picture
LINE = 0.26  # inches from piece to piece
FAINTEST = 0.02  # a line of less weight is not drawn


@dataclass(frozen=True)
class Looks:
    """What some heads look at: the weights of each, the pieces that look, and those that are looked at."""

    weights: Float[Tensor, "H Q K"]
    queries: Sequence[str]
    keys: Sequence[str]
    heads: Sequence[str]  # what each is called


def draw_maps(looks: Looks, title: str) -> "Figure":
    """A matrix a head: a row a piece that looks, a column a piece that is looked at."""
    longest = max(len(looks.queries), len(looks.keys))
    columns = ceil(sqrt(len(looks.heads)))
    rows = ceil(len(looks.heads) / columns)
    has_numbers = len(looks.heads) == 1 and longest <= MOST_WITH_NUMBERS
    cell = 0.42 if has_numbers else min(0.26, WIDEST / longest / columns)
    font = min(9.0, 50 * cell)
    label = font / 100 * max(map(len, (*looks.queries, *looks.keys)))
    width, height = (cell * len(side) + 0.25 for side in (looks.keys, looks.queries))
    with drawing(max(columns * width + label + 1.2, 4.5), rows * (height + 0.2) + label + 0.7) as figure:
        grid = figure.subplots(rows, columns, squeeze=False)
        for number, axes in enumerate(grid.flat):
            if number >= len(looks.heads):
                axes.set_axis_off()
                continue
            queries = looks.queries if number % columns == 0 else []
            keys = looks.keys if number < columns else []
            weights = looks.weights[number].tolist()
            mesh = draw_matrix(axes, weights, queries, keys, digits=2 if has_numbers else None, font=font)
            axes.set_aspect("equal")
            if len(looks.heads) > 1:
                axes.set_xlabel(looks.heads[number])
        figure.colorbar(mesh, ax=grid, label="weight", shrink=0.8, aspect=25)
        figure.suptitle(f"{title}\nrows look at columns")
        return figure


def draw_lines(looks: Looks, title: str, chosen: Collection[int] | None = None) -> "Figure":
    """Lines from each piece that looks, on the right, to what it looks at: as thick as the weight, a colour a head."""
    longest = max(len(looks.queries), len(looks.keys))
    colours = colours_of(len(looks.heads))
    share = 0.7 / len(colours)  # of the height of a line of text, for each head
    thickest = min(4.0, 72 * LINE * share)
    with drawing(6.0, min(WIDEST, LINE * longest + 1.4 + 0.2 * ceil(len(colours) / 4))) as figure:
        axes = figure.subplots()
        _write_pieces(axes, looks.keys, 0, "is looked at", ())
        _write_pieces(axes, looks.queries, 1, "looks", chosen or ())
        for head, (name, colour) in enumerate(zip(looks.heads, colours, strict=True)):
            beside = (head - (len(colours) - 1) / 2) * share  # so that heads that agree are all seen
            for query, row in enumerate(looks.weights[head].tolist()):
                for key, weight in enumerate(row):
                    if weight >= FAINTEST and (chosen is None or query in chosen):
                        look = {"linewidth": thickest * weight, "alpha": 0.3 + 0.7 * weight}
                        axes.plot([0, 1], [key + beside, query + beside], color=colour, **look)
            axes.plot([], [], color=colour, linewidth=3, label=name)
        axes.set_axis_off()
        axes.set_xlim(-0.6, 1.6)
        axes.set_ylim(longest - 0.3, -1.6)
        if len(colours) > 1:
            figure.legend(loc="outside lower center", ncols=4, handlelength=1.2, columnspacing=1.2)
        axes.set_title(title)
        return figure


def _write_pieces(axes: "Axes", pieces: Sequence[str], x: int, heading: str, bold: Collection[int]) -> None:
    """The pieces of one side, from the top, beside the ends of the lines."""
    look: dict[str, Any] = {"ha": "left" if x else "right", "va": "center", "parse_math": False}
    beside = x + (x - 0.5) * 0.04
    axes.text(beside, -1.1, heading, style="italic", **look)
    for place, piece in enumerate(pieces):
        axes.text(beside, place, printable(piece), fontweight="bold" if place in bold else "normal", **look)


def colours_of(heads: int) -> list[str]:
    """A colour for each head."""
    if heads <= len(COLOURS):
        return list(COLOURS[:heads])
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["turbo"](0.05 + 0.9 * head / (heads - 1))) for head in range(heads)]


def find_word(word: str, pieces: Sequence[str]) -> set[int]:
    """The places of a word, which may be several pieces: told by its text, or as the n-th piece."""
    found: set[int] = set()
    for start in range(len(pieces)):
        for end in range(start + 1, len(pieces) + 1):
            if "".join(pieces[start:end]) in (word, f"▁{word}"):
                found |= set(range(start, end))
    if not found and word.isdecimal() and 1 <= int(word) <= len(pieces):
        return {int(word) - 1}
    return found
