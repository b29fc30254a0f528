"""What a recipe or a model is: its kind and shape, parameters by part, memory, operations a token, step and scores."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from dragoman.data.vocabulary import BYTES, SPECIALS
from dragoman.models.interface import Model
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import WEIGHTS, build_model, find_model, load_model, read_card, read_tensors, weights_sha256

SHAPE = ("kind", "layers", "decoder_layers", "width", "heads")  # as far as a model of this kind has them
# Of a card: what is for programs, and what is said elsewhere.
INTERNAL = ("files", "format", "sha256", "progress", "is_due", "parameters", "languages")
ADAM_COPIES = 4  # weights, gradients and two moments, four bytes each


def inspect_recipe(name: str, vocabulary: int | None) -> dict[str, Any]:
    """Count what a recipe makes, without making it."""
    recipe = read_recipe(name)
    pieces = vocabulary or recipe.data.vocabulary + SPECIALS + (BYTES if recipe.data.byte_fallback else 0)
    with torch.device("meta"):
        model = build_model(recipe, pieces, pieces)
    return {**_shape(model, recipe, pieces, pieces), **_sizes(model), "recipe": recipe.hash}


def inspect_model(path: Path, checkpoint: str | None) -> dict[str, Any]:
    """What is in a model folder, or in the newest complete checkpoint of a run, while it runs too."""
    is_run = (path / "checkpoints").is_dir()
    folder = find_model(path, checkpoint or ("last" if is_run else None))
    saved = load_model(folder)
    progress, weights = saved.card.get("progress", {}), read_tensors(folder / WEIGHTS)
    return {
        **_shape(saved.model, saved.recipe, len(saved.source_vocabulary), len(saved.target_vocabulary)),
        "languages": saved.card.get("languages"),
        "precision": " and ".join(sorted({str(each.dtype).removeprefix("torch.") for each in weights.values()})),
        "step": saved.card.get("step"),
        "best": _best(folder, progress) if progress.get("best_step") is not None else None,
        **_sizes(saved.model),
        **{name: value for name, value in saved.card.items() if name not in INTERNAL},
        "folder": str(folder),
        "weights_sha256": weights_sha256(weights),
    }


def _best(folder: Path, progress: dict[str, Any]) -> dict[str, Any]:
    """The run's best checkpoint with what `dragoman evaluate RUN` kept in its card."""
    step = progress["best_step"]
    best = folder.with_name(f"step-{step}")
    return {
        "step": step,
        "bleu": progress["best_score"],
        "scores": read_card(best).get("scores", []) if best.is_dir() else [],
    }


def summary(found: dict[str, Any]) -> str:
    """The same for people, without what there is none of."""
    lines = []
    for name, value in found.items():
        if value in (None, []):
            continue
        if isinstance(value, dict):
            lines.append(f"{_words(name)}:")
            lines += [f"  {_words(key):<24}{_format(each)}" for key, each in value.items() if each not in (None, [])]
        else:
            lines.append(f"{_words(name):<26}{_format(value)}")
    return "\n".join(lines)


def _shape(model: Model, recipe: Recipe, source: int, target: int) -> dict[str, Any]:
    shape = {name: value for name in SHAPE if (value := getattr(recipe.model, name, None)) is not None}
    parameters = sum(parameter.numel() for parameter in model.parameters())
    apart = {} if recipe.data.shared else {"source_vocabulary": source}
    return {**shape, "parameters": parameters, **apart, "vocabulary": target}


def _sizes(model: Model) -> dict[str, Any]:
    parts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        parts[name.split(".")[0]] += parameter.numel()
    total = sum(parts.values())
    embeddings = sum(count for part, count in parts.items() if "embedding" in part or "positions" in part)
    projection = model.projection.numel()
    return {
        "parts": dict(parts),
        "memory_bytes": {"weights": 4 * total, "training": 4 * ADAM_COPIES * total},
        # Two operations a weight, counted once (a Neural GPU uses it at every step); what attention multiplies, which
        # grows with the sentence, is not counted.
        "operations_per_token": {"forward": 2 * (total - embeddings + projection)},
    }


def _words(name: str) -> str:
    return name.replace("_", " ")


def _format(value: Any) -> str:
    match value:
        case [{"bleu": _, "test": _}, *_]:  # reports of evaluations
            return "; ".join(f"{each['test']}: BLEU {each['bleu']['score']:.2f}" for each in value)
        case [str() | None, *_]:  # languages; plain text has but one
            return " -> ".join(each for each in value if each) or "unknown"
        case [int(), *_]:  # steps that were averaged
            return ", ".join(f"{each:,}" for each in value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            return str(value)
