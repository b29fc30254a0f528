"""Commands that use a model: translate, score, evaluate, inspect."""

import json
import logging
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dragoman.commands.options import (
    Alpha,
    AsJson,
    Beam,
    Checkpoint,
    Device,
    Engine,
    ModelPath,
    Precision,
    Threads,
    choose_place,
    load_together,
    new_console,
)
from dragoman.errors import ConfigError, DragomanError

if TYPE_CHECKING:
    from dragoman.decoding.sampling import Sampling
    from dragoman.decoding.translator import Translator


def translate(
    model: Annotated[
        Path | None, typer.Argument(help="A model folder or a run folder; a small one comes along.", show_default=False)
    ] = None,
    to: Annotated[str | None, typer.Option("--to", help="Without MODEL: from English into de or fr.")] = None,
    input: Annotated[Path | None, typer.Option(help="Text, a sentence a line; stdin unless given.")] = None,
    output: Annotated[Path | None, typer.Option(help="Where to write; stdout unless given.")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    precision: Precision = None,
    n_best: Annotated[int, typer.Option(min=1, max=1000, help="Translations a line, best first, with scores.")] = 1,
    ensemble: Annotated[list[Path] | None, typer.Option("--with", help="A model to translate together with.")] = None,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of searching.")] = False,
    temperature: Annotated[float, typer.Option(min=0.01, help="Below 1 draws what is likely.")] = 1.0,
    top_k: Annotated[int | None, typer.Option(min=1, help="Draw among the k likeliest.")] = None,
    top_p: Annotated[float | None, typer.Option(min=0.0, max=1.0, help="Draw among this share.")] = None,
    seed: Annotated[int, typer.Option(min=0, max=1 << 32, help="Of the drawing.")] = 0,
    prefix: Annotated[str | None, typer.Option(help="How every translation begins.")] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show each decoding step.")] = False,
    engine: Engine = "auto",
    as_json: AsJson = False,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate lines: exactly one line out for each line in, in order, empty for empty."""
    from dragoman import streams
    from dragoman.decoding.steps import show_steps
    from dragoman.evaluation.metrics import left_empty

    streams.check_files(input, output)
    if model is None and (ensemble or checkpoint is not None):
        raise ConfigError("--with and --checkpoint", "need a MODEL")
    model = _model_or_everyday(model, to)
    lost = 0
    how = _how_to_draw(sample, temperature, top_k, top_p)
    if steps and (sample or prefix is not None or n_best > 1):
        raise ConfigError("--steps", "shows greedy search alone, without --sample, --prefix and --n-best")
    if sample or steps:
        if engine == "ctranslate2":
            raise ConfigError("--engine ctranslate2", "neither draws nor shows steps; that is --engine torch")
        engine = "torch"
    models, place = [model, *(ensemble or [])], choose_place(device, threads)
    settings = {"beam": beam, "alpha": alpha, "precision": precision}
    window = 1 if steps or (input is None and sys.stdin.isatty()) else streams.LINES_AT_ONCE
    with streams.open_input(input) as lines, streams.open_output(output) as write:
        translator = load_together(models, place, checkpoint, settings, engine)
        if steps and translator.is_plain:
            raise ConfigError("--steps", "shows how a source is translated, and this model learned from plain text")
        made_with = {"engine": translator.engine.name, "precision": translator.engine.precision} if as_json else None
        for number, texts in streams.windows(lines, window):
            if steps:
                write(streams.format_steps(show_steps(translator, texts[0]), made_with))
                continue
            forced = None if prefix is None else [prefix] * len(texts)
            answers = translator.translate(texts, n_best, forced, how, seed + number)
            lost += left_empty(texts, [answer.text for answer in answers])
            write(streams.format_answers(answers, number, n_best, made_with))
    _warn_of_empty(lost)


def _how_to_draw(sample: bool, temperature: float, top_k: int | None, top_p: float | None) -> "Sampling | None":
    from dragoman.decoding.sampling import Sampling

    if not sample and (temperature != 1.0 or top_k is not None or top_p is not None):
        raise ConfigError("--temperature, --top-k and --top-p", "need --sample")
    return Sampling(temperature, top_k, top_p) if sample else None


def _warn_of_empty(lines: int) -> None:
    if lines:
        what = "1 line that is not blank was" if lines == 1 else f"{lines:,} lines that are not blank were"
        logging.getLogger("dragoman").warning("%s translated into nothing", what)


def _model_or_everyday(model: Path | None, to: str | None) -> Path:
    from dragoman.everyday.find import everyday_models, find_everyday

    if model is not None:
        if to is not None:
            raise ConfigError("--to", f"has no use: {model} translates into what it learned")
        return model
    found = find_everyday(to)
    said = f"model: {found.name}, for everyday sentences, comes along; --to takes {' or '.join(everyday_models())}"
    new_console().out(said, highlight=False)
    return found


def score(
    model: ModelPath,
    target: Annotated[Path, typer.Option(help="Translations to score.")],
    source: Annotated[Path | None, typer.Option(help="Source text; a model of plain text needs none.")] = None,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print how likely the model finds each given translation: its score, a line each."""
    from dragoman.data.corpora import read_text_pairs
    from dragoman.streams import open_output

    translator = load_together([model], choose_place(device, threads), checkpoint, {})
    _check_source(source, translator)
    sources, targets = read_text_pairs(source or target, target)
    with open_output(None) as write:
        write(f"{each.normalised(translator.decoding.alpha):.6f}\n" for each in translator.score(sources, targets))


def _check_source(source: Path | None, translator: "Translator") -> None:
    if source is None and not translator.is_plain:
        raise ConfigError("--source", "is missing: what do these lines translate?")
    if source is not None and translator.is_plain:
        raise ConfigError("--source", "has no use: the model learned from plain text, which has none")


def evaluate(
    model: ModelPath,
    target: Annotated[Path, typer.Option(help="The reference translation.")],
    source: Annotated[Path | None, typer.Option(help="Test text; a model of plain text needs none.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    precision: Precision = None,
    engine: Engine = "torch",
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Score a model on a test set (BLEU, chrF, exact match, perplexity) and keep the result in its card."""
    from dataclasses import asdict

    from dragoman.data.corpora import read_text_pairs
    from dragoman.evaluation.metrics import left_empty
    from dragoman.evaluation.report import evaluate as evaluate_model
    from dragoman.evaluation.report import keep_in_card
    from dragoman.saved import find_model, read_card
    from dragoman.streams import open_output

    sources, references = read_text_pairs(source or target, target)
    folder = find_model(model, checkpoint)
    settings = {"beam": beam, "alpha": alpha, "precision": precision}
    translator = load_together([folder], choose_place(device, threads), None, settings, engine)
    _check_source(source, translator)
    if translator.is_plain:
        sources = translator.beginnings(references)
    recipe = read_card(folder)["recipe"]
    with open_output(output) if output else nullcontext() as write:
        test = f"{source.name}, {target.name}" if source else target.name
        report, translations = evaluate_model(translator, sources, references, recipe, test)
        if write:
            write(f"{line}\n" for line in translations)
    _warn_of_empty(left_empty(sources, translations))
    print(json.dumps(asdict(report)) if as_json else report.summary())
    try:
        keep_in_card(folder, report)
    except (OSError, DragomanError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        logging.getLogger("dragoman").warning("the scores could not be kept in the model's card: %s", why)


def inspect(
    what: Annotated[str, typer.Argument(help="A recipe, a model folder or a run folder.")],
    vocabulary: Annotated[
        int | None, typer.Option(min=1, max=1 << 31, help="Of a recipe: count all its pieces as so many.")
    ] = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Say what a recipe or a model is: parameters by part, memory, operations a token, step and scores."""
    from dragoman.inspection import inspect_model, inspect_recipe, summary

    choose_place(device, threads)
    found: dict[str, Any]
    found = inspect_model(Path(what), checkpoint) if Path(what).is_dir() else inspect_recipe(what, vocabulary)
    print(json.dumps(found, ensure_ascii=False) if as_json else summary(found))
