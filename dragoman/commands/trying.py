"""Studies that train: `dragoman study table3`, `systems`, `modern`, `norms` and `captions`."""

import json
import shlex
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dragoman.commands.options import AsJson, Device, Overrides, Threads, choose_place, new_console
from dragoman.errors import ConfigError, RunError

if TYPE_CHECKING:
    from dragoman.recipe import Recipe
    from dragoman.study.report import Report
    from dragoman.study.trials import Outcome, Plan

DataFolder = Annotated[Path, typer.Option("--data", help="A data folder made by `dragoman prepare`.")]
Out = Annotated[Path, typer.Option("--out", help="The study's folder; the same command goes on where it stopped.")]
Source = Annotated[Path | None, typer.Option("--source", help="Test text; the data's validation split unless given.")]
Target = Annotated[Path | None, typer.Option("--target", help="Its reference translation.")]
Only = Annotated[list[str] | None, typer.Option("--only", help="Trials by name or pattern, such as 'a-*'; repeatable.")]
Seeds = Annotated[int, typer.Option("--seeds", min=1, max=10, help="How often each is trained.")]
AtOnce = Annotated[int, typer.Option("--at-once", min=1, max=64, help="Trials side by side.")]
Average = Annotated[int, typer.Option("--average", min=1, help="Score the mean of so many last checkpoints.")]
Scale = Annotated[float, typer.Option("--scale", min=0.01, max=10, help="Layers and widths of every row times this.")]


def table3(
    data: DataFolder,
    out: Out,
    source: Source = None,
    target: Target = None,
    only: Only = None,
    scale: Scale = 1.0,
    seeds: Seeds = 1,
    at_once: AtOnce = 1,
    average: Average = 1,
    as_json: AsJson = False,
    device: Device = "auto",
    threads: Threads = None,
    overrides: Overrides = None,
) -> None:
    """Train rows of Table 3: the paper's numbers beside ours, and which of its orderings hold."""
    from dragoman.study.table3 import at_scale, make_report, recipes
    from dragoman.study.trials import Plan

    words = _settled(overrides)
    plan = Plan(
        study="table3",
        command=shlex.join(["dragoman", *sys.argv[1:]]),
        data=data,
        source=source,
        target=target,
        out=out,
        only=only or [],
        seeds=seeds,
        at_once=at_once,
        average=average,
        device=choose_place(device, threads),
        threads=threads,
        overrides=words,
    )
    rows = recipes(plan.only, words)
    _say_what_was_left(rows, words)
    _run(plan, at_scale(rows, scale), make_report, as_json)


def study_of(study: str) -> Callable[..., None]:
    """The command of a study whose trials are told by its module alone."""

    def command(
        data: DataFolder,
        out: Out,
        source: Source = None,
        target: Target = None,
        only: Only = None,
        seeds: Seeds = 1,
        at_once: AtOnce = 1,
        average: Average = 1,
        as_json: AsJson = False,
        device: Device = "auto",
        threads: Threads = None,
        overrides: Overrides = None,
    ) -> None:
        from dragoman.study.trials import Plan

        words = _settled(overrides)
        plan = Plan(
            study=study,
            command=shlex.join(["dragoman", *sys.argv[1:]]),
            data=data,
            source=source,
            target=target,
            out=out,
            only=only or [],
            seeds=seeds,
            at_once=at_once,
            average=average,
            device=choose_place(device, threads),
            threads=threads,
            overrides=words,
        )
        found = import_module(f"dragoman.study.{study}")
        recipes = found.recipes(plan.only, words)
        _say_what_was_left(recipes, words)
        _run(plan, recipes, found.make_report, as_json)

    return command


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


def _settled(overrides: list[str] | None) -> list[str]:
    """The overrides, if they may be given here; whether there is something to draw with is found out now, too."""
    from dragoman.plots.charts import check_drawing

    check_drawing()
    for word in overrides or []:
        if word.startswith("data."):
            raise ConfigError(word, "settled when the data was prepared")
        if word.startswith("training.seed="):
            raise ConfigError(word, "a study counts its seeds from 0", hint="use --seeds")
    return overrides or []


def _say_what_was_left(recipes: "dict[str, Recipe]", overrides: list[str]) -> None:
    from dragoman.study.variants import left_alone

    said = left_alone(recipes, overrides)
    if said:
        new_console().out(said, highlight=False)


def _run(
    plan: "Plan", recipes: "dict[str, Recipe]", make_report: "Callable[[Plan, Outcome], Report]", as_json: bool
) -> None:
    from dragoman.study.trials import run_study

    console = new_console()
    outcome = run_study(plan, recipes, console)
    if outcome.stopped_by is not None:
        done, total = len(outcome.results), len(outcome.trials)
        console.out(f"stopped: {done} of {total} trials are done; the same command goes on", highlight=False)
        sys.exit(128 + outcome.stopped_by)
    report = make_report(plan, outcome)
    report.write(plan.out)
    print(json.dumps(report.results, ensure_ascii=False) if as_json else report.markdown().rstrip())
    console.out(f"wrote {plan.out / 'report.html'} and {plan.out / 'report.md'}", highlight=False)
    if outcome.failures:
        said = "\n".join(f"{label}: {reason}" for label, reason in outcome.failures.items())
        hint = "the report holds the others; the same command tries these again"
        raise RunError(plan.out, said, hint=hint)
