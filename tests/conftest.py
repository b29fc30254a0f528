"""What tests share: a corpus of reversed digits, and a model that was really trained on it."""

import fcntl
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

if TYPE_CHECKING:
    from dragoman.decoding.translator import Translator

# Two workers share two cores: more threads than cores each would only wait for one another.
torch.set_num_threads(1)
# A shell that starts the tests in the background lets them, and so the processes they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)

REVERSER = [
    "model.layers=2",
    "model.width=64",
    "model.hidden=128",
    "model.heads=4",
    "training.batch_tokens=768",
    "training.row_length=64",
    "training.warmup=60",
    "training.peak=4e-3",
]


@pytest.fixture(scope="session")
def run_dragoman() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Runs the command line in a process of its own, as a user would."""

    def run(*words: str | Path, input: str | None = None, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "dragoman.cli", *map(str, words)]
        return subprocess.run(command, input=input, cwd=cwd, capture_output=True, text=True, timeout=300)

    return run


def write_reversals(folder: Path, name: str, numbers: Sequence[str]) -> None:
    (folder / f"{name}.fwd").write_text("".join(f"{number}\n" for number in numbers))
    (folder / f"{name}.rev").write_text("".join(f"{number[::-1]}\n" for number in numbers))


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory: pytest.TempPathFactory, worker_id: str) -> Path:
    """One folder for all test workers of a session."""
    base = tmp_path_factory.getbasetemp()
    return base if worker_id == "master" else base.parent


@pytest.fixture(scope="session")
def reversals(shared_folder: Path) -> Path:
    """Numbers and the same numbers backwards: train, valid and test files, and a data folder; made once."""
    folder = shared_folder / "reversals"
    with (shared_folder / "reversals.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _make_reversals(folder)
    return folder


def _make_reversals(folder: Path) -> None:
    from dragoman.data.prepare import Corpus, DataConfig, prepare

    seed = random.SystemRandom().randrange(1_000_000)  # fresh each time, so that no bound fits one seed by luck
    print("reversals seed", seed)
    draw = random.Random(seed)
    new = folder.with_name("reversals.new")
    new.mkdir()
    numbers = ["".join(draw.choices("0123456789", k=draw.randint(2, 9))) for _ in range(5000)]
    numbers = list(dict.fromkeys(numbers))
    for name, part in (("test", numbers[:100]), ("valid", numbers[100:150]), ("train", numbers[150:])):
        write_reversals(new, name, part)
    train, valid = (Corpus([new / f"{name}.fwd"], [new / f"{name}.rev"]) for name in ("train", "valid"))
    config = DataConfig(vocabulary=11, algorithm="bpe")
    prepare(train, valid, ("en", "de"), config, new / "data", lambda text: None)
    new.rename(folder)


@pytest.fixture(scope="session")
def reverser(shared_folder: Path, reversals: Path) -> Path:
    """A run that learned to reverse digits; trained once a session."""
    from rich.console import Console

    from dragoman.recipe import read_recipe
    from dragoman.training.checkpoints import RunFolder
    from dragoman.training.run import run_training

    run = shared_folder / "reverser"
    with (shared_folder / "reverser.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not RunFolder(run).has_checkpoints:
            recipe = read_recipe("tiny", [*REVERSER, "training.steps=700", "training.save_every=350"])
            run_training(recipe, reversals / "data", run, torch.device("cpu"), Console(quiet=True))
    return run


@pytest.fixture(scope="module")
def translator(reverser: Path) -> "Translator":
    """What that run learned in the end."""
    import dragoman

    return dragoman.load(reverser, checkpoint="last", device="cpu")


@pytest.fixture(scope="module")
def numbers(reversals: Path) -> list[str]:
    """Numbers that it never saw."""
    return (reversals / "test.fwd").read_text().split()
