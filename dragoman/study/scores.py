"""Products of queries and keys, random or a trained model's own: how far they vary, what the softmax makes of them.

Axes: B rows, H heads, Q queries, K keys.
"""

from collections.abc import Sequence
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dragoman.batch import Batch
from dragoman.decoding.scoring import Ids, group_by_length
from dragoman.models.attention import MultiHeadAttention
from dragoman.models.interface import Model
from dragoman.models.positions import unturned
from dragoman.study.looking import TOKENS_AT_ONCE, entropy_share

ROUNDS, QUERIES, KEYS = 200, 16, 64


class Sharpness(NamedTuple):
    """What becomes of scores, as they are and divided by sqrt(d_k): the means over all queries."""

    variance: float  # of the products
    entropy: float  # of the weights, as a share of the largest possible
    divided_entropy: float
    gradient: float  # size of the softmax's Jacobian
    divided_gradient: float


class Drawn(NamedTuple):
    """The mean over independent rounds at one width, and how far it may be off: 95 %."""

    key_width: int
    mean: Sharpness
    error: Sharpness


def draw(key_width: int, generator: torch.Generator) -> Drawn:
    """Scores of standard normal queries and keys; the rounds are independent of one another."""
    visible = torch.ones(1, QUERIES, KEYS, dtype=torch.bool)
    rounds = []
    for _ in range(ROUNDS):
        query, key = (torch.randn(1, 1, count, key_width, generator=generator) for count in (QUERIES, KEYS))
        scores = query @ key.transpose(-2, -1)
        rounds.append(torch.stack([scores.square().mean(), *_judge(scores, key_width, visible).mean((1, 2, 3))]))
    values = torch.stack(rounds).double()
    error = 1.96 * values.std(0) / sqrt(ROUNDS)
    return Drawn(key_width, Sharpness(*values.mean(0).tolist()), Sharpness(*error.tolist()))


@torch.inference_mode()
def look_into(model: Model, pairs: Sequence[tuple[Ids, Ids]]) -> dict[str, list[Sharpness]]:
    """What the scores of every head are, by the attention's name, while the model reads and writes a text."""
    sums: dict[str, Tensor] = {}
    hooks = [
        attention.register_forward_pre_hook(partial(_see, sums, name)) for name, attention in attentions(model).items()
    ]
    try:
        for numbers in group_by_length([len(source) + len(target) for source, target in pairs], TOKENS_AT_ONCE):
            model(Batch.of([pairs[n][0] for n in numbers], [pairs[n][1] for n in numbers]).to(model.device))
    finally:
        for hook in hooks:
            hook.remove()
    return {name: _heads(sums[name]) for name in attentions(model)}


def attentions(model: Model) -> dict[str, MultiHeadAttention]:
    """Every attention that has heads, by its name in the model."""
    return {name: each for name, each in model.named_modules() if isinstance(each, MultiHeadAttention)}


def jacobian_size(weights: Float[Tensor, "B H Q K"]) -> Float[Tensor, "B H Q"]:
    """The Frobenius norm of diag(w) - w w^T: how much the softmax still answers to its scores."""
    square = weights.square().sum(-1)
    return (square - 2 * weights.pow(3).sum(-1) + square.square()).clamp(min=0).sqrt()


def _judge(
    scores: Float[Tensor, "B H Q K"], key_width: int, visible: Bool[Tensor, "B Q K"]
) -> Float[Tensor, "_ B H Q"]:
    """Entropy without and with the division, then the size of the gradient; zero where there is no choice."""
    hidden, has_choice = ~visible[:, None], (visible.sum(-1) > 1)[:, None]
    nothing = torch.finfo(scores.dtype).min  # not minus infinity: a softmax over nothing is not a number
    weights = [(scores / divisor).masked_fill(hidden, nothing).softmax(-1) for divisor in (1.0, sqrt(key_width))]
    judged = [entropy_share(each.masked_fill(hidden, 0.0), visible) for each in weights] + list(
        map(jacobian_size, weights)
    )
    return torch.stack(judged).masked_fill(~has_choice, 0.0)


def _see(sums: dict[str, Tensor], name: str, attention: MultiHeadAttention, given: tuple[Any, ...]) -> None:
    """Add up what there is to say of a call of an attention: a column a head."""
    queries, seen, visible, _, turn = (*given, unturned)[:5]
    query = turn(attention.split(attention.query(queries), attention.heads))
    keys = seen.keys.repeat_interleave(attention.heads // attention.key_heads, dim=1)
    scores, there = (query @ keys.transpose(-2, -1)).float(), visible.mask
    shown = scores.masked_fill(~there[:, None], 0.0).double()
    judged = _judge(scores, query.shape[-1], there).double()
    ones = torch.ones(attention.heads, dtype=torch.double, device=scores.device)
    counts = [there.sum() * ones, (there.sum(-1) > 1).sum() * ones]
    new = torch.stack([*counts, shown.sum((0, 2, 3)), shown.square().sum((0, 2, 3)), *judged.sum((1, 3))])
    sums[name] = sums[name] + new if name in sums else new


def _heads(sums: Float[Tensor, "_ H"]) -> list[Sharpness]:
    pairs, choices, total, squares, *judged = sums.cpu()
    variance = squares / pairs - (total / pairs).square()
    found = torch.stack([variance, *(each / choices for each in judged)], dim=-1)
    return [Sharpness(*head.tolist()) for head in found]
