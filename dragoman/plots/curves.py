"""Curves of training: the learning rate (section 5.3), what runs wrote into their journals, and smoothed labels."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

from dragoman.plots.charts import COLOURS, Line, draw_lines, drawing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Event = Mapping[str, Any]
Against = Literal["steps", "minutes"]


class Value(StrEnum):
    """What a journal has."""

    LOSS = "loss"
    VALIDATION_LOSS = "validation-loss"
    BLEU = "bleu"
    LEARNING_RATE = "learning-rate"
    TOKENS_PER_SECOND = "tokens-per-second"
    GRADIENT_NORM = "gradient-norm"


# The event and the key of each, and what stands beside the axis.
VALUES = {
    Value.LOSS: ("step", "loss", "training loss, smoothed labels\n(nats a piece)"),
    Value.VALIDATION_LOSS: ("validation", "loss", "validation loss\n(nats a piece)"),
    Value.BLEU: ("validation", "bleu", "validation BLEU\n(greedy search)"),
    Value.LEARNING_RATE: ("step", "learning_rate", "learning rate"),
    Value.TOKENS_PER_SECOND: ("step", "tokens_per_second", "target tokens a second"),
    Value.GRADIENT_NORM: ("step", "gradient_norm", "norm of the gradient"),
}


def line_of(name: str, events: Sequence[Event], value: Value, against: Against) -> Line:
    """One value of a run's journal as a curve; empty where the journal has none."""
    kind, key, _ = VALUES[value]
    x, y, minutes = [], [], 0.0
    for event in events:
        minutes = event.get("seconds", 60 * minutes) / 60  # a validation is as late as the step before it
        if event["event"] == kind and event.get(key) is not None:
            x.append(event["step"] if against == "steps" else minutes)
            y.append(event[key])
    return Line(name, x, y)


def draw_panels(panels: Sequence[tuple[str, Sequence[Line]]], x_label: str) -> "Figure":
    """A frame for each value, over one another."""
    with drawing(8.0, 0.4 + 3.4 * len(panels)) as figure:
        grid = figure.subplots(len(panels), 1, squeeze=False, sharex=True)
        for axes, (y_label, lines) in zip(grid.flat, panels, strict=True):
            draw_lines(axes, lines, x_label if axes is grid[-1, 0] else "", y_label)
        if len(panels[0][1]) == 1:
            grid[0, 0].set_title(panels[0][1][0].name, parse_math=False)
        return figure


def smoothed(label: int, vocabulary: int, smoothing: float) -> list[float]:
    """What a model is taught to say: all but epsilon for the label, and epsilon spread over the whole vocabulary."""
    return [(1 - smoothing) * (piece == label) + smoothing / vocabulary for piece in range(vocabulary)]


def draw_smoothing(label: int, vocabulary: int, smoothings: Sequence[float]) -> "Figure":
    """The target distribution of one label, as bars for each epsilon."""
    with drawing(8.0, 3.8) as figure:
        axes = figure.subplots()
        width = 0.8 / len(smoothings)
        for number, smoothing in enumerate(smoothings):
            shares = smoothed(label, vocabulary, smoothing)
            places = [piece + (number - (len(smoothings) - 1) / 2) * width for piece in range(vocabulary)]
            colour = COLOURS[number % len(COLOURS)]
            bars = axes.bar(places, shares, width, color=colour, label=f"ε = {smoothing:g}")
            axes.bar_label(bars, [f"{share:.4g}" for share in shares], fontsize=7, padding=2, rotation=90)
        axes.set_xticks(range(vocabulary), ["label" if piece == label else str(piece) for piece in range(vocabulary)])
        axes.set_xlabel(f"piece of a vocabulary of {vocabulary}")
        axes.set_ylabel("target probability")
        axes.set_ylim(0, 1.15)
        axes.grid(visible=False, axis="x")
        axes.legend()
        return figure
