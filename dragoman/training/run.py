"""Set up a run: a fresh one, one that goes on where it stopped, or one that begins with another model's weights."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch
from rich.console import Console

from dragoman.data.prepare import DataConfig, encode_anew
from dragoman.data.store import Data, open_data
from dragoman.errors import ConfigError, DataError, DragomanError, ModelError
from dragoman.recipe import BUDGETS, Recipe
from dragoman.saved import SavedModel, build_model, load_model, newest_good, read_card, read_recipe_file
from dragoman.training.checkpoints import RunFolder
from dragoman.training.loop import Outcome, train

# What may change when a run goes on: how long it goes on, and what it says and keeps meanwhile.
MAY_CHANGE = {*BUDGETS, "save_every", "keep_last", "patience", "samples"}


def run_training(
    recipe: Recipe,
    data_folder: Path,
    out: Path,
    device: torch.device,
    console: Console,
    resume: bool = False,
    start: Path | None = None,
) -> Outcome:
    """Train as the recipe says; the run folder is locked meanwhile."""
    run = RunFolder(out)
    _check_folder(run, resume)
    data = given = open_data(data_folder)
    begun = load_model(start) if start else None
    is_fresh = not out.exists()
    # Inside the lock: only the run that holds the folder may remove it.
    with run.lock(), _no_trace_of_a_mistake(run, is_fresh):
        _check_folder(run, resume)  # again: another run may have come and gone meanwhile
        if begun:
            if not resume:
                shutil.rmtree(out / "data", ignore_errors=True)  # of a run that came to nothing
            data = _in_the_words_of(begun, given, out / "data")
            shape = begun.recipe.model.model_dump() | {"dropout": recipe.model.dropout}
            recipe = recipe.with_values({"model": shape, "data": _words_of(begun, given).model_dump()}, start)
            console.out(f"{start} gives weights, shape and vocabulary, the recipe the rest", highlight=False)
        else:
            recipe = recipe.with_values({"data": data.manifest.config}, data_folder)
        checkpoint = newest_good(out) if resume else None
        if checkpoint:
            _check_same(checkpoint, recipe, given)
        torch.manual_seed(recipe.training.seed)
        model = build_model(recipe, len(data.source_vocabulary), len(data.target_vocabulary))
        if begun:
            model.load_state_dict(begun.model.state_dict())
        card = {"languages": data.manifest.languages, "data": given.manifest.sha256}
        return train(run, recipe, data, model.to(device), card, checkpoint, console)


@contextmanager
def _no_trace_of_a_mistake(run: RunFolder, is_fresh: bool) -> Iterator[None]:
    """A fresh run that is refused leaves no folder behind; one that has saved anything was not refused."""
    try:
        yield
    except DragomanError as error:
        if is_fresh and not run.has_checkpoints and error.exit_code == DragomanError.exit_code:
            shutil.rmtree(run.path, ignore_errors=True)
        raise


def _check_folder(run: RunFolder, resume: bool) -> None:
    if resume and not run.has_checkpoints:
        raise ModelError(run.path, "nothing to resume: no checkpoint there")
    if not resume and run.has_checkpoints:
        hint = "go on with --resume, choose another --out, or remove the folder"
        raise ModelError(run.path, "holds a run already", hint=hint)
    if not resume and run.path.exists() and not run.is_ours:
        raise ModelError(run.path, "is in use for something else", hint="choose another --out")


def _check_same(checkpoint: Path, recipe: Recipe, data: Data) -> None:
    """A run that goes on is the same run: the same recipe, but for what may change, on the same data."""
    before = read_recipe_file(checkpoint)
    changed = [
        f"'{section}.{key}' was {old!r}, got {getattr(getattr(recipe, section), key)!r}"
        for section, values in before.model_dump().items()
        for key, old in values.items()
        if key not in MAY_CHANGE and getattr(getattr(recipe, section), key) != old
    ]
    if changed:
        raise ConfigError(checkpoint.parent.parent, "\n".join(changed), hint="a run goes on with its own recipe")
    if read_card(checkpoint)["data"] != data.manifest.sha256:
        hint = "train on it in a new folder: dragoman train ... --from THIS_RUN --out NEW"
        raise DataError(checkpoint.parent.parent, "the data is not what the run was trained on", hint=hint)


def _words_of(begun: SavedModel, data: Data) -> DataConfig:
    """How the model's text became pieces; whether there is a source is for the new text to say."""
    return begun.recipe.data.model_copy(update={"plain": data.manifest.config.get("plain", False)})


def _in_the_words_of(begun: SavedModel, data: Data, folder: Path) -> Data:
    """The data in the pieces of the model that goes on."""
    vocabularies = (begun.source_vocabulary, begun.target_vocabulary)
    if (data.source_vocabulary.proto, data.target_vocabulary.proto) == tuple(v.proto for v in vocabularies):
        return data
    if not folder.exists():
        encode_anew(data, vocabularies, _words_of(begun, data), folder)
    return open_data(folder)
