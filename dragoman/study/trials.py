"""The trials of a study: side by side, each a folder and a process of its own, none of them run twice.

A study that was interrupted goes on where it stopped: what is done stays, what is half trained is resumed, what failed
is tried again.
"""

import fnmatch
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from rich.console import Console

from dragoman.data.corpora import read_text_pairs
from dragoman.data.store import Data, open_data
from dragoman.durable import replace_file
from dragoman.errors import ConfigError, DataError
from dragoman.evaluation.report import text_sha256
from dragoman.recipe import Recipe
from dragoman.saved import RECIPE, read_recipe_file
from dragoman.study.display import Display
from dragoman.study.trial import (
    FAILED,
    LOG,
    RUN,
    RUNS,
    STUDY,
    TEST,
    Conditions,
    Result,
    read_conditions,
    read_result,
)
from dragoman.training.checkpoints import check_owned, locked
from dragoman.training.loop import stop_request
from dragoman.training.schedule import still_warms_up

POLL = 0.1  # seconds between looks at the trials


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What a study is asked to do."""

    study: str
    command: str  # that makes it again
    data: Path
    source: Path | None
    target: Path | None
    out: Path
    only: Sequence[str]  # names or patterns of them; none: all
    seeds: int
    at_once: int
    average: int
    device: torch.device
    threads: int | None
    overrides: Sequence[str]

    @property
    def threads_of_a_trial(self) -> int:
        """As many as any command takes, --threads or else OMP_NUM_THREADS; unless either is given, cores are shared."""
        if self.threads is not None:
            return self.threads
        usual = torch.get_num_threads()
        return usual if os.environ.get("OMP_NUM_THREADS") else max(1, usual // self.at_once)


@dataclass(frozen=True)
class Trial:
    """A recipe, with its seed, under a name."""

    name: str
    recipe: Recipe

    @property
    def label(self) -> str:
        """What its folder is called."""
        return f"{self.name}-seed{self.recipe.training.seed}"


@dataclass(frozen=True)
class Outcome:
    """How a study's trials went."""

    folder: Path
    trials: Sequence[Trial]
    results: dict[str, Result]  # by label
    failures: dict[str, str]  # the reasons, by label
    sources: Sequence[str]
    references: Sequence[str]
    conditions: Conditions
    stopped_by: int | None  # the signal, if one did

    def first_seeds(self) -> dict[str, str]:
        """Of each name, the label of the first trial that is done."""
        labels: dict[str, str] = {}
        for trial in self.trials:
            if trial.label in self.results:
                labels.setdefault(trial.name, trial.label)
        return labels

    def run(self, label: str) -> Path:
        """The run folder of a trial."""
        return self.folder / RUNS / label / RUN


def choose(names: Sequence[str], only: Sequence[str]) -> list[str]:
    """The names that are wanted, in their own order."""
    for pattern in only:
        if not fnmatch.filter(names, pattern):
            raise ConfigError("--only", f"no such trial, got {pattern}", hint=f"there are: {', '.join(names)}")
    return [name for name in names if not only or any(fnmatch.fnmatch(name, pattern) for pattern in only)]


def run_study(plan: Plan, recipes: dict[str, Recipe], console: Console) -> Outcome:
    """Run the trials of some recipes, each with every seed, but for those that are done."""
    data = open_data(plan.data)
    if data.manifest.config.get("plain"):
        hint = "a study translates; prepare two sides of text"
        raise DataError(plan.data, "is plain text, without a source", hint=hint)
    sources, references, test = _test_text(plan, data)
    conditions = Conditions(
        plan.study,
        str(plan.data.resolve()),
        data.manifest.sha256,
        test,
        text_sha256(sources, references),
        plan.average,
    )
    trials = trials_of(recipes, plan.seeds, data)
    check_owned(plan.out, STUDY, "a study's folder")
    _warn_of_warm_up(trials, console)
    with locked(plan.out):
        _agree(plan.out, conditions)
        replace_file(plan.out / STUDY, json.dumps(asdict(conditions)))
        replace_file(plan.out / TEST, json.dumps([sources, references], ensure_ascii=False))
        for trial in trials:
            _ask(plan.out / RUNS / trial.label, trial.recipe)
        stopped_by, failures = _run_all(plan, trials, console)
    found = {trial.label: read_result(plan.out / RUNS / trial.label) for trial in trials}
    results = {label: result for label, result in found.items() if result}
    return Outcome(plan.out, trials, results, failures, sources, references, conditions, stopped_by)


def trials_of(recipes: dict[str, Recipe], seeds: int, data: Data) -> list[Trial]:
    """Each recipe with each seed, in such an order that every one has run before the first runs again."""
    return [
        Trial(name, recipe.with_values({"data": data.manifest.config, "training": {"seed": seed}}, name))
        for seed in range(seeds)
        for name, recipe in recipes.items()
    ]


def _warn_of_warm_up(trials: Sequence[Trial], console: Console) -> None:
    planned = [(each.name, each.recipe.training) for each in trials]
    never_warm = [name for name, config in planned if config.steps and still_warms_up(config, config.steps)]
    if never_warm:
        said = "warm-up is longer than the budget in steps (set training.warmup)"
        console.out(f"{said}: {', '.join(dict.fromkeys(never_warm))}", highlight=False)


def _test_text(plan: Plan, data: Data) -> tuple[list[str], list[str], str]:
    if plan.source and plan.target:
        return (*read_text_pairs(plan.source, plan.target), f"{plan.source.name}, {plan.target.name}")
    if plan.source or plan.target:
        raise ConfigError("--source and --target", "only one of them is given")
    if data.valid is None:
        raise DataError(plan.data, "has no validation split to test on", hint="give --source and --target")
    pairs = [data.valid.pair(number) for number in range(len(data.valid))]
    sources = data.source_vocabulary.decode([source.tolist() for source, _ in pairs])
    return sources, data.target_vocabulary.decode([target.tolist() for _, target in pairs]), "validation split"


def _agree(out: Path, conditions: Conditions) -> None:
    found = read_conditions(out)
    if found is None:
        return
    before, new = asdict(found), asdict(conditions)
    same = ("study", "data_sha256", "test_sha256", "average")  # the texts may stand elsewhere now
    changed = [f"'{name}' was {before[name]!r}, got {new[name]!r}" for name in same if before[name] != new[name]]
    if changed:
        raise ConfigError(out, "\n".join(changed), hint="a study goes on as it began; choose another --out")


def _ask(folder: Path, recipe: Recipe) -> None:
    """Leave the recipe in a trial's folder, or make sure that it is the one that is there."""
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / RECIPE).exists():
        replace_file(folder / RECIPE, recipe.toml())
    before, now = (each.model_dump() for each in (read_recipe_file(folder), recipe))
    changed = [
        f"'{section}.{key}' was {before[section].get(key)!r}, got {value!r}"
        for section, values in now.items()
        for key, value in values.items()
        if before[section].get(key) != value
    ]
    if changed:
        raise ConfigError(folder, "\n".join(changed), hint="a trial keeps its recipe; choose another --out")


def _run_all(plan: Plan, trials: Sequence[Trial], console: Console) -> tuple[int | None, dict[str, str]]:
    waiting = [trial for trial in trials if read_result(plan.out / RUNS / trial.label) is None]
    total, failures, asked = len(trials), dict[str, str](), False
    console.out(f"{total - len(waiting)} of {total} trials are done, {plan.at_once} at once", highlight=False)
    with stop_request() as stopped_by, _no_orphans() as running, Display(console) as display:
        while running or (waiting and not stopped_by()):
            while waiting and len(running) < plan.at_once and not stopped_by():
                trial = waiting.pop(0)
                running[trial.label] = _start(plan, trial)
            for label in [label for label, process in running.items() if process.poll() is not None]:
                with running.pop(label) as process:
                    said, has_failed = _how_it_ended(plan.out / RUNS / label, process.returncode, bool(stopped_by()))
                if has_failed:
                    failures[label] = said
                display.say(f"{label}: {'failed: ' if has_failed else ''}{said}")
            if stopped_by() and not asked:
                asked = True
                for process in running.values():
                    process.terminate()
            display.show(plan.out / RUNS, list(running), total - len(waiting) - len(running), total)
            time.sleep(POLL)
        return stopped_by(), failures


def _start(plan: Plan, trial: Trial) -> "subprocess.Popen[bytes]":
    """A session of its own keeps Ctrl-C from reaching it twice; its standard input tells it when the study dies."""
    folder = plan.out / RUNS / trial.label
    (folder / FAILED).unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "dragoman.study.trial",
        str(folder),
        str(plan.device),
        str(plan.threads_of_a_trial),
    ]
    environment = os.environ | {"OMP_NUM_THREADS": str(plan.threads_of_a_trial)}
    with (folder / LOG).open("ab") as log:
        return subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, env=environment
        )


def _how_it_ended(folder: Path, code: int, was_asked_to: bool) -> tuple[str, bool]:
    """What is to be said of it, and whether that is a failure."""
    result = read_result(folder)
    if result is not None:
        seconds = f"{result.training_seconds:.0f} s of training"
        return f"BLEU {result.bleu.score:.2f}, {result.steps:,} updates, {seconds}", False
    if was_asked_to and (code < 0 or code > 128):
        return "stopped", False
    if (folder / FAILED).exists():
        return json.loads((folder / FAILED).read_text(encoding="utf-8"))["reason"], True
    ended = f"killed by signal {-code}" if code < 0 else f"ended with code {code}"
    return f"{ended}, see {folder / LOG}", True


@contextmanager
def _no_orphans() -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    """The processes that are running, by label; whatever happens, none outlives the study."""
    running: dict[str, subprocess.Popen[bytes]] = {}
    try:
        yield running
    finally:
        for process in running.values():
            with process:
                process.kill()
