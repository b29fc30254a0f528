"""What a model is worth while it learns: loss without smoothing, BLEU, and a few translations to look at."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch

from dragoman.data.store import Data
from dragoman.decoding.translator import Translator
from dragoman.evaluation.metrics import plain_bleu
from dragoman.models.interface import Model
from dragoman.recipe import Recipe
from dragoman.training.schedule import Progress


@dataclass(frozen=True)
class Sample:
    """One sentence of the validation set with what the model makes of it."""

    source: str
    reference: str
    translation: str


@dataclass(frozen=True)
class Validation:
    """The result of one validation."""

    loss: float | None  # None where every pair is too long for the model
    bleu: float
    samples: Sequence[Sample]


def validate(model: Model, data: Data, recipe: Recipe) -> Validation:
    """Score and translate the validation set (greedily: it is done often)."""
    assert data.valid is not None
    pairs = [data.valid.pair(number) for number in range(len(data.valid))]
    sources = data.source_vocabulary.decode([source.tolist() for source, _ in pairs])
    references = data.target_vocabulary.decode([target.tolist() for _, target in pairs])
    decoding = recipe.decoding.model_copy(update={"beam": 1})
    vocabularies = (data.source_vocabulary, data.target_vocabulary)
    translator = Translator([model], *vocabularies, decoding, recipe.data.plain)
    if translator.is_plain:
        sources = translator.beginnings(references)
    was_training = model.training
    model.eval()
    with torch.inference_mode():
        loss = translator.loss(sources, references)
        translations = [each.text for each in translator.translate(sources)]
    model.train(was_training)
    shown = list(map(Sample, sources, references, translations))[: recipe.training.samples]
    return Validation(loss, plain_bleu(translations, references), shown)


def is_better(result: Validation, progress: Progress, by_loss: bool = False) -> bool:
    """Whether a validation beats the best so far; lines too short for BLEU leave it at zero, and the loss decides.

    So it does, if asked to, where a text has many right continuations.
    """
    if progress.best_score is None or (result.bleu > progress.best_score and not by_loss):
        return True
    losses = [math.inf if loss is None else loss for loss in (result.loss, progress.best_loss)]
    return (by_loss or result.bleu == progress.best_score) and losses[0] < losses[1]
