"""One trial of a study, in a process of its own: train, average, translate, score. What it found is written last.

OUT/study.json, OUT/test.json   what all trials have in common
OUT/runs/TRIAL/recipe.toml      what this one is asked
OUT/runs/TRIAL/run/             the run folder; its checkpoints go when the trial is done
OUT/runs/TRIAL/model/           the mean of its last checkpoints, which is what was scored
OUT/runs/TRIAL/translations.txt, log.txt
OUT/runs/TRIAL/result.json      only when all is done; or failed.json, which says why not
"""

import json
import os
import platform
import resource
import shutil
import signal
import statistics
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeVar

import torch
from pydantic import TypeAdapter, ValidationError
from rich.console import Console

from dragoman.decoding.translator import load
from dragoman.durable import replace_file
from dragoman.errors import ConfigError, DragomanError, ModelError
from dragoman.evaluation.metrics import Metric, left_empty
from dragoman.evaluation.report import evaluate, keep_in_card
from dragoman.models.interface import choose_device, is_out_of_memory
from dragoman.recipe import Recipe
from dragoman.saved import (
    CHECKPOINTS,
    WEIGHTS,
    checkpoints,
    newest_good,
    read_card,
    read_recipe_file,
    read_tensors,
    weights_sha256,
)
from dragoman.training.average import average_last
from dragoman.training.checkpoints import RunFolder, locked
from dragoman.training.journal import JOURNAL, read_journal
from dragoman.training.run import run_training
from dragoman.training.schedule import Progress, spent

RUNS, RUN, MODEL = "runs", "run", "model"
STUDY, TEST, RESULT, FAILED = "study.json", "test.json", "result.json", "failed.json"
TRANSLATIONS, LOG = "translations.txt", "log.txt"
PATIENCE = 120.0  # seconds that a trial waits for one before it, which is saving

T = TypeVar("T")


@dataclass(frozen=True)
class Conditions:
    """What all trials of a study have in common."""

    study: str
    data: str  # the folder
    data_sha256: str
    test: str  # which text
    test_sha256: str
    average: int  # how many of the last checkpoints, if there are as many


@dataclass(frozen=True)
class Result:
    """What a trial found, and what that cost."""

    name: str
    seed: int
    recipe: str
    bleu: Metric
    chrf: Metric
    perplexity: float | None
    parameters: int
    steps: int
    averaged: list[int]
    tokens: int  # target tokens learned from
    tokens_per_second: float | None  # in the median
    training_seconds: float  # validations included
    translating_seconds: float
    memory_bytes: int | None  # the most that training held
    weights_sha256: str
    hardware: str
    torch: str
    finished: str
    left_empty: int = 0  # lines of the test text that were translated into nothing


def run_trial(folder: Path, device: torch.device) -> int:
    """Do what is left to do of a trial; returns the signal that stopped it, or zero."""
    study = folder.parent.parent
    conditions = read_conditions(study)
    recipe, run = read_recipe_file(folder), RunFolder(folder / RUN)
    assert conditions, study  # it stands there before any trial is asked
    memory = None
    if not has_ended(run, recipe):
        outcome = run_training(
            recipe, Path(conditions.data), run.path, device, Console(stderr=True), resume=run.has_checkpoints
        )
        if outcome.signal is not None:
            return outcome.signal
        memory = peak_memory(device)
    shutil.rmtree(folder / MODEL, ignore_errors=True)  # of a trial that was stopped behind this line
    count = min(conditions.average, recipe.training.keep_last, len(checkpoints(run.path)))
    averaged = average_last(run.path, count, folder / MODEL)
    replace_file(folder / RESULT, json.dumps(asdict(_score(folder, conditions, recipe, averaged, memory, device))))
    shutil.rmtree(run.path / CHECKPOINTS, ignore_errors=True)  # the model that was scored stays
    return 0


def has_ended(run: RunFolder, recipe: Recipe) -> bool:
    """Whether a run has come to its own end: the budget's, or that of its patience."""
    if not run.has_checkpoints:
        return False
    ended = [event for event in read_journal(run.path) if event["event"] in ("started", "ended")]
    by_itself = ended and ended[-1]["event"] == "ended" and ended[-1]["signal"] is None
    return bool(by_itself) or spent(_progress(run.path), recipe.training) >= 1


def _progress(run: Path) -> Progress:
    return Progress(**read_card(newest_good(run))["progress"])


def _score(
    folder: Path, conditions: Conditions, recipe: Recipe, averaged: list[int], memory: int | None, device: torch.device
) -> Result:
    sources, references = json.loads((folder.parent.parent / TEST).read_text(encoding="utf-8"))
    begun = time.monotonic()
    translator = load(folder / MODEL, device=str(device))
    report, translations = evaluate(translator, sources, references, recipe.hash, conditions.test)
    seconds = time.monotonic() - begun
    keep_in_card(folder / MODEL, report)
    replace_file(folder / TRANSLATIONS, "".join(f"{line}\n" for line in translations))
    progress = _progress(folder / RUN)
    speeds = [event["tokens_per_second"] for event in read_journal(folder / RUN) if event["event"] == "step"]
    return Result(
        name=folder.name.rpartition("-seed")[0],
        seed=recipe.training.seed,
        recipe=recipe.hash,
        bleu=report.bleu,
        chrf=report.chrf,
        perplexity=report.perplexity,
        parameters=sum(each.numel() for each in translator.models[0].parameters()),
        steps=progress.step,
        averaged=averaged,
        tokens=progress.tokens,
        tokens_per_second=statistics.median(speeds) if speeds else None,
        training_seconds=progress.seconds,
        translating_seconds=seconds,
        memory_bytes=memory,
        weights_sha256=weights_sha256(read_tensors(folder / MODEL / WEIGHTS)),
        hardware=_hardware(device),
        torch=torch.__version__,
        finished=datetime.now(UTC).isoformat(timespec="seconds"),
        left_empty=left_empty(sources, translations),
    )


def peak_memory(device: torch.device) -> int:
    """The most bytes held so far: on a GPU by tensors, elsewhere by the whole process."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _hardware(device: torch.device) -> str:
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{platform.machine()} {device.type}, {threads} thread{'s' * (threads > 1)} a trial"


def read_conditions(study: Path) -> Conditions | None:
    """What a study's trials have in common, if it has begun."""
    return _read(Conditions, study / STUDY)


def read_result(folder: Path) -> Result | None:
    """What a trial found, if it is done."""
    return _read(Result, folder / RESULT)


def _read(kind: type[T], path: Path) -> T | None:
    try:
        return TypeAdapter(kind).validate_json(path.read_bytes())
    except FileNotFoundError:
        return None
    except ValidationError as error:
        mistake = error.errors()[0]
        place = f"'{'.'.join(map(str, mistake['loc']))}': " if mistake["loc"] else ""
        hint = "to begin anew, remove its folder or choose another --out"
        raise ConfigError(path, f"not what a study writes: {place}{mistake['msg']}", hint=hint) from None


def last_step(folder: Path) -> dict[str, Any] | None:
    """Where a trial stands that is training."""
    try:
        tail = (folder / RUN / JOURNAL).read_bytes()[-2000:]
    except FileNotFoundError:
        return None
    for line in reversed(tail.split(b"\n")[1:-1]):
        event: dict[str, Any] = json.loads(line)
        if event["event"] == "step":
            return event
    return None


def _end_with_the_study() -> None:
    """When the study dies, its end of this pipe closes: save and stop, as if asked to."""
    os.read(sys.stdin.fileno(), 1)
    os.kill(os.getpid(), signal.SIGTERM)


def _wait_for_lock(folder: Path, own: ExitStack) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            own.enter_context(locked(folder))
            return
        except ModelError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def main() -> int:
    """FOLDER DEVICE THREADS; the exit code is 0, 1 with failed.json, or 128 and a signal."""
    folder, device, threads = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    threading.Thread(target=_end_with_the_study, daemon=True).start()
    torch.set_num_threads(threads)
    with ExitStack() as own:
        _wait_for_lock(folder, own)
        try:
            stopped = run_trial(folder, choose_device(device))
            return 128 + stopped if stopped else 0
        except DragomanError as error:
            reason = f"{error.what} ({error.where})"
        except (RuntimeError, MemoryError) as error:
            if not (isinstance(error, MemoryError) or is_out_of_memory(error)):
                raise
            reason = (str(error) or "not enough memory").splitlines()[0]
        print(f"failed: {reason}", file=sys.stderr)
        replace_file(folder / FAILED, json.dumps({"reason": reason}, ensure_ascii=False))
        return 1


if __name__ == "__main__":
    sys.exit(main())
