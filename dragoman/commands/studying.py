"""Commands that study the paper: an experiment each, with a report."""

import json
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.options import AsJson, Device, Overrides, Threads, choose_place, new_console
from dragoman.errors import ConfigError

app = typer.Typer(no_args_is_help=True, help="Experiments on the paper's claims, each with a report.")


@app.command()
def captions(
    attention: Annotated[list[str] | None, typer.Option(help="soft, hard or a recipe file; both unless given.")] = None,
    out: Annotated[Path, typer.Option(help="The folder of the study.")] = Path("runs/captions"),
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Of training, for each.")] = None,
    features: Annotated[Path | None, typer.Option(help="Learn from the array 'features' of this .npz file.")] = None,
    lines: Annotated[Path | None, typer.Option("--captions", help="The captions of its pictures, one a line.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, max=1 << 32, help="Of pictures and training.")] = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
    overrides: Overrides = None,
) -> None:
    """Soft and hard attention over pictures (Xu et al. 2015), laid over them word by word."""
    from dragoman.study.captions import Given, study_captions

    if (features is None) != (lines is None):
        raise ConfigError("--features and --captions", "only one of them is given")
    given = Given(features, lines) if features and lines else None
    settings = {"training.minutes": minutes, "training.seed": seed}
    words = [*(overrides or []), *(f"{key}={value}" for key, value in settings.items() if value is not None)]
    place, console = choose_place(device, threads), new_console()
    command = shlex.join(["dragoman", *sys.argv[1:]])
    report = study_captions(attention or ["soft", "hard"], words, given, out, place, console, command)
    console.out(f"wrote {out / 'report.html'}", highlight=False)
    print(json.dumps(report.results) if as_json else report.markdown(), end="\n" if as_json else "")
