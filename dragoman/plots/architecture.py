"""A blueprint as a picture (Figure 1): boxes in columns, residuals round them, what goes from column to column."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from dragoman.plots.blueprint import Block, Blueprint, Column, Kind, Stack
from dragoman.plots.charts import TIMES, drawing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# In inches, as is all that follows; text is set in points, so that it fits a box of any picture.
BOX, TALL, GAP = 3.5, 0.44, 0.22
PADDING = 0.18  # between a repeated layer's frame and its boxes
SIDE = 1.1  # room beside a column, for residuals, repetitions and what goes across
BETWEEN = 1.3  # room between two columns
FOOT = 0.7  # below the first box
FILLS: dict[Kind, str] = {
    "embedding": "#fbe0e0",
    "attention": "#fde3c0",
    "norm": "#f4f6c6",
    "forward": "#c7e7f3",
    "recurrent": "#d3ecd0",
    "convolution": "#bfe3dc",
    "projection": "#dddef2",
    "other": "#f0f0f0",
}
INK = "#333333"


@dataclass
class Placed:
    """A column with the height of everything in it."""

    column: Column
    boxes: list[tuple[Block, float]] = field(default_factory=list)  # the middle of each
    frames: list[tuple[float, float, Stack]] = field(default_factory=list)  # bottom, top, what is repeated
    residuals: list[tuple[float, float]] = field(default_factory=list)  # where they leave, where they arrive
    top: float = FOOT

    def put(self, block: Block) -> float:
        """Place a box on top; returns its middle."""
        middle = self.top + TALL / 2
        self.boxes.append((block, middle))
        self.top += TALL + GAP
        return middle

    def put_stack(self, stack: Stack) -> None:
        """Place a repeated layer on top, in its frame."""
        bottom = self.top
        self.top += PADDING + GAP / 2
        for sublayer in stack.sublayers:
            leaves = self.top - GAP / 2
            middles = [self.put(block) for block in sublayer.blocks]
            if sublayer.is_residual:
                self.residuals.append((leaves, middles[-1]))
        self.top += PADDING - GAP / 2
        self.frames.append((bottom, self.top - GAP / 2, stack))
        self.top += GAP / 2


def draw_architecture(blueprint: Blueprint) -> "Figure":
    """The whole diagram."""
    placed = [_place(column) for column in blueprint.columns]
    width = 2 * SIDE + BOX * len(placed) + BETWEEN * (len(placed) - 1)
    height = max(each.top for each in placed) + 0.8
    with drawing(width, height) as figure:
        figure.set_layout_engine("none")
        axes = figure.add_axes((0, 0, 1, 1), xlim=(0, width), ylim=(0, height))
        axes.set_axis_off()
        axes.text(width / 2, height - 0.25, blueprint.title, ha="center", va="center", fontsize=12)
        middles = [SIDE + BOX / 2 + number * (BOX + BETWEEN) for number in range(len(placed))]
        for number, (each, x) in enumerate(zip(placed, middles, strict=True)):
            _draw_column(axes, each, x, outside=-1 if number == 0 else 1)
        heights = {block: middle for each in placed for block, middle in each.boxes}
        links = sorted(blueprint.links, key=lambda link: heights[link.block])  # so that none crosses another
        for number, link in enumerate(links):
            _draw_link(axes, placed[0], middles, heights[link.block], link.text, number)
        return figure


def _place(column: Column) -> Placed:
    placed = Placed(column)
    for part in column.parts:
        if isinstance(part, Stack):
            placed.put_stack(part)
        else:
            placed.put(part)
    return placed


def _draw_column(axes: "Axes", placed: Placed, x: float, outside: int) -> None:
    column = placed.column
    for bottom, top, stack in placed.frames:
        _draw_box(axes, x, (bottom + top) / 2, BOX + 4 * PADDING, top - bottom, "none", 0.14)
        beside, side = x + outside * (BOX / 2 + 2.7 * PADDING), "right" if outside < 0 else "left"
        axes.text(beside, (bottom + top) / 2, f"{stack.times} {TIMES}", fontsize=11, ha=side, va="center")
        axes.text(beside, (bottom + top) / 2 - 0.12, stack.per, fontsize=8, style="italic", ha=side, va="top")
    if column.flows:
        ends = [FOOT - 0.17, *(middle for _, middle in placed.boxes)]
        for below, above in pairwise(ends):
            start = below + (TALL / 2 if below != ends[0] else 0)
            _draw_arrow(axes, [(x, start), (x, above - TALL / 2)])
        if column.writes:
            _draw_arrow(axes, [(x, ends[-1] + TALL / 2), (x, ends[-1] + TALL / 2 + 0.25)])
    for leaves, arrives in placed.residuals:
        beside = x + outside * (BOX / 2 + PADDING)
        _draw_arrow(axes, [(x, leaves), (beside, leaves), (beside, arrives), (x + outside * BOX / 2, arrives)])
    for block, middle in placed.boxes:
        _draw_block(axes, block, x, middle)
    axes.text(x, FOOT - 0.28, column.reads, ha="center", va="center", fontsize=9, style="italic")
    axes.text(x, FOOT - 0.52, column.name, ha="center", va="center", fontsize=10, fontweight="bold")
    axes.text(x, placed.top + 0.12, column.writes, ha="center", va="center", fontsize=9, style="italic")


def _draw_block(axes: "Axes", block: Block, x: float, y: float) -> None:
    _draw_box(axes, x, y, BOX, TALL, FILLS[block.kind], 0.06)
    lift = 0.085 if block.detail else 0.0
    words: dict[str, Any] = {"ha": "center", "va": "center", "color": "black"}
    axes.text(x, y + lift, block.name, fontsize=9, **words)
    if block.detail:
        axes.text(x, y - lift, block.detail, fontsize=7, **words)


def _draw_box(axes: "Axes", x: float, y: float, width: float, height: float, fill: str, round: float) -> None:
    from matplotlib.patches import FancyBboxPatch

    style = f"round,pad=0,rounding_size={round}"
    corner = (x - width / 2, y - height / 2)
    box = FancyBboxPatch(corner, width, height, boxstyle=style, facecolor=fill, edgecolor=INK, linewidth=0.8, zorder=2)
    axes.add_patch(box)


def _draw_arrow(axes: "Axes", corners: Sequence[tuple[float, float]]) -> None:
    """A line round corners, with a head at its end."""
    *way, last = corners
    x, y = zip(*way, strict=True)
    axes.plot(x, y, color=INK, linewidth=0.8, zorder=3, solid_capstyle="butt")
    head = {
        "arrowstyle": "-|>,head_width=0.12,head_length=0.25",
        "color": INK,
        "linewidth": 0.8,
        "shrinkA": 0,
        "shrinkB": 0,
    }
    axes.annotate("", last, way[-1], arrowprops=head, zorder=3)


def _draw_link(axes: "Axes", first: Placed, middles: Sequence[float], height: float, text: str, number: int) -> None:
    """From the top of the first column to the side of a box in the second."""
    start = (middles[0], first.boxes[-1][1] + TALL / 2)
    top = first.top + 0.1 + 0.25 * number
    turn = middles[0] + BOX / 2 + 2 * PADDING + (0.4 + 0.25 * number) * (BETWEEN - 4 * PADDING)
    _draw_arrow(axes, [start, (start[0], top), (turn, top), (turn, height), (middles[1] - BOX / 2, height)])
    axes.text((start[0] + turn) / 2, top + 0.03, text, ha="center", va="bottom", fontsize=8, style="italic")
