"""Sampling: draw each next piece from the model's own distribution, sharpened or cut if asked.

Axes: B sentences, N hypotheses, V vocabulary.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from dragoman.batch import BOS, EOS, PAD, Side
from dragoman.decoding.search import NEVER, Ensemble, Hypothesis, forced_pieces, length_penalty, output_limits
from dragoman.errors import ConfigError
from dragoman.kernels.attention import growing
from dragoman.models.interface import Model


@dataclass(frozen=True)
class Sampling:
    """How to draw: temperature below 1 sharpens, top_k and top_p cut what is unlikely."""

    temperature: float = 1.0
    top_k: int | None = None
    top_p: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.temperature < math.inf:
            raise ConfigError("temperature", f"should be more than 0, got {self.temperature}")
        if self.top_k is not None and self.top_k < 1:
            raise ConfigError("top_k", f"should be at least 1, got {self.top_k}")
        if self.top_p is not None and not 0 <= self.top_p <= 1:
            raise ConfigError("top_p", f"should be between 0 and 1, got {self.top_p}")


def narrow(log_probabilities: Float[Tensor, "N V"], how: Sampling) -> Float[Tensor, "N V"]:
    """The distribution to draw from, as probabilities that sum to one."""
    # Relative to the likeliest, so that no temperature divides beyond what a float holds.
    sharpened = (log_probabilities - log_probabilities.amax(-1, keepdim=True)) / how.temperature
    if how.top_k is not None:
        smallest = sharpened.topk(min(how.top_k, sharpened.shape[-1])).values[:, -1:]
        sharpened = sharpened.masked_fill(sharpened < smallest, -torch.inf)
    probabilities = sharpened.softmax(-1)
    if how.top_p is not None:
        ordered, order = probabilities.sort(descending=True)
        # A piece stays while those before it have not yet reached top_p, and the first always.
        reached = (ordered.cumsum(-1) - ordered >= how.top_p) & (torch.arange(ordered.shape[1]) > 0).to(order.device)
        dropped = torch.zeros_like(reached).scatter(1, order, reached)
        probabilities = probabilities.masked_fill(dropped, 0.0)
    return probabilities / probabilities.sum(-1, keepdim=True)


@torch.inference_mode()
@growing()
def sample(
    models: Sequence[Model],
    source: Side,
    how: Sampling,
    extra: int,
    alpha: float,
    generator: torch.Generator,
    draws: int = 1,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """Draw translations of each sentence; each carries the model's own probability of it."""
    sentences = len(source.ids)
    ensemble = Ensemble.start(models, source, draws)
    forced = forced_pieces(prefixes, source)
    limits = output_limits(models, source, extra, forced).repeat_interleave(draws)
    forced = forced.repeat_interleave(draws, 0)
    tokens = torch.full((sentences * draws, 1), BOS, device=source.ids.device)
    totals = torch.zeros(len(tokens), device=source.ids.device)
    ended = torch.zeros(len(tokens), dtype=torch.bool, device=source.ids.device)
    while not ended.all():
        log_probabilities = ensemble.step(tokens[:, -1])
        allowed = log_probabilities.clone()
        allowed[:, NEVER] = -torch.inf
        drawn = torch.multinomial(narrow(allowed, how).cpu(), 1, generator=generator).to(tokens.device)[:, 0]
        if tokens.shape[1] <= forced.shape[1]:
            begun = forced[:, tokens.shape[1] - 1]
            drawn = torch.where(begun != PAD, begun, drawn)
        drawn = torch.where(ended | (tokens.shape[1] >= limits), EOS, drawn)
        totals += torch.where(ended, 0.0, log_probabilities.gather(1, drawn[:, None])[:, 0])
        tokens = torch.cat((tokens, drawn[:, None]), dim=1)
        ended |= drawn == EOS
    results: list[list[Hypothesis]] = []
    for number, (ids, total) in enumerate(zip(tokens[:, 1:].tolist(), totals.tolist(), strict=True)):
        if number % draws == 0:
            results.append([])
        length = ids.index(EOS)
        results[-1].append(Hypothesis(ids[:length], total, total / float(length_penalty(length + 1, alpha))))
    return [sorted(each, key=lambda hypothesis: -hypothesis.score) for each in results]
