"""Commands that make a model: prepare, train, average, demo."""

import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from dragoman.commands.options import AsJson, Device, Overrides, Threads, choose_place, new_console
from dragoman.errors import ConfigError


def prepare(
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line; may be repeated.")],
    out: Annotated[Path, typer.Option(help="The data folder to write.")],
    source: Annotated[
        list[Path] | None, typer.Option(help="Text to translate from; may be repeated. Without it: plain text.")
    ] = None,
    valid_source: Annotated[list[Path] | None, typer.Option(help="Validation text.")] = None,
    valid_target: Annotated[list[Path] | None, typer.Option(help="Its translation.")] = None,
    vocabulary: Annotated[int | None, typer.Option(help="Learned pieces; bytes and specials come on top.")] = None,
    recipe: Annotated[str | None, typer.Option(help="Take the data section from this recipe.")] = None,
    source_language: Annotated[str | None, typer.Option(help="Else from the file's suffix.")] = None,
    target_language: Annotated[str | None, typer.Option(help="Else from the file's suffix.")] = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
    overrides: Overrides = None,
) -> None:
    """Turn parallel text, or text by itself (each file as it is, .gz or .xz), into a data folder to train on."""
    from dataclasses import asdict

    from dragoman.data.prepare import Corpus
    from dragoman.data.prepare import prepare as prepare_data
    from dragoman.recipe import read_recipe

    choose_place(device, threads)
    words = [*(overrides or []), *([f"data.vocabulary={vocabulary}"] if vocabulary is not None else [])]
    config = read_recipe(recipe or "base", words if source else [*words, "data.plain=true"]).data
    if source and bool(valid_source) != bool(valid_target):
        raise ConfigError("--valid-source and --valid-target", "only one of them is given")
    valid = Corpus(valid_source or [], valid_target or []) if valid_source or valid_target else None
    console = new_console()
    with console.status("preparing") as status:
        languages = (source_language, target_language)
        manifest = prepare_data(
            Corpus(source or [], target), valid, languages, config, out, lambda text: status.update(text)
        )
    if as_json:
        print(json.dumps(asdict(manifest)))
    for name, split in manifest.splits.items():
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in split.dropped.items()) or "none"
        console.out(f"{name}: {split.pairs:,} pairs, {split.target_tokens:,} target pieces (dropped: {dropped})")
    console.out(f"vocabulary: {manifest.vocabulary[1]:,} pieces, wrote {out}", highlight=False)
    if manifest.without_validation:
        console.out(manifest.without_validation, highlight=False)
    if None in manifest.languages[config.plain :]:
        console.out("languages: not known; say them with --source-language and --target-language", highlight=False)


def train(
    recipe: Annotated[str, typer.Argument(help="A recipe file, or a preset: base, big, small, tiny.")],
    data: Annotated[Path, typer.Option(help="A data folder made by `dragoman prepare`.")],
    out: Annotated[Path, typer.Option(help="The run folder.")],
    resume: Annotated[bool, typer.Option("--resume", help="Go on where the run stopped.")] = False,
    start: Annotated[Path | None, typer.Option("--from", help="Begin with this model and its vocabulary.")] = None,
    device: Device = "auto",
    threads: Threads = None,
    overrides: Overrides = None,
) -> None:
    """Train a model, or go on training one."""
    from dragoman.recipe import read_recipe
    from dragoman.training.run import run_training

    for word in overrides or []:
        settled = word.startswith("data.") or (start and word.startswith("model.") and word[6:13] != "dropout")
        if settled:
            what = (
                "settled when the data was prepared" if word.startswith("data.") else "settled by the model of --from"
            )
            raise ConfigError(word, what)
    place, console = choose_place(device, threads), new_console()
    outcome = run_training(read_recipe(recipe, overrides or []), data, out, place, console, resume, start)
    if outcome.signal is not None:
        where = f"saved {outcome.checkpoint.name}" if outcome.checkpoint else "nothing to save yet"
        console.out(f"stopped: {where}; go on with the same command and --resume", highlight=False)
        sys.exit(128 + outcome.signal)
    console.out(f"done: {outcome.progress.step:,} steps; try: dragoman translate {out}", highlight=False)


def average(
    run: Annotated[Path, typer.Argument(help="A run folder.", show_default=False)],
    out: Annotated[Path, typer.Option(help="The model folder to write.")],
    last: Annotated[int, typer.Option(min=1, help="How many checkpoints.")] = 5,
    half: Annotated[bool, typer.Option("--half", help="Write 16-bit weights: half the size.")] = False,
    about: Annotated[str | None, typer.Option(help="What to say of the model in its card: corpora, licences.")] = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Average the last checkpoints of a run into one model (section 6.1 of the paper)."""
    from dragoman.training.average import average_last

    choose_place(device, threads)
    steps = average_last(run, last, out, half, about)
    new_console().out(f"averaged steps {', '.join(map(str, steps))} into {out}", highlight=False)


def demo(
    source: Annotated[str, typer.Option(help="A locale to translate from.")] = "en",
    target: Annotated[str, typer.Option(help="A locale to translate into.")] = "de",
    minutes: Annotated[float | None, typer.Option(min=0.01, help="Of training; the recipe's unless given.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for it all; a demo there is replaced.")] = Path("runs/demo"),
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Train a translator for dates, money, lists and more from nothing in a few minutes, and show it."""
    from dragoman.demo import run_demo

    result = run_demo(source, target, minutes, out, choose_place(device, threads), new_console())
    if as_json:
        print(json.dumps(result))
