"""What every picture is drawn with: one look, lines and matrices, SVG or PNG.

Dark on white, so that a picture can be printed; colours that the colour-blind can tell apart.
"""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from dragoman.durable import replace_file
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

Number = int | float
Matrix = Sequence[Sequence[Number]]
Format = Literal["svg", "png"]

TIMES = "\N{MULTIPLICATION SIGN}"

log = logging.getLogger("dragoman")

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
STYLE: dict[Any, Any] = {  # of the names that matplotlib knows
    "font.size": 10,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Verdana", "Arial", "sans-serif"],
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "figure.dpi": 100,
    "svg.hashsalt": "dragoman",  # the same picture is the same file
    "svg.fonttype": "none",  # text stays text: a reader's browser has fonts for more scripts than matplotlib
}
MOST_CELLS = 2500  # of a matrix that is drawn cell by cell; a larger one becomes an image inside the picture
HALF_BRIGHT = 0.5  # what is written in a darker cell is white


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


def check_drawing() -> None:
    """Refuse now what could not be drawn later: nobody wants to hear it after hours of work."""
    with drawing():
        pass


def draw_lines(axes: "Axes", lines: Sequence[Line], x_label: str, y_label: str, *, log: str = "") -> None:
    """Curves with their names; `log` names the axes that grow by factors: "x", "y" or "xy"."""
    for number, line in enumerate(lines):
        look: dict[str, Any] = {"color": COLOURS[number % len(COLOURS)], "label": line.name}
        is_dashed = line.is_dashed or number >= len(COLOURS)
        marker = "o" if len(line.x) <= 24 else None
        axes.plot(line.x, line.y, linestyle="--" if is_dashed else "-", marker=marker, markersize=4, **look)
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, line.low, line.high, color=look["color"], alpha=0.15, linewidth=0)
    if "x" in log:
        axes.set_xscale("log", base=2)
    if "y" in log:
        axes.set_yscale("log")
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    if len(lines) > 1:
        for text in axes.legend().get_texts():
            text.set_parse_math(False)  # the name of a run may hold dollars


def line_chart(lines: Sequence[Line], x_label: str, y_label: str, title: str = "", *, log: str = "") -> "Figure":
    """Curves in one frame."""
    with drawing() as figure:
        axes = figure.subplots()
        draw_lines(axes, lines, x_label, y_label, log=log)
        axes.set_title(title)
        return figure


def draw_matrix(
    axes: "Axes",
    matrix: Matrix,
    rows: Sequence[str],
    columns: Sequence[str],
    *,
    colours: str = "Blues",
    low: Number = 0,
    high: Number = 1,
    digits: int | None = None,
    font: float = 8.0,
) -> "QuadMesh":
    """A matrix as it is written, the first row on top, darker where there is more; `digits` writes the numbers too."""
    is_large = len(matrix) * len(matrix[0]) > MOST_CELLS
    look: dict[str, Any] = {"rasterized": True} if is_large else {"edgecolors": "white", "linewidth": 0.5}
    mesh = axes.pcolormesh(matrix, cmap=colours, vmin=low, vmax=high, **look)
    axes.invert_yaxis()
    axes.grid(visible=False)
    axes.xaxis.tick_top()
    axes.tick_params(length=0, pad=2)
    axes.set_xticks(*_labelled(columns), rotation=90, fontsize=font, parse_math=False)
    axes.set_yticks(*_labelled(rows), fontsize=font, parse_math=False)
    axes.spines[:].set_visible(False)
    if digits is not None:
        for row, numbers in enumerate(matrix):
            for column, number in enumerate(numbers):
                colour = "white" if _is_dark(colours, (number - low) / (high - low)) else "black"
                text = f"{number:.{digits}f}"
                axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", fontsize=font - 1, color=colour)
    return mesh


def printable(text: str) -> str:
    """Text with what cannot be seen spelled out: an SVG may not hold control characters."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def as_svg(figure: "Figure") -> str:
    """The picture as text."""
    return _render(figure, "svg").decode()


def check_suffix(path: Path) -> None:
    """Refuse a name that does not say a format."""
    if path.suffix not in (".svg", ".png"):
        raise ConfigError(path, "the suffix says the format", hint="name it .svg or .png")


def save(figure: "Figure", path: Path) -> None:
    """Write a picture; the suffix says how: .svg or .png."""
    check_suffix(path)
    replace_file(path, _render(figure, "svg" if path.suffix == ".svg" else "png"))


def _render(figure: "Figure", format: Format) -> bytes:
    import matplotlib

    metadata = {"Date": None} if format == "svg" else {}
    with matplotlib.rc_context(STYLE), BytesIO() as file, _missing_characters_told(format):
        figure.savefig(file, format=format, dpi=200, metadata=metadata)
        return file.getvalue()


@contextmanager
def _missing_characters_told(format: Format) -> Iterator[None]:
    """One line for all the characters that no font has, and only where that shows: a browser has other fonts."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    missing = {str(each.message) for each in caught if str(each.message).startswith("Glyph ")}
    for each in caught:
        if str(each.message) not in missing:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if missing and format == "png":
        log.warning("matplotlib's font lacks %d of the characters, which are boxes: an .svg shows them", len(missing))


def _labelled(labels: Sequence[str]) -> tuple[list[float], list[str]]:
    return [number + 0.5 for number in range(len(labels))], list(map(printable, labels))


def _is_dark(colours: str, share: float) -> bool:
    from matplotlib import colormaps

    red, green, blue, _ = colormaps[colours](min(max(share, 0.0), 1.0))
    return bool(0.3 * red + 0.6 * green + 0.1 * blue < HALF_BRIGHT)
