"""What several commands take, and the few things they all do with it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

if TYPE_CHECKING:
    import torch

    from dragoman.decoding.translator import Translator

Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")]
Threads = Annotated[
    int | None, typer.Option(min=1, max=1024, help="CPU threads; OMP_NUM_THREADS or all cores unless given.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
ModelPath = Annotated[Path, typer.Argument(help="A model folder or a run folder.", show_default=False)]
Checkpoint = Annotated[str | None, typer.Option(help="Of a run: best, last or a step.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value ...", show_default=False)]
Beam = Annotated[int | None, typer.Option(min=1, max=1000, help="Beam width; 1 is greedy. The recipe's unless given.")]
Alpha = Annotated[float | None, typer.Option(min=0, help="Length penalty. The recipe's unless given.")]
Engine = Annotated[
    Literal["auto", "torch", "ctranslate2"],
    typer.Option(help="What computes; auto: CTranslate2 in 8 bits on a CPU, where it is installed."),
]
Precision = Annotated[
    Literal["auto", "float32", "bf16"] | None, typer.Option(help="To compute in. The recipe's unless given.")
]


def load_together(
    paths: list[Path],
    device: "torch.device",
    checkpoint: str | None,
    decoding: dict[str, Any],
    engine: Literal["auto", "torch", "ctranslate2"] = "torch",
) -> "Translator":
    """A translator, or several models as one, with the settings that were given; says what was chosen for the user."""
    from dragoman.export.engines import load

    given = {name: value for name, value in decoding.items() if value is not None}
    translator = load(*paths, device=str(device), checkpoint=checkpoint, decoding=given, engine=engine)
    chosen = translator.engine
    if engine == "auto" and chosen.name != "torch" and translator.models:
        said = f"engine: {chosen.name} in {chosen.precision}; --engine torch computes with the model as it was trained"
        new_console().out(said, highlight=False)
    return translator


def choose_place(device: str, threads: int | None) -> "torch.device":
    """Set the threads, and say which device is meant."""
    import torch

    from dragoman.models.interface import choose_device

    if threads is not None:
        torch.set_num_threads(threads)
    return choose_device(device)


def new_console() -> Console:
    """What is said beside the data goes to stderr."""
    return Console(stderr=True, soft_wrap=True)
