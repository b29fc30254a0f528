"""Where pictures go: a file whose name says the format, or the terminal."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.options import new_console
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TERMINAL = Path("-")
Out = Annotated[Path | None, typer.Option(help="An .svg or a .png; NAME.svg here unless given.", show_default=False)]
OutOrTerminal = Annotated[
    Path | None, typer.Option(help="An .svg, a .png, or - for the terminal; NAME.svg here unless given.")
]


def choose_file(out: Path | None, name: str, has_text: bool = False) -> Path:
    """Where a picture goes; a name that says no format is refused before anything is computed."""
    from dragoman.plots.charts import check_suffix

    place = out or Path(f"{name}.svg")
    if place == TERMINAL and not has_text:
        raise ConfigError("--out", "this picture has no form for the terminal, got -", hint="name an .svg or a .png")
    if place != TERMINAL:
        check_suffix(place)
        if place.is_dir() or not place.parent.is_dir():
            raise ConfigError(place, "is a folder" if place.is_dir() else f"there is no folder {place.parent}")
    return place


def save_picture(figure: "Figure", place: Path) -> None:
    """Write it and say where."""
    from dragoman.plots.charts import save

    save(figure, place)
    new_console().out(f"wrote {place}", highlight=False)
