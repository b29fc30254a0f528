"""A model on disk is one folder: weights, recipe, the two SentencePiece models, and a card.

The card says what the model is, what it scored, and what every other file must hash to; nothing in the folder can run
code. Folders are written beside their place, made durable, and renamed: what has its name is whole.
A run folder stands wherever a model folder may: one of its checkpoints, each a model folder, is taken.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from dragoman import __version__
from dragoman.config import check, read_values
from dragoman.data.store import file_sha256
from dragoman.data.vocabulary import Vocabulary
from dragoman.durable import new_folder, replace_file
from dragoman.errors import FormatError, ModelError, RunError
from dragoman.models.interface import Model
from dragoman.recipe import Recipe

FORMAT = 1
CARD, RECIPE, WEIGHTS = "card.json", "recipe.toml", "weights.safetensors"
SOURCE, TARGET = "source.model", "target.model"
CHECKPOINTS = "checkpoints"

Card = dict[str, Any]
log = logging.getLogger("dragoman")


@dataclass(frozen=True)
class SavedModel:
    """A model folder, loaded."""

    folder: Path
    model: Model
    recipe: Recipe
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary
    card: Card


def load_model(path: Path, checkpoint: str | None = None) -> SavedModel:
    """Load a model folder, or a checkpoint ("best", "last" or a step) of a run folder, after verifying every byte."""
    folder = find_model(path, checkpoint)
    card = verify(folder)
    if "export" in card:
        raise ModelError(folder, f"an export for {card['export']['format']}, not a model")
    recipe = read_recipe_file(folder)
    source, target = read_vocabularies(folder, recipe)
    model = build_model(recipe, len(source), len(target))
    load_weights(model, folder)
    return SavedModel(folder, model.eval(), recipe, source, target, card)


def read_vocabularies(folder: Path, recipe: Recipe) -> tuple[Vocabulary, Vocabulary]:
    """The source's and the target's."""
    return _read_vocabulary(folder / SOURCE, recipe.data.source_nfkc), _read_vocabulary(folder / TARGET)


def read_recipe_file(folder: Path) -> Recipe:
    """The recipe a model was made with."""
    return check(Recipe, read_values(folder / RECIPE), folder / RECIPE)


def build_model(recipe: Recipe, source_size: int, target_size: int) -> Model:
    """A fresh model of a recipe; one vocabulary for both languages also means one embedding."""
    return recipe.model.build(target_size, None if recipe.data.shared else source_size)


def load_weights(model: Model, folder: Path) -> None:
    """Fill a model with the weights of a folder, which must be exactly its own."""
    tensors = read_tensors(folder / WEIGHTS)
    kept = model.kept()
    found = {name: tuple(tensor.shape) for name, tensor in tensors.items()}
    expected = {name: tuple(tensor.shape) for name, tensor in kept.items()}
    if found != expected:
        name = min(name for name in found.keys() | expected.keys() if found.get(name) != expected.get(name))
        what = f"tensor '{name}' should be {expected.get(name, 'absent')}, got {found.get(name, 'none')}"
        raise ModelError(folder / WEIGHTS, what)
    with torch.no_grad():
        for name, tensor in kept.items():
            tensor.copy_(tensors[name])


def save_model(
    folder: Path,
    model: Model,
    recipe: Recipe,
    vocabularies: tuple[Vocabulary, Vocabulary],
    card: Card,
    extra: Mapping[str, bytes | dict[str, Tensor]] | None = None,
    precision: torch.dtype = torch.float32,
) -> None:
    """Write a model folder, with any further files."""
    weights = {name: tensor.detach().to("cpu", precision).contiguous() for name, tensor in model.kept().items()}
    contents: dict[str, bytes | dict[str, Tensor]] = {
        WEIGHTS: weights,
        RECIPE: recipe.toml().encode(),
        SOURCE: vocabularies[0].proto,
        TARGET: vocabularies[1].proto,
        **(extra or {}),
    }
    card = {
        "format": FORMAT,
        "dragoman": __version__,
        "recipe": recipe.hash,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        **card,
    }
    with new_model_folder(folder) as new:
        for name, content in contents.items():
            if isinstance(content, bytes):
                (new / name).write_bytes(content)
            else:
                save_file(content, new / name)
        write_card(new, card | {"files": {name: file_sha256(new / name) for name in contents}})


@contextmanager
def new_model_folder(folder: Path) -> Iterator[Path]:
    """A folder that is whole or absent; why it cannot be written is said as a user can read it."""
    try:
        with new_folder(folder) as new:
            yield new
    except FileExistsError:
        raise ModelError(folder, "already exists", hint="choose another --out, or remove it first") from None
    except (PermissionError, NotADirectoryError) as error:
        raise ModelError(folder, f"cannot be written: {error.strerror}") from None
    except (OSError, SafetensorError) as error:
        free = shutil.disk_usage(folder.parent).free if folder.parent.is_dir() else 0
        raise RunError(folder, f"cannot be written: {error} ({free:,} bytes free)") from None


def write_card(folder: Path, card: Card) -> None:
    """Write or replace a card; it carries its own hash, so that it can be replaced in one rename."""
    card = {name: value for name, value in card.items() if name != "sha256"}
    replace_file(folder / CARD, _card_text(card | {"sha256": hashlib.sha256(_card_text(card).encode()).hexdigest()}))


def verify(folder: Path) -> Card:
    """The card of a folder in which every file is what the card says, or an error that names the first that is not."""
    card = read_card(folder)
    for name, expected in card["files"].items():
        if not (folder / name).is_file() or file_sha256(folder / name) != expected:
            raise ModelError(folder / name, "corrupt: it is not what was written", hint="copy the folder again")
    return card


def read_card(folder: Path) -> Card:
    """The card of a model folder, if it is whole."""
    try:
        text = (folder / CARD).read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        hint = "a model folder holds card.json and weights.safetensors; a run folder holds checkpoints"
        what = "no model here" if folder.is_dir() else "not a model folder" if folder.exists() else "no such folder"
        raise ModelError(folder, what, hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(folder / CARD, f"corrupt: {error}") from None
    try:
        card: Card = json.loads(text)
        bare = {name: value for name, value in card.items() if name != "sha256"}
        intact = text == _card_text(card) and card["sha256"] == hashlib.sha256(_card_text(bare).encode()).hexdigest()
    except (ValueError, AttributeError, KeyError):
        intact = False
    if not intact:
        raise ModelError(folder / CARD, "corrupt: it is not what was written", hint="copy the folder again")
    if card.get("format") != FORMAT or "files" not in card:
        what = f"written in format {card.get('format')} by dragoman {card.get('dragoman')}, this version reads {FORMAT}"
        raise FormatError(folder, what)
    return card


def find_model(path: Path, checkpoint: str | None = None) -> Path:
    """The model folder that a path means."""
    if not (path / CHECKPOINTS).is_dir():
        if checkpoint is not None:
            raise ModelError(path, "not a run folder, so it has no checkpoints to choose from")
        return path
    if checkpoint not in (None, "best", "last"):
        folder = path / CHECKPOINTS / f"step-{checkpoint}"
        if not folder.is_dir():
            known = ", ".join(str(step_of(each)) for each in checkpoints(path))
            raise ModelError(path, f"no checkpoint of step {checkpoint}", hint=f"there are: {known or 'none'}")
        return folder
    last = newest_good(path)
    best = read_card(last)["progress"]["best_step"]
    if checkpoint == "last" or best is None:
        return last
    folder = path / CHECKPOINTS / f"step-{best}"
    try:
        verify(folder)
    except ModelError as error:
        log.warning("%s; taking %s instead", error, last.name)
        return last
    return folder


def newest_good(run: Path) -> Path:
    """The newest checkpoint that verifies; corrupt ones are passed over with a warning."""
    for folder in reversed(checkpoints(run)):
        try:
            verify(folder)
            return folder
        except FormatError:
            raise  # nothing is wrong with it: going on from an older one would throw it away
        except ModelError as error:
            log.warning("%s; falling back to the checkpoint before", error)
    raise ModelError(run, "no complete checkpoint yet")


def checkpoints(run: Path) -> list[Path]:
    """Complete checkpoints, oldest first."""
    found = (folder for folder in (run / CHECKPOINTS).glob("step-*") if folder.name.removeprefix("step-").isdecimal())
    return sorted(found, key=step_of)


def step_of(folder: Path) -> int:
    """The step a checkpoint was taken at."""
    return int(folder.name.removeprefix("step-"))


def read_tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file."""
    try:
        return load_file(path)
    except (OSError, SafetensorError) as error:
        raise ModelError(path, f"corrupt: {error}") from None


def weights_sha256(tensors: Mapping[str, Tensor]) -> str:
    """One hash over names, dtypes, shapes and bytes of the tensors in name order, whatever file they stand in."""
    digest = hashlib.sha256()
    for name, tensor in sorted(tensors.items()):
        shape = ",".join(map(str, tensor.shape))
        digest.update(f"{name}\0{str(tensor.dtype).removeprefix('torch.')}\0{shape}\0".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _read_vocabulary(path: Path, nfkc: bool = False) -> Vocabulary:
    try:
        return Vocabulary(path.read_bytes(), nfkc)
    except RuntimeError as error:
        raise ModelError(path, f"corrupt: {error}") from None


def _card_text(card: Card) -> str:
    return json.dumps(card, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
