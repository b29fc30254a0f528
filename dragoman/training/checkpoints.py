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
from dragoman.errors import ModelError, RunError
from dragoman.models.interface import Model
from dragoman.recipe import Recipe
from dragoman.saved import (
    CHECKPOINTS,
    Card,
    checkpoints,
    load_weights,
    read_card,
    read_tensors,
    save_model,
    step_of,
)
from dragoman.training.schedule import Progress

STATE = "training.safetensors"


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
        """Whether the folder is empty, or was begun as a run."""
        return self.path.is_dir() and ((self.path / "lock").is_file() or not any(self.path.iterdir()))

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep every other run out; the lock of a process that died is free by itself."""
        try:
            (self.path / CHECKPOINTS).mkdir(parents=True, exist_ok=True)
            handle = os.open(self.path / "lock", os.O_RDWR | os.O_CREAT)
        except OSError as error:
            raise RunError(self.path, f"cannot be written: {error.strerror}") from None
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.read(handle, 200).decode(errors="replace").strip()
            os.close(handle)
            raise ModelError(self.path, f"in use by another run ({holder})", hint="choose another --out") from None
        try:
            os.truncate(handle, 0)
            os.write(handle, f"process {os.getpid()} on {socket.gethostname()}".encode())
            self._sweep()
            yield
        finally:
            os.truncate(handle, 0)
            os.close(handle)

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
        if not folder.exists():
            state = _training_state(model, optimizer)
            card = card | {"step": progress.step, "progress": asdict(progress)}
            save_model(folder, model, recipe, vocabularies, card, {STATE: state})
        for old in checkpoints(self.path)[: -recipe.training.keep_last]:
            if step_of(old) != progress.best_step:
                # Renamed first, so that no half-deleted folder is ever taken for a checkpoint.
                doomed = old.with_name(f".{old.name}.old")
                old.rename(doomed)
                shutil.rmtree(doomed, ignore_errors=True)
        return folder

    def _sweep(self) -> None:
        """Remove what a process that was killed left half-written or half-deleted."""
        for stray in (self.path / CHECKPOINTS).glob(".step-*"):
            shutil.rmtree(stray, ignore_errors=True)


def restore(folder: Path, model: Model, optimizer: torch.optim.Optimizer) -> Progress:
    """Fill model, optimiser and random generators from a checkpoint, and say where the run stood."""
    load_weights(model, folder)
    state = read_tensors(folder / STATE)
    for name, parameter in model.named_parameters():
        optimizer.state[parameter] = {
            key: state[f"{key}.{name}"].to(device=parameter.device if key != "step" else None)
            for key in ("step", "exp_avg", "exp_avg_sq")
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
