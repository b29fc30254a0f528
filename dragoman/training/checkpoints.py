"""A run folder and its checkpoints: locked while a run uses it, written whole or not at all, pruned after a save.

RUN/recipe.toml          the resolved recipe
RUN/journal.jsonl        what happened
RUN/checkpoints/step-N/  a model folder, with the optimiser's moments and random states beside the weights
"""

import fcntl
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import torch
from torch import Tensor

from dragoman.data.vocabulary import Vocabulary
from dragoman.durable import beside, strays
from dragoman.errors import ConfigError, ModelError
from dragoman.models.interface import Model
from dragoman.recipe import Recipe
from dragoman.saved import (
    CHECKPOINTS,
    RECIPE,
    Card,
    checkpoints,
    load_weights,
    read_card,
    read_tensors,
    save_model,
    step_of,
)
from dragoman.training.journal import JOURNAL
from dragoman.training.schedule import Progress

STATE = "training.safetensors"
LOCK = "lock"
OURS = {LOCK, CHECKPOINTS, RECIPE, JOURNAL, "data", "tensorboard"}


class RunFolder:
    """Where one run keeps everything."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def has_checkpoints(self) -> bool:
        """Whether there is anything to resume."""
        return bool(checkpoints(self.path)) if (self.path / CHECKPOINTS).is_dir() else False

    @property
    def is_ours(self) -> bool:
        """Whether there is nothing in the folder but what a run writes."""
        if not self.path.is_dir():
            return False
        names = {each.name for each in self.path.iterdir()} - {stray.name for stray in strays(self.path)}
        return not names or LOCK in names <= OURS

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other run out, and sweep away what a process that was killed left behind."""
        with locked(self.path):
            (self.path / CHECKPOINTS).mkdir(exist_ok=True)
            for stray in strays(self.path) + strays(self.path / CHECKPOINTS):
                shutil.rmtree(stray) if stray.is_dir() else stray.unlink()
            yield

    def forget_after(self, step: int) -> None:
        """Remove checkpoints behind the one a run goes on from: they did not verify."""
        for folder in checkpoints(self.path):
            if step_of(folder) > step:
                _remove(folder)

    def save(
        self,
        model: Model,
        optimizer: torch.optim.Optimizer,
        recipe: Recipe,
        vocabularies: tuple[Vocabulary, Vocabulary],
        card: Card,
        progress: Progress,
    ) -> Path:
        """Write a checkpoint, then let the oldest ones go; the best one stays."""
        folder = self.path / CHECKPOINTS / f"step-{progress.step}"
        is_due = progress.step % recipe.training.save_every == 0
        card = card | {"step": progress.step, "is_due": is_due, "progress": asdict(progress)}
        save_model(folder, model, recipe, vocabularies, card, {STATE: _training_state(model, optimizer)})
        # What was saved between two that were due goes: averages shall not depend on interruptions.
        due = [old for old in checkpoints(self.path) if old == folder or _was_due(old)]
        staying = {progress.best_step, *map(step_of, due[-recipe.training.keep_last :])}
        for old in checkpoints(self.path):
            if step_of(old) not in staying:
                _remove(old)
        return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Make a folder this process's own; the lock of a process that died is free by itself."""
    folder.mkdir(parents=True, exist_ok=True)
    handle = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.read(handle, 200).decode(errors="replace").strip()
        os.close(handle)
        raise ModelError(folder, f"in use by another run ({holder})", hint="choose another --out") from None
    try:
        os.truncate(handle, 0)
        os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        os.truncate(handle, 0)
        os.close(handle)


def check_owned(folder: Path, mark: str, whose: str) -> None:
    """Whoever has a folder to himself writes into an empty one or into his own, known by the file that marks it."""
    names = {each.name for each in folder.iterdir()} - {LOCK} if folder.is_dir() else set()
    if (names and mark not in names) or (folder.exists() and not folder.is_dir()):
        raise ConfigError(folder, f"exists and is not {whose}", hint="choose another --out")


def restore(folder: Path, model: Model, optimizer: torch.optim.Optimizer) -> Progress:
    """Fill model, optimiser and random generators from a checkpoint, and say where the run stood."""
    load_weights(model, folder)
    state = read_tensors(folder / STATE)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            key: state[f"{key}.{name}"].to(parameter.device) for key in ("step", "exp_avg", "exp_avg_sq")
        }
    torch.set_rng_state(state["random.cpu"])
    if torch.cuda.is_available() and "random.cuda" in state:
        torch.cuda.set_rng_state(state["random.cuda"])
    return Progress(**read_card(folder)["progress"])


def _training_state(model: Model, optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    state = {"random.cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["random.cuda"] = torch.cuda.get_rng_state()
    for name, parameter in model.named_parameters():
        for key, value in optimizer.state[parameter].items():
            state[f"{key}.{name}"] = value.detach().cpu().contiguous()
    return state


def _was_due(folder: Path) -> bool:
    try:
        return bool(read_card(folder)["is_due"])
    except ModelError:
        return True  # nothing can be said of a damaged one; its turn to go comes


def _remove(folder: Path) -> None:
    # Renamed first, so that no half-deleted folder is ever taken for a checkpoint.
    doomed = beside(folder)
    folder.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)
