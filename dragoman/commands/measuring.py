"""Studies that measure: `dragoman study table1`, `scaling`, `heads` and `sizes`."""

import json
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.options import (
    AsJson,
    Checkpoint,
    Device,
    ModelPath,
    Threads,
    choose_place,
    load_together,
    new_console,
)
from dragoman.errors import ConfigError

if TYPE_CHECKING:
    from dragoman.study.report import Report

SourceText = Annotated[Path, typer.Option(help="Text that the model reads.")]
TargetText = Annotated[Path, typer.Option(help="Its translation.")]


def table1(
    out: Annotated[Path, typer.Option(help="The folder for the report.")] = Path("out/table1"),
    as_json: AsJson = False,
) -> None:
    """Measure what layers cost as length and width grow, and how far signals travel (Table 1), on one thread."""
    from dragoman.study.setting import check_folder
    from dragoman.study.table1 import study_table1

    check_folder("table1", out)
    _run(study_table1, out, as_json)


def scaling(
    model: Annotated[Path | None, typer.Argument(help="Look at this model too.", show_default=False)] = None,
    source: Annotated[Path | None, typer.Option(help="Text that the model reads.")] = None,
    target: Annotated[Path | None, typer.Option(help="Its translation.")] = None,
    out: Annotated[Path, typer.Option(help="The folder for the report.")] = Path("out/scaling"),
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Show why the scores are divided by the root of d_k: with random vectors, and inside a trained model."""
    from dragoman.data.corpora import read_text_pairs
    from dragoman.study.scaling import study_scaling
    from dragoman.study.setting import check_folder

    if len({model is None, source is None, target is None}) > 1:
        raise ConfigError("MODEL, --source and --target", "only some of them are given")
    check_folder("scaling", out)
    place, text = choose_place(device, threads), None
    if model and source and target:
        text = load_together([model], place, checkpoint, {}), *read_text_pairs(source, target)
    _run(lambda command, say: study_scaling(text, command, say), out, as_json)


def heads(
    model: ModelPath,
    source: SourceText,
    target: TargetText,
    out: Annotated[Path, typer.Option(help="The folder for the report.")] = Path("out/heads"),
    checkpoint: Checkpoint = None,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
) -> None:
    """Say what each head of a Transformer does: how it looks, and what BLEU is left without it."""
    from dragoman.data.corpora import read_text_pairs
    from dragoman.study.heads import study_heads
    from dragoman.study.setting import check_folder

    check_folder("heads", out)
    texts = read_text_pairs(source, target)
    translator = load_together([model], choose_place(device, threads), checkpoint, {"beam": 1})
    _run(lambda command, say: study_heads(translator, *texts, command, say), out, as_json)


def sizes(
    out: Annotated[Path, typer.Option(help="The folder for the report.")] = Path("out/sizes"),
    as_json: AsJson = False,
) -> None:
    """Set the base and big models beside GPT-2 XL, Megatron-LM and GPT-3: shapes, data, operations, time."""
    from dragoman.study.setting import check_folder
    from dragoman.study.sizes import study_sizes

    check_folder("sizes", out)
    _run(study_sizes, out, as_json)


def _run(study: Callable[[str, Callable[[str], None]], "Report"], out: Path, as_json: bool) -> None:
    """Run a study, keep its report, and print it."""
    console = new_console()
    with console.status("measuring") as status:
        report = study(shlex.join(["dragoman", *sys.argv[1:]]), lambda text: status.update(text))
    report.write(out)
    print(json.dumps(report.results, ensure_ascii=False) if as_json else report.markdown().rstrip())
    console.out(f"wrote {out / 'report.html'}", highlight=False)
