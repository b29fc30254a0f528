"""What every picture is drawn with: one look, lines and heat maps, SVG or PNG.

Dark on white, so that a picture can be printed; colours that the colour-blind can tell apart.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dragoman.durable import replace_file
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Number = int | float

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLE: dict[Any, Any] = {  # of the names that matplotlib knows
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 100,
    "svg.hashsalt": "dragoman",  # the same picture is the same file
}


@dataclass(frozen=True)
class Line:
    """One curve, with the range of each of its points where there is one."""

    name: str
    x: Sequence[Number]
    y: Sequence[Number]
    low: Sequence[Number] | None = None
    high: Sequence[Number] | None = None
    is_dashed: bool = False


@contextmanager
def drawing(width: float = 7.0, height: float = 4.0) -> Iterator["Figure"]:
    """An empty figure of so many inches; what is drawn inside has the common look."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError("plots", "need matplotlib", hint="pip install 'dragoman[plot]'") from None
    with matplotlib.rc_context(STYLE):
        yield Figure(figsize=(width, height), layout="constrained")


def draw_lines(axes: "Axes", lines: Sequence[Line], x_label: str, y_label: str, *, log: str = "") -> None:
    """Curves with their names; `log` names the axes that grow by factors: "x", "y" or "xy"."""
    for number, line in enumerate(lines):
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "label": line.name}
        marker = "o" if len(line.x) <= 24 else None
        axes.plot(line.x, line.y, linestyle="--" if line.is_dashed else "-", marker=marker, markersize=4, **look)
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.15, linewidth=0)
    if "x" in log:
        axes.set_xscale("log", base=2)
    if "y" in log:
        axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if len(lines) > 1:
        axes.legend()


def line_chart(lines: Sequence[Line], x_label: str, y_label: str, title: str = "", *, log: str = "") -> "Figure":
    """Curves in one frame."""
    with drawing() as figure:
        axes = figure.subplots()
        draw_lines(axes, lines, x_label, y_label, log=log)
        axes.set_title(title)
        return figure


def as_svg(figure: "Figure") -> str:
    """The picture as text."""
    import matplotlib

    with matplotlib.rc_context(STYLE), StringIO() as text:
        figure.savefig(text, format="svg", metadata={"Date": None})
        return text.getvalue()


def save(figure: "Figure", path: Path) -> None:
    """Write a picture; the suffix says how: .svg or .png."""
    match path.suffix:
        case ".svg":
            replace_file(path, as_svg(figure))
        case ".png":
            figure.savefig(path, dpi=200)
        case _:
            raise ConfigError(path, "the suffix says the format", hint="name it .svg or .png")
