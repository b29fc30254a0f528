"""Pictures in the terminal: heat maps of four shades, curves of characters."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from torch import Tensor

from dragoman.plots.charts import Line, Number

SHADES = " ░▒▓█"
MARKS = "●○◆◇▲△■□"
CURVE_WIDTH, CURVE_HEIGHT = 64, 16


def attention_map(weights: Tensor, target_pieces: Sequence[str], source_pieces: Sequence[str]) -> str:
    """A heat map of queries x keys as text: a row a target piece, a column a source piece."""
    margin = max(map(cell_len, target_pieces)) + 2
    header = [" " * margin + row for row in _upright(source_pieces)]
    rows = [
        " " * (margin - 2 - cell_len(piece)) + f"{piece}  " + "".join(_shade(weight) * 2 for weight in row)
        for piece, row in zip(target_pieces, weights.tolist(), strict=True)
    ]
    return "\n".join([*header, *rows])


def _upright(pieces: Sequence[str]) -> list[str]:
    """Column headings from top to bottom, standing on the map."""
    height = max(map(len, pieces))
    columns = [piece.rjust(height) for piece in pieces]
    return ["".join(set_cell_size(column[line], 2) for column in columns).rstrip() for line in range(height)]


def _shade(weight: float) -> str:
    return SHADES[min(len(SHADES) - 1, int(weight * len(SHADES)))]


def line_chart(lines: Sequence[Line], x_label: str, y_label: str) -> str:
    """Curves as marks in a frame, with the range of both axes and a legend."""
    x = [each for line in lines for each in line.x]
    y = [each for line in lines for each in line.y]
    rows = [[" "] * CURVE_WIDTH for _ in range(CURVE_HEIGHT)]
    for number, line in enumerate(lines):
        for across, up in zip(line.x, line.y, strict=True):
            column = _cell(across, min(x), max(x), CURVE_WIDTH)
            rows[-1 - _cell(up, min(y), max(y), CURVE_HEIGHT)][column] = MARKS[number % len(MARKS)]
    highest, lowest = f"{max(y):.3g}", f"{min(y):.3g}"
    margin = max(len(highest), len(lowest))
    beside = [highest, *[""] * (CURVE_HEIGHT - 2), lowest]
    frame = [f"{text:>{margin}} │{''.join(row).rstrip()}" for text, row in zip(beside, rows, strict=True)]
    left, right = _short(min(x)), f"{_short(max(x))} {x_label}"
    bottom = [" " * margin + " └" + "─" * CURVE_WIDTH, " " * (margin + 2) + left + right.rjust(CURVE_WIDTH - len(left))]
    legend = [f"  {MARKS[number % len(MARKS)]} {line.name}" for number, line in enumerate(lines)]
    return "\n".join([y_label, *frame, *bottom, *legend])


def _short(number: Number) -> str:
    return f"{number:,}" if isinstance(number, int) else f"{number:.3g}"


def _cell(number: Number, low: Number, high: Number, cells: int) -> int:
    return round((number - low) / (high - low) * (cells - 1)) if high > low else 0
