"""A translator with the engine that was asked for: the model as it is, or a copy converted for CTranslate2.

The copy lies in the model's folder, in `converted/`, named after what it was made of: another model is another copy,
and no file of the model itself is touched. Where nothing can be written, the copy is made elsewhere and forgotten.
"""

import hashlib
import json
import logging
import shutil
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

from dragoman.config import check
from dragoman.decoding.engines import Ctranslate2Engine
from dragoman.decoding.translator import Translator, assemble
from dragoman.errors import ConfigError, DragomanError, ModelError
from dragoman.export.formats import check_installed, export
from dragoman.export.support import ExportPrecision, unsupported
from dragoman.models.interface import choose_device
from dragoman.recipe import DecodingConfig
from dragoman.saved import (
    RECIPE,
    SOURCE,
    TARGET,
    WEIGHTS,
    Card,
    SavedModel,
    find_model,
    load_model,
    read_card,
    read_recipe_file,
    read_vocabularies,
    verify,
)

EngineName = Literal["auto", "torch", "ctranslate2"]
CONVERTED = "converted"
log = logging.getLogger("dragoman")


def load(
    path: str | Path,
    *others: str | Path,
    device: str = "auto",
    checkpoint: str | None = None,
    decoding: Mapping[str, Any] | None = None,
    engine: EngineName = "torch",
) -> Translator:
    """A translator from a model or run folder; further folders join it as an ensemble.

    Values in `decoding`, such as {"beam": 1}, replace those of the recipe. The engine "ctranslate2" multiplies in 8
    bits on a CPU, unless `decoding` has another precision; "auto" takes it where it is installed and nothing speaks
    against it. A folder written by `dragoman export --format ctranslate2` will do for a model, with this engine alone.
    """
    folder, given = find_model(Path(path), checkpoint), decoding or {}
    made_for = read_card(folder).get("export", {}).get("format")
    if made_for is not None:
        return _load_converted(folder, made_for, others, device, given, engine)
    saved = [load_model(folder), *(load_model(Path(each)) for each in others)]
    if engine == "torch" or (engine == "auto" and not _suits(saved, device, given)):
        return assemble(saved, device, given)
    if others:
        raise ConfigError("--engine ctranslate2", "takes one model, not an ensemble")
    check_installed("ctranslate2", "--engine ctranslate2")
    check(DecodingConfig, saved[0].recipe.decoding.model_dump() | dict(given), "decoding")
    try:
        converted = converted_copy(saved[0], _precision(given, _kind(device)), device)
    except ModelError as error:
        if engine == "ctranslate2":
            raise
        log.warning("%s; computing with torch instead", error)
        return assemble(saved, device, given)
    # The model stays, for attention and for drawing, in its own precision.
    translator = assemble(saved, device, {name: value for name, value in given.items() if name != "precision"})
    translator.engine = converted
    return translator


def _suits(saved: list[SavedModel], device: str, decoding: Mapping[str, Any]) -> bool:
    """Whether CTranslate2 is faster and nothing is lost: on a CPU, where no other precision was asked for."""
    is_asked_for = "precision" in decoding or len(saved) > 1
    is_possible = find_spec("ctranslate2") is not None and not unsupported(saved[0].recipe, "ctranslate2")
    return is_possible and not is_asked_for and _kind(device) == "cpu"


def _kind(device: str) -> str:
    return choose_device(device).type


def _precision(decoding: Mapping[str, Any], kind: str) -> ExportPrecision:
    wanted = decoding.get("precision")
    if wanted in (None, "auto"):
        return "int8" if kind == "cpu" else "float16"
    if wanted != "float32":
        raise ConfigError("--engine ctranslate2", f"multiplies in float32, or as it sees fit, got {wanted}")
    return "float32"


def _load_converted(
    folder: Path, made_for: str, others: tuple[str | Path, ...], device: str, given: Mapping[str, Any], engine: str
) -> Translator:
    """A translator without the model: all there is was converted."""
    if made_for != "ctranslate2":
        raise ModelError(
            folder, f"an export for {made_for}: only a model, or an export for ctranslate2, translates here"
        )
    if engine == "torch" or others:
        raise ModelError(folder, "an export for ctranslate2: it takes --engine ctranslate2, and no model beside it")
    check_installed("ctranslate2", "--engine ctranslate2")
    converted, recipe = _open(folder, verify(folder), device), read_recipe_file(folder)
    if given.get("precision", converted.precision) not in ("auto", converted.precision):
        raise ConfigError("--precision", f"{folder} holds {converted.precision}, got {given['precision']}")
    config = check(DecodingConfig, recipe.decoding.model_dump() | dict(given), "decoding")
    return Translator([], *converted.vocabularies, config, engine=converted)


def _device_of(kind: str) -> str:
    if kind not in ("cpu", "cuda"):
        raise ConfigError("--engine ctranslate2", f"computes on cpu and cuda, got --device {kind}")
    return kind


def converted_copy(saved: SavedModel, precision: ExportPrecision, device: str) -> Ctranslate2Engine:
    """The engine over the copy that lies there, every byte verified, else over a new one, kept if it can be."""
    place = saved.folder / CONVERTED / f"ctranslate2-{precision}-{_origin(saved.card)}"
    card = _card_if_whole(place)
    if card is None:
        try:
            shutil.rmtree(place, ignore_errors=True)
            export(saved, "ctranslate2", precision, place)
            for older in place.parent.glob(f"ctranslate2-{precision}-*"):
                if older != place:
                    shutil.rmtree(older, ignore_errors=True)
        except (DragomanError, OSError) as error:
            log.debug("no copy is kept: %s", error)
        card = _card_if_whole(place)  # of this process, or of another that was faster
    if card is not None:
        return _open(place, card, device)
    with TemporaryDirectory() as elsewhere:
        copy = Path(elsewhere) / "converted"
        export(saved, "ctranslate2", precision, copy)
        return _open(copy, read_card(copy), device)


def _open(folder: Path, card: Card, device: str) -> Ctranslate2Engine:
    """The engine over a folder that was exported for it, and is what its card says."""
    precision, recipe = card["export"]["precision"], read_recipe_file(folder)
    vocabularies = read_vocabularies(folder, recipe)
    engine = Ctranslate2Engine(folder, vocabularies, recipe.model.longest, precision, _device_of(_kind(device)))
    _ = engine.translator  # in memory: the folder may go
    return engine


def _origin(card: Card) -> str:
    """Names what a copy was made of: weights, recipe and vocabularies, not the scores in the card."""
    parts = {name: card["files"][name] for name in (WEIGHTS, RECIPE, SOURCE, TARGET)}
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def _card_if_whole(folder: Path) -> Card | None:
    try:
        return verify(folder)
    except ModelError:
        return None
