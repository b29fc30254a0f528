"""Attention before the Transformer: how well a query and a key agree, and where a query may look.

Score functions and sights are choices of one attention (docs/systems.md has the table).
Axes: B rows, Q queries, K keys, D width.
"""

from math import sqrt
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor, nn

Scoring = Literal["additive", "concat", "dot", "scaled-dot", "general"]
Sight = Literal["all", "monotonic", "predictive"]


class Seen(NamedTuple):
    """What queries look at, and from where."""

    keys: Float[Tensor, "B K D"]
    prepared: Float[Tensor, "B K D"]  # the keys as the score function wants them, computed once
    key_positions: Int[Tensor, "B K"]
    visible: Bool[Tensor, "B Q K"]
    query_positions: Int[Tensor, "B Q"]


class Score(nn.Module):
    """How well queries and keys agree."""

    def __init__(self, kind: Scoring, width: int, query_width: int | None = None) -> None:
        super().__init__()
        self.kind = kind
        match kind:
            case "general":  # q W k (Luong et al. 2015)
                self.between = nn.Linear(width, width, bias=False)
            case "additive" | "concat":
                # v tanh(W q + U k) (Bahdanau et al. 2015). Luong et al. write one matrix over q and k side by side:
                # the same function.
                self.query = nn.Linear(query_width or width, width, bias=False)
                self.key = nn.Linear(width, width, bias=False)
                self.energy = nn.Linear(width, 1, bias=False)

    def prepare(self, keys: Float[Tensor, "B K D"]) -> Float[Tensor, "B K D"]:
        """What of the keys does not depend on the query."""
        match self.kind:
            case "general":
                return self.between(keys)
            case "additive" | "concat":
                return self.key(keys)
            case _:
                return keys

    def forward(self, query: Float[Tensor, "B Q _"], prepared: Float[Tensor, "B K D"]) -> Float[Tensor, "B Q K"]:
        """A number for each query and key."""
        if self.kind in ("additive", "concat"):
            together = self.query(query)[:, :, None] + prepared[:, None]
            return self.energy(together.tanh())[..., 0]
        scores = query @ prepared.transpose(-2, -1)
        return scores / sqrt(query.shape[-1]) if self.kind == "scaled-dot" else scores


class Alignment(nn.Module):
    """Softly choose among the visible keys: all of them, or a window around a place (Luong et al. 2015, section 3.2).

    The place is where the query itself stands ("monotonic"), or what the query predicts ("predictive").
    """

    def __init__(self, width: int, scoring: Scoring, sight: Sight, window: int) -> None:
        super().__init__()
        self.score = Score(scoring, width)
        self.sight = sight
        self.window = window
        if sight == "predictive":
            self.to_place = nn.Sequential(
                nn.Linear(width, width, bias=False), nn.Tanh(), nn.Linear(width, 1, bias=False)
            )

    def forward(
        self, query: Float[Tensor, "B Q D"], seen: Seen
    ) -> tuple[Float[Tensor, "B Q D"], Float[Tensor, "B Q K"]]:
        """What each query finds, and the weights with which it looked."""
        visible, nearness = seen.visible, None
        if self.sight != "all":
            distance = seen.key_positions[:, None] - self._place(query, seen)[:, :, None]  # never in half precision
            visible = visible & (distance.abs() <= self.window)
            if self.sight == "predictive":  # a bell around the place, half a window wide, so that it can be learned
                nearness = (-2 * (distance / self.window) ** 2).exp().to(query.dtype)
        weights = masked_softmax(self.score(query, seen.prepared), visible)
        if nearness is not None:
            weights = weights * nearness
        return weights @ seen.keys, weights

    def _place(self, query: Float[Tensor, "B Q D"], seen: Seen) -> Shaped[Tensor, "B Q"]:
        last = (seen.visible.sum(-1) - 1).clamp(min=0)
        if self.sight == "predictive":
            return last * self.to_place(query)[..., 0].sigmoid().to(torch.promote_types(query.dtype, torch.float32))
        # Departs from Luong et al.: a target longer than its source goes on looking at the end.
        return torch.minimum(seen.query_positions, last)


def masked_softmax(scores: Float[Tensor, "B Q K"], visible: Bool[Tensor, "B #Q K"]) -> Float[Tensor, "B Q K"]:
    """Weights over what is visible; zero where nothing is, for a softmax over nothing is not a number."""
    return scores.masked_fill(~visible, -torch.inf).softmax(-1).masked_fill(~visible, 0.0)


def choose(
    flags: Bool[Tensor, " N"], yes: Shaped[Tensor, "N *any"], no: Shaped[Tensor, "N *any"]
) -> Shaped[Tensor, "N *any"]:
    """Rows of one or of the other."""
    return torch.where(flags.view(-1, *([1] * (no.dim() - 1))), yes, no)
