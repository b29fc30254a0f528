"""Commands that take a model to other engines and back: export, import."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from dragoman.commands.options import AsJson, Checkpoint, ModelPath, Threads, choose_place, new_console


def export(
    model: ModelPath,
    format: Annotated[Literal["ctranslate2", "marian", "onnx"], typer.Option(help="The engine to export for.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
    precision: Annotated[
        Literal["float32", "float16", "int8"],
        typer.Option(help="Of the weights; all but float32 for CTranslate2 alone."),
    ] = "float32",
    as_json: AsJson = False,
    checkpoint: Checkpoint = None,
    threads: Threads = None,
) -> None:
    """Write a model for CTranslate2, for transformers (as MarianMT) or for ONNX, and compare it with the original."""
    from dragoman.export.formats import export as export_model
    from dragoman.saved import load_model

    choose_place("cpu", threads)
    parity = export_model(load_model(model, checkpoint), format, precision, out)
    if as_json:
        print(json.dumps({"format": format, "precision": precision, "parity": parity.values()}))
    console = new_console()
    console.out(f"parity: {parity.summary()}", highlight=False)
    console.out(f"wrote {out}", highlight=False)


def import_marian(
    folder: Annotated[Path, typer.Argument(help="A MarianMT folder with model.safetensors.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
) -> None:
    """Make a model of a MarianMT folder, if it is one that the paper's Transformer can hold."""
    from dragoman.export.from_marian import import_marian as import_model

    choose_place("cpu", None)
    parameters = import_model(folder, out)
    new_console().out(f"wrote {out}: {parameters:,} parameters; try: dragoman translate {out}", highlight=False)
