"""Averaging the last checkpoints of a run into one model (section 6.1)."""

from pathlib import Path

import torch

from dragoman.errors import ModelError
from dragoman.saved import (
    CHECKPOINTS,
    WEIGHTS,
    checkpoints,
    load_model,
    read_recipe_file,
    read_tensors,
    save_model,
    step_of,
    verify,
)


def average_last(run: Path, count: int, out: Path, half: bool = False, about: str | None = None) -> list[int]:
    """Write the mean of the last checkpoints' weights as a model, in half as many bytes if so asked.

    Returns their steps; a line about the model is kept in its card.
    """
    if not (run / CHECKPOINTS).is_dir():
        raise ModelError(run, "not a run folder: it has no checkpoints to average")
    folders = checkpoints(run)
    # The best checkpoint is kept longer than the others, and is not one of the last.
    window = read_recipe_file(folders[-1]).training.keep_last if folders else 0
    last = folders[-window:] if window else []
    if len(last) < count:
        hint = f"use --last {len(last)}, or train with more and closer checkpoints (training.save_every)"
        raise ModelError(run, f"too few checkpoints are kept, {len(last)}, got --last {count}", hint=hint)
    folders = last[-count:]
    for folder in folders:
        verify(folder)
    newest = load_model(folders[-1])
    with torch.no_grad():
        sums = {name: tensor.double() for name, tensor in read_tensors(folders[0] / WEIGHTS).items()}
        for folder in folders[1:]:
            for name, tensor in read_tensors(folder / WEIGHTS).items():
                sums[name] += tensor
        for name, tensor in newest.model.kept().items():
            tensor.copy_(sums[name] / count)
    steps = [step_of(folder) for folder in folders]
    card = {name: newest.card[name] for name in ("languages", "data", "step")} | {"averaged": steps}
    if about is not None:
        card["about"] = about
    vocabularies = (newest.source_vocabulary, newest.target_vocabulary)
    precision = torch.float16 if half else torch.float32
    save_model(out, newest.model, newest.recipe, vocabularies, card, precision=precision)
    return steps
