"""Heat maps in the terminal, with blocks of four shades."""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from torch import Tensor

SHADES = " ░▒▓█"


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
