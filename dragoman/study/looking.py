"""How heads look: how widely, how far, along the diagonal, at the pieces that are translated.

Axes: B rows, H heads, Q queries, K keys.
"""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from dragoman.batch import Batch
from dragoman.decoding.scoring import Ids, group_by_length
from dragoman.decoding.translator import Translator
from dragoman.errors import DataError
from dragoman.kernels.attention import Visible
from dragoman.models.transformer import Transformer
from dragoman.study.word_alignment import Links

KINDS = ("encoder", "decoder", "cross")
TOKENS_AT_ONCE = 4096


class Looks(NamedTuple):
    """What is said of a head, each the mean over the queries of which it can be said."""

    entropy: float  # as a share of the largest possible, that of even weights
    distance: float  # positions between a query and what it looks at
    diagonal: float  # share of the weight within one position of the diagonal
    alignment: float | None  # share of a linked piece's weight on the pieces it is linked with


def fitting_pairs(
    translator: Translator, sources: Sequence[str], references: Sequence[str]
) -> list[tuple[list[int], list[int]]]:
    """Both sides in pieces, but for what is blank or too long for the model."""
    texts = [pair for pair in zip(sources, references, strict=True) if all(map(str.strip, pair))]
    sides = (
        translator.encode([pair[0] for pair in texts]),
        translator.target_vocabulary.encode([pair[1] for pair in texts]),
    )
    pairs = [pair for pair in zip(*sides, strict=True) if max(map(len, pair)) <= translator.longest]
    if not pairs:
        raise DataError("--source and --target", "no pair is left: all are blank or too long for the model")
    return pairs


class Ground(NamedTuple):
    """What weights are held against, for each query and key."""

    visible: Bool[Tensor, "B Q K"]
    distance: Float[Tensor, "B Q K"]
    linked: Bool[Tensor, "B Q K"]


@torch.inference_mode()
def watch(model: Transformer, pairs: Sequence[tuple[Ids, Ids]], links: Sequence[Links]) -> dict[str, list[list[Looks]]]:
    """How each head of each layer of each attention looks at these pairs; behind the layers, how even weights would."""
    totals: dict[str, tuple[Tensor, Tensor]] = {}
    for numbers in group_by_length([len(source) + len(target) for source, target in pairs], TOKENS_AT_ONCE):
        batch = Batch.of([pairs[n][0] for n in numbers], [pairs[n][1] for n in numbers]).to(model.device)
        for kind, weights in zip(KINDS, model.attention(batch), strict=True):
            ground = lay_ground(kind, batch, [links[n] for n in numbers], model.window)
            even = ground.visible / ground.visible.sum(-1, keepdim=True).clamp(min=1)
            layers = [*weights, even[:, None].expand_as(weights[0])]
            new = torch.stack([_add_up(layer.float(), ground) for layer in layers]), _count(ground)
            old = totals.get(kind)
            totals[kind] = new if old is None else (old[0] + new[0], old[1] + new[1])
    return {
        kind: [[_mean(head, counted) for head in layer] for layer in sums] for kind, (sums, counted) in totals.items()
    }


def lay_ground(kind: str, batch: Batch, links: Sequence[Links], window: int | None) -> Ground:
    """What the queries of an attention may see, how far off it is, and with what they are linked."""
    queries = batch.source if kind == "encoder" else batch.target
    keys = batch.target if kind == "decoder" else batch.source
    limits = {"encoder": (False, window), "decoder": (True, window), "cross": (False, None)}[kind]
    visible = Visible.same_sentence(queries.segments, keys.segments, *limits).mask
    lengths = [(side.segments > 0).sum(-1)[:, None, None] for side in (queries, keys)]
    places = queries.positions[:, :, None] * (lengths[1] / lengths[0])  # where the diagonal crosses the query's row
    linked = torch.zeros_like(visible)
    if kind == "cross":
        where = [(row, target, source) for row, each in enumerate(links) for source, target in each]
        linked[tuple(torch.tensor(where, dtype=torch.long).view(-1, 3).T)] = True
    return Ground(visible, (keys.positions[:, None] - places).abs(), linked)


def entropy_share(weights: Float[Tensor, "B H Q K"], visible: Bool[Tensor, "B Q K"]) -> Float[Tensor, "B H Q"]:
    """The entropy of each query's weights over that of even ones; zero where there is no choice."""
    largest = visible.sum(-1).clamp(min=1).log()
    share = torch.special.entr(weights).sum(-1) / largest[:, None]
    return share.masked_fill(largest[:, None] == 0, 0.0)


def _add_up(weights: Float[Tensor, "B H Q K"], ground: Ground) -> Float[Tensor, "H _"]:
    """The sums of what is said of each head."""
    near, distance, linked = (ground.distance <= 1)[:, None], ground.distance[:, None], ground.linked[:, None]
    sums = [entropy_share(weights, ground.visible).sum((0, 2))]
    sums += [(weights * each).sum((0, 2, 3)) for each in (distance, near, linked)]
    return torch.stack(sums, dim=-1).double()


def _count(ground: Ground) -> Float[Tensor, " _"]:
    """Of how many queries each can be said."""
    choices = ground.visible.sum(-1)
    counts = ((choices > 1).sum(), (choices > 0).sum(), (choices > 0).sum(), ground.linked.any(-1).sum())
    return torch.stack(counts).double()


def _mean(sums: Float[Tensor, " _"], counts: Float[Tensor, " _"]) -> Looks:
    entropy, distance, diagonal, alignment = (sums / counts.clamp(min=1)).tolist()
    return Looks(entropy, distance, diagonal, alignment if counts[3] else None)
