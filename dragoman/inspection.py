"""What a recipe or a model is: parameters by part, memory, operations a token, step and scores."""

from collections import Counter
from pathlib import Path
from typing import Any

import torch

from dragoman.data.vocabulary import BYTES, SPECIALS
from dragoman.models.interface import Model
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import WEIGHTS, build_model, find_model, load_model, read_card, read_tensors, weights_sha256

ADAM_COPIES = 4  # weights, gradients and two moments, four bytes each


def inspect_recipe(name: str, vocabulary: int | None) -> dict[str, Any]:
    """Count what a recipe makes, without making it."""
    recipe = read_recipe(name)
    pieces = vocabulary or recipe.data.vocabulary + SPECIALS + (BYTES if recipe.data.byte_fallback else 0)
    with torch.device("meta"):
        model = build_model(recipe, pieces, pieces)
    return {"recipe": recipe.hash, "vocabulary": pieces, **_sizes(model, recipe)}


def inspect_model(path: Path, checkpoint: str | None) -> dict[str, Any]:
    """What is in a model folder, or in the newest complete checkpoint of a run, while it runs too."""
    is_run = (path / "checkpoints").is_dir()
    folder = find_model(path, checkpoint or ("last" if is_run else None))
    saved = load_model(folder)
    card = {name: value for name, value in saved.card.items() if name not in ("files", "format", "sha256", "progress")}
    progress = saved.card.get("progress", {})
    return {
        **card,
        "folder": str(folder),
        "weights_sha256": weights_sha256(read_tensors(folder / WEIGHTS)),
        "best": _best(folder, progress) if progress else None,
        "vocabulary": len(saved.target_vocabulary),
        **_sizes(saved.model, saved.recipe),
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
    """The same for people."""
    lines = []
    for name, value in found.items():
        if isinstance(value, dict):
            lines.append(f"{name}:")
            lines += [f"  {key:<24}{_format(each)}" for key, each in value.items()]
        else:
            lines.append(f"{name:<26}{_format(value)}")
    return "\n".join(lines)


def _sizes(model: Model, recipe: Recipe) -> dict[str, Any]:
    parts: Counter[str] = Counter()
    for name, parameter in model.named_parameters():
        parts[name.split(".")[0]] += parameter.numel()
    total = sum(parts.values())
    embeddings = sum(count for part, count in parts.items() if "embedding" in part or "positions" in part)
    projection = model.projection.numel()
    return {
        "parameters": total,
        "parts": dict(parts),
        "memory_bytes": {"weights": 4 * total, "training": 4 * ADAM_COPIES * total},
        # Two operations a weight, counted once (a Neural GPU uses it at every step); what attention multiplies, which
        # grows with the sentence, is not counted.
        "operations_per_token": {"forward": 2 * (total - embeddings + projection)},
    }


def _format(value: Any) -> str:
    match value:
        case [{"bleu": _, "test": _}, *_]:  # reports of evaluations
            return "; ".join(f"{each['test']}: BLEU {each['bleu']['score']:.2f}" for each in value)
        case int():
            return f"{value:,}"
        case float():
            return f"{value:.2f}"
        case _:
            return str(value)
