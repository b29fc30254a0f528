"""Positions (section 3.5) as pictures: the encodings themselves, and the periods they are made of.

Axes: S positions, D width.
"""

from collections.abc import Mapping, Sequence
from math import ceil, pi
from typing import TYPE_CHECKING, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from dragoman.models.interface import Model
from dragoman.models.positions import Positions, sinusoids
from dragoman.plots.charts import COLOURS, draw_matrix, drawing, printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Arrangement = Literal["interleaved", "halves", "periods"]
ARRANGEMENTS: tuple[Arrangement, ...] = ("interleaved", "halves", "periods")
FAR = 1000  # positions over which the longest periods show
TITLES = {
    "interleaved": "Interleaved, as in section 3.5: sine, cosine, sine, cosine, ...",
    "halves": "In halves: all sines, then all cosines (the same numbers in another order)",
}


def in_halves(encoding: Float[Tensor, "S D"]) -> Float[Tensor, "S D"]:
    """The sines of every period, then the cosines: not the paper's order, but often drawn."""
    return torch.cat((encoding[:, 0::2], encoding[:, 1::2]), dim=1)


def periods(width: int) -> Float[Tensor, " D"]:
    """After how many positions each channel comes back to where it was: 2 pi up to 10,000 times that."""
    even = torch.arange(width) // 2 * 2
    return 2 * pi * 10000.0 ** (even / width)


def draw_positions(positions: int, width: int, chosen: Sequence[Arrangement]) -> "Figure":
    """A panel for each way to look at the sinusoids."""
    with drawing(9.0, 3.2 * len(chosen)) as figure:
        encoding = sinusoids(positions, width)
        for axes, kind in zip(figure.subplots(len(chosen), 1, squeeze=False).flat, chosen, strict=True):
            match kind:
                case "interleaved":
                    _draw_encoding(figure, axes, encoding, TITLES[kind])
                case "halves":
                    _draw_encoding(figure, axes, in_halves(encoding), TITLES[kind])
                case "periods":
                    _draw_periods(axes, positions, width)
        return figure


def find_tables(model: Model) -> dict[str, Float[Tensor, "S D"]]:
    """Every table of positions that a model adds, under its name: one, or one a side."""
    parts = {name: part for name, part in model.named_children() if isinstance(part, Positions)}
    return {name.replace("_", " "): part.table for name, part in parts.items() if part.table is not None}


def draw_tables(tables: Mapping[str, Float[Tensor, "S D"]]) -> "Figure":
    """What a model adds at each position, learned or not: a panel for each title."""
    with drawing(9.0, 3.4 * len(tables)) as figure:
        for axes, (title, table) in zip(
            figure.subplots(len(tables), 1, squeeze=False).flat, tables.items(), strict=True
        ):
            _draw_encoding(figure, axes, table, title)
        return figure


def _draw_encoding(figure: "Figure", axes: "Axes", encoding: Float[Tensor, "S D"], title: str) -> None:
    limit = float(encoding.abs().max())
    mesh = draw_matrix(axes, encoding.tolist(), [], [], colours="RdBu_r", low=-limit, high=limit)
    axes.xaxis.tick_bottom()
    axes.tick_params(length=3)
    axes.set_xticks(*_every_few(encoding.shape[1], 16))
    axes.set_yticks(*_every_few(encoding.shape[0], 5))
    axes.set_xlabel("channel")
    axes.set_ylabel("position")
    axes.set_title(printable(title), parse_math=False)
    figure.colorbar(mesh, ax=axes, label="added", pad=0.01)


def _draw_periods(axes: "Axes", positions: int, width: int) -> None:
    """Channels from the fast to the slow over many positions: most have not turned once where a sentence ends."""
    far = sinusoids(FAR, width)
    every = periods(width)
    for number, share in enumerate((0.5, 0.62, 0.75, 0.9)):
        channel = int(share * width) // 2 * 2
        name = f"channel {channel}: every {float(every[channel]):,.0f}"
        axes.plot(range(FAR), far[:, channel].tolist(), color=COLOURS[number], label=name)
    axes.axvspan(0, positions, color="#cccccc", alpha=0.5, linewidth=0, label=f"the first {positions} positions")
    axes.set_title(
        f"Long periods: a channel repeats itself every {float(every[0]):.2f} to {float(every[-1]):,.0f} positions"
    )
    axes.set_xlabel("position")
    axes.set_ylabel("added")
    axes.margins(x=0)
    axes.legend(loc="upper center", bbox_to_anchor=(0.5, -0.2), ncols=3)


def _every_few(count: int, most: int) -> tuple[list[float], list[str]]:
    """Numbers from 0, each in the middle of its cell."""
    numbers = range(0, count, ceil(count / most))
    return [number + 0.5 for number in numbers], list(map(str, numbers))
