"""The command line: parse, call, print. Nothing heavy is imported until a command runs.

Data goes to stdout, everything else to stderr. Exit codes: 0; 2 for the caller's mistake; 1 for a run that failed;
130 after Ctrl-C.
"""

import errno
import json
import logging
import os
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console

from dragoman import __version__
from dragoman.errors import ConfigError, DragomanError, RunError

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translator

app = typer.Typer(
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Attention Is All You Need: from your own parallel text to a translator you can trust and look into.",
)

Device = Annotated[Literal["auto", "cpu", "cuda", "mps"], typer.Option(help="Where to compute.")]
Threads = Annotated[int | None, typer.Option(min=1, max=1024, help="CPU threads; all cores unless given.")]
AsJson = Annotated[bool, typer.Option("--json", help="Answer in JSON, for programs.")]
ModelPath = Annotated[Path, typer.Argument(help="A model folder or a run folder.", show_default=False)]
Checkpoint = Annotated[str | None, typer.Option(help="Of a run: best, last or a step.")]
Overrides = Annotated[list[str] | None, typer.Argument(help="section.key=value ...", show_default=False)]
Beam = Annotated[int | None, typer.Option(min=1, max=1000, help="Beam width; 1 is greedy. The recipe's unless given.")]
Alpha = Annotated[float | None, typer.Option(min=0, help="Length penalty. The recipe's unless given.")]

Precision = Annotated[
    Literal["auto", "float32", "bf16"] | None, typer.Option(help="To compute in. The recipe's unless given.")
]


def main() -> None:
    """Run the command line; what a user can cause ends in one clear message and an exit code."""
    # Threads that spin while they wait starve one another as soon as another program wants a core: a training step was
    # seen to take 30 times as long. Threads that sleep cost at most a third (docs/LOG.md, 2026-11-16).
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    logging.basicConfig(format="warning: %(message)s", level=logging.WARNING)
    try:
        try:
            app(standalone_mode=True)
        finally:
            if sys.stdout:
                sys.stdout.flush()  # what cannot be written is told here, not when Python ends
    except DragomanError as error:
        sys.exit(_report(error))
    except KeyboardInterrupt:
        sys.exit(130)
    except OSError as error:
        if error.errno is None:
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # so that Python does not try again
        if error.errno == errno.EPIPE:
            sys.exit(0)
        kind = RunError if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) else ConfigError
        sys.exit(_report(kind(error.filename or "files", str(error.strerror).lower())))
    except (RuntimeError, MemoryError) as error:
        if "memory" not in str(error) and not isinstance(error, MemoryError):
            raise
        sys.exit(_report(RunError("memory", (str(error) or "not enough of it").splitlines()[0])))


def _report(error: DragomanError) -> int:
    print(error.report(), file=sys.stderr)
    return error.exit_code


def _show_version(wanted: bool | None) -> None:
    if wanted:
        print(f"dragoman {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[bool | None, typer.Option("--version", callback=_show_version, is_eager=True)] = None,
) -> None:
    pass


@app.command()
def prepare(
    source: Annotated[list[Path], typer.Option(help="Text to translate from; may be repeated.")],
    target: Annotated[list[Path], typer.Option(help="Its translation, line by line; may be repeated.")],
    out: Annotated[Path, typer.Option(help="The data folder to write.")],
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
    """Turn parallel text (plain, .gz or .xz) into a data folder to train on."""
    from dataclasses import asdict

    from dragoman.data.prepare import Corpus
    from dragoman.data.prepare import prepare as prepare_data
    from dragoman.recipe import read_recipe

    _place(device, threads)
    words = [*(overrides or []), *([f"data.vocabulary={vocabulary}"] if vocabulary is not None else [])]
    config = read_recipe(recipe or "base", words).data
    if bool(valid_source) != bool(valid_target):
        raise ConfigError("--valid-source and --valid-target", "only one of them is given")
    valid = Corpus(valid_source, valid_target) if valid_source and valid_target else None
    console = _console()
    with console.status("preparing") as status:
        languages = (source_language, target_language)
        manifest = prepare_data(Corpus(source, target), valid, languages, config, out, lambda text: status.update(text))
    if as_json:
        print(json.dumps(asdict(manifest)))
    for name, split in manifest.splits.items():
        dropped = ", ".join(f"{count:,} {reason}" for reason, count in split.dropped.items()) or "none"
        console.out(f"{name}: {split.pairs:,} pairs, {split.target_tokens:,} target pieces (dropped: {dropped})")
    console.out(f"vocabulary: {manifest.vocabulary[1]:,} pieces, wrote {out}", highlight=False)
    if None in manifest.languages:
        console.out("languages: not known; say them with --source-language and --target-language", highlight=False)


@app.command()
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
    place, console = _place(device, threads), _console()
    outcome = run_training(read_recipe(recipe, overrides or []), data, out, place, console, resume, start)
    if outcome.signal is not None:
        where = f"saved {outcome.checkpoint.name}" if outcome.checkpoint else "nothing to save yet"
        console.out(f"stopped: {where}; go on with the same command and --resume", highlight=False)
        sys.exit(128 + outcome.signal)
    console.out(f"done: {outcome.progress.step:,} steps; try: dragoman translate {out}", highlight=False)


@app.command()
def translate(
    model: ModelPath,
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
    as_json: AsJson = False,
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Translate lines: exactly one line out for each line in, in order, empty for empty."""
    from dragoman.decoding.sampling import Sampling
    from dragoman.decoding.steps import show_steps
    from dragoman.streams import LINES_AT_ONCE, check_output, format_answers, open_input, open_output, windows

    check_output(input, output)
    if not sample and (temperature != 1.0 or top_k is not None or top_p is not None):
        raise ConfigError("--temperature, --top-k and --top-p", "need --sample")
    if sample and prefix is not None:
        raise ConfigError("--sample", "cannot be combined with --prefix")
    if steps and (sample or prefix is not None or n_best > 1):
        raise ConfigError("--steps", "shows greedy search alone, without --sample, --prefix and --n-best")
    how = Sampling(temperature, top_k, top_p) if sample else None
    models, place = [model, *(ensemble or [])], _place(device, threads)
    translator = _load(models, place, checkpoint, {"beam": beam, "alpha": alpha, "precision": precision})
    window = 1 if steps or (input is None and sys.stdin.isatty()) else LINES_AT_ONCE
    with open_input(input) as lines, open_output(output) as write:
        for number, texts in windows(lines, window):
            if steps:
                write(f"{step}\n" for step in show_steps(translator, texts[0]))
                continue
            forced = None if prefix is None else [prefix] * len(texts)
            answers = translator.translate(texts, n_best, forced, how, seed + number)
            write(format_answers(answers, number, n_best, as_json))


@app.command()
def score(
    model: ModelPath,
    source: Annotated[Path, typer.Option(help="Source text.")],
    target: Annotated[Path, typer.Option(help="Translations to score.")],
    checkpoint: Checkpoint = None,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Print how likely the model finds each given translation: its score, a line each."""
    from dragoman.data.corpora import read_text_pairs
    from dragoman.streams import open_output

    translator = _load([model], _place(device, threads), checkpoint, {})
    sources, targets = read_text_pairs(source, target)
    with open_output(None) as write:
        write(f"{each.normalised(translator.decoding.alpha):.6f}\n" for each in translator.score(sources, targets))


@app.command()
def evaluate(
    model: ModelPath,
    source: Annotated[Path, typer.Option(help="Test text.")],
    target: Annotated[Path, typer.Option(help="Its reference translation.")],
    output: Annotated[Path | None, typer.Option(help="Write the translations here.")] = None,
    beam: Beam = None,
    alpha: Alpha = None,
    precision: Precision = None,
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Score a model on a test set (BLEU, chrF, exact match, perplexity) and keep the result in its card."""
    from dataclasses import asdict

    from dragoman.data.corpora import read_text_pairs
    from dragoman.evaluation.report import evaluate as evaluate_model
    from dragoman.evaluation.report import keep_in_card
    from dragoman.saved import find_model, read_card
    from dragoman.streams import open_output

    sources, references = read_text_pairs(source, target)
    folder = find_model(model, checkpoint)
    settings = {"beam": beam, "alpha": alpha, "precision": precision}
    translator = _load([folder], _place(device, threads), None, settings)
    recipe = read_card(folder)["recipe"]
    with open_output(output) if output else nullcontext() as write:
        test = f"{source.name}, {target.name}"
        report, translations = evaluate_model(translator, sources, references, recipe, test)
        if write:
            write(f"{line}\n" for line in translations)
    print(json.dumps(asdict(report)) if as_json else report.summary())
    try:
        keep_in_card(folder, report)
    except (OSError, DragomanError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        logging.getLogger("dragoman").warning("the scores could not be kept in the model's card: %s", why)


@app.command()
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

    _place(device, threads)
    steps = average_last(run, last, out, half, about)
    _console().out(f"averaged steps {', '.join(map(str, steps))} into {out}", highlight=False)


@app.command()
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

    _place(device, threads)
    found: dict[str, Any]
    found = inspect_model(Path(what), checkpoint) if Path(what).is_dir() else inspect_recipe(what, vocabulary)
    print(json.dumps(found, ensure_ascii=False) if as_json else summary(found))


@app.command()
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

    result = run_demo(source, target, minutes, out, _place(device, threads), _console())
    if as_json:
        print(json.dumps(result))


def _load(paths: list[Path], device: Any, checkpoint: str | None, decoding: dict[str, Any]) -> "Translator":
    from dragoman.decoding.translator import load

    given = {name: value for name, value in decoding.items() if value is not None}
    return load(*paths, device=str(device), checkpoint=checkpoint, decoding=given)


def _place(device: str, threads: int | None) -> Any:
    """Set the threads, and say which device is meant."""
    import torch

    from dragoman.models.interface import choose_device

    if threads is not None:
        torch.set_num_threads(threads)
    return choose_device(device)


def _console() -> Console:
    return Console(stderr=True, soft_wrap=True)


if __name__ == "__main__":
    main()
