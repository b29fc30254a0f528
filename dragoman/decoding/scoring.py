"""Forced scoring: how likely does a model find a translation that is already there?

Axes: B rows, T target positions.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from dragoman.batch import PAD, Batch
from dragoman.decoding.search import average, length_penalty
from dragoman.models.interface import Model

Ids = Sequence[int]
FEWEST_TOKENS = 16  # that a sentence counts for: a short one, too, has its row of logits and its cache


@dataclass(frozen=True)
class Score:
    """The log-probability of one translation, and the number of pieces (EOS included) it is spread over."""

    log_probability: float
    pieces: int

    def normalised(self, alpha: float) -> float:
        """The score that beam search reports."""
        return self.log_probability / float(length_penalty(self.pieces, alpha))


@torch.inference_mode()
def score(
    models: Sequence[Model], sources: Sequence[Ids], targets: Sequence[Ids], tokens_at_once: int = 4096
) -> list[Score]:
    """The score of each pair, in order; an ensemble's log-probabilities are averaged piece by piece."""
    scores: list[Score | None] = [None] * len(sources)
    for numbers in group_by_length([len(s) + len(t) for s, t in zip(sources, targets, strict=True)], tokens_at_once):
        batch = Batch.of([sources[n] for n in numbers], [targets[n] for n in numbers]).to(models[0].device)
        together = average([model.project(model(batch)).float().log_softmax(-1) for model in models])
        pieces = together.gather(2, batch.labels[:, :, None])[:, :, 0].masked_fill(batch.labels == PAD, 0.0)
        for number, total in zip(numbers, pieces.sum(1).tolist(), strict=True):
            scores[number] = Score(total, len(targets[number]) + 1)
    return [each for each in scores if each is not None]


def group_by_length(lengths: Sequence[int], tokens_at_once: int) -> Iterator[list[int]]:
    """Groups of sentences of like length, longest first, each no larger than a number of tokens."""
    group: list[int] = []
    for number in sorted(range(len(lengths)), key=lambda number: -lengths[number]):
        if group and (len(group) + 1) * max(lengths[group[0]], FEWEST_TOKENS) > tokens_at_once:
            yield group
            group = []
        group.append(number)
    if group:
        yield group
