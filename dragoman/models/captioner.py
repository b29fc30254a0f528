"""Captions from a grid of image features (Xu et al. 2015): an LSTM that looks at the picture before every word.

Soft attention takes the mean of all cells with the weights as they are. Hard attention draws one cell, through which no
gradient passes: how it looks is learned from what came of it (REINFORCE, Williams 1992).
Axes: B pictures, K cells, T words, D width, V vocabulary.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from dragoman.batch import BOS, EOS, PAD
from dragoman.config import Section
from dragoman.models.alignment import Score

# From the weights of a glimpse to the share that each cell has in what is seen.
Look = Callable[[Float[Tensor, "B K"]], Float[Tensor, "B K"]]


class CaptionerConfig(Section):
    """The shape of a captioner."""

    attention: Literal["soft", "hard"] = "soft"
    width: int = Field(128, ge=1, le=65536)  # of cells, words and states
    dropout: float = Field(0.1, ge=0, lt=1)


class Scene(NamedTuple):
    """What is looked at."""

    keys: Float[Tensor, "B K D"]
    prepared: Float[Tensor, "B K D"]  # the keys as the score function wants them, computed once


class State(NamedTuple):
    """Of an LSTM: what it shows and what it keeps."""

    shown: Float[Tensor, "B D"]
    kept: Float[Tensor, "B D"]


class Glimpses(NamedTuple):
    """What a captioner says, and where it looked before each word."""

    logits: Float[Tensor, "B T V"]
    log_weights: Float[Tensor, "B T K"]
    shares: Float[Tensor, "B T K"]  # of the cells in what was seen: the weights, or one cell alone


class Captioner(nn.Module):
    """A decoder that looks at cells; to it they have no order, so a cell's features must say where it is."""

    def __init__(self, config: CaptionerConfig, channels: int, vocabulary: int) -> None:
        super().__init__()
        width = config.width
        self.attention = config.attention
        self.cells = nn.Sequential(nn.Linear(channels, width), nn.ReLU(), nn.Linear(width, width))
        self.begin = nn.Linear(width, 2 * width)
        self.embedding = nn.Embedding(vocabulary, width)
        self.score = Score("additive", width)
        self.recurrence = nn.LSTMCell(2 * width, width)
        self.dropout = nn.Dropout(config.dropout)
        self.combine = nn.Linear(3 * width, width)
        self.output = nn.Linear(width, vocabulary)

    def forward(self, features: Float[Tensor, "B K _"], words: Int[Tensor, "B T"], look: Look) -> Glimpses:
        """What it would say next behind each of these words, which begin with BOS."""
        scene, state = self._start(features)
        embedded = self.embedding(words)
        steps = []
        for now in range(words.shape[1]):
            step, state = self._step(embedded[:, now], scene, state, look)
            steps.append(step)
        shown, seen, log_weights, shares = (torch.stack(each, dim=1) for each in zip(*steps, strict=True))
        return Glimpses(self._say(embedded, shown, seen), log_weights, shares)

    @torch.inference_mode()
    def write(
        self, features: Float[Tensor, "B K _"], longest: int
    ) -> tuple[Int[Tensor, "B T"], Float[Tensor, "B T K"]]:
        """The likeliest word, one after the other, PAD behind EOS, and where it looked before each."""
        look = softly if self.attention == "soft" else at_the_likeliest
        scene, state = self._start(features)
        word = torch.full((len(features),), BOS, device=features.device)
        is_done = torch.zeros_like(word, dtype=torch.bool)
        words, glimpses = [], []
        for _ in range(longest):
            embedded = self.embedding(word)
            (shown, seen, _, shares), state = self._step(embedded, scene, state, look)
            word = self._say(embedded, shown, seen).argmax(-1).masked_fill(is_done, PAD)
            is_done = is_done | (word == EOS)
            words.append(word)
            glimpses.append(shares)
        return torch.stack(words, dim=1), torch.stack(glimpses, dim=1)

    def _start(self, features: Float[Tensor, "B K _"]) -> tuple[Scene, State]:
        keys = self.cells(features)
        # Section 3.1.2: the mean of all cells says how to begin.
        shown, kept = self.begin(keys.mean(1)).tanh().chunk(2, dim=-1)
        return Scene(keys, self.score.prepare(keys)), State(shown, kept)

    def _step(
        self, embedded: Float[Tensor, "B D"], scene: Scene, state: State, look: Look
    ) -> tuple[tuple[Tensor, ...], State]:
        """What the state shows, what was seen, and the weights and shares with which it was."""
        log_weights = self.score(state.shown[:, None], scene.prepared)[:, 0].log_softmax(-1)  # equations 4 and 5
        shares = look(log_weights.exp())
        seen = (shares[:, None] @ scene.keys)[:, 0]
        state = State(*self.recurrence(torch.cat((embedded, seen), dim=-1), state))
        return (state.shown, seen, log_weights, shares), state

    def _say(
        self, embedded: Float[Tensor, "*any D"], shown: Float[Tensor, "*any D"], seen: Float[Tensor, "*any D"]
    ) -> Float[Tensor, "*any V"]:
        """Equation 7, with a tanh between."""
        return self.output(self.combine(self.dropout(torch.cat((embedded, shown, seen), dim=-1))).tanh())


def softly(weights: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """Every cell as far as it is weighted (section 4.2)."""
    return weights


def at_random(weights: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """One cell, drawn with the weights as probabilities (section 4.1)."""
    return _alone(weights.detach().multinomial(1)[:, 0], weights)


def at_the_likeliest(weights: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    """The cell of the largest weight."""
    return _alone(weights.argmax(-1), weights)


def _alone(cell: Int[Tensor, " B"], weights: Float[Tensor, "B K"]) -> Float[Tensor, "B K"]:
    return nn.functional.one_hot(cell, weights.shape[-1]).to(weights.dtype)


def log_likelihood(glimpses: Glimpses, labels: Int[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """Of each word; nothing where a caption has ended."""
    chosen = glimpses.logits.log_softmax(-1).gather(-1, labels[:, :, None])[..., 0]
    return chosen.masked_fill(labels == PAD, 0.0)


def reinforced(
    glimpses: Glimpses,
    said: Float[Tensor, "B T"],
    is_word: Bool[Tensor, "B T"],
    baseline: Float[Tensor, " T"],
    entropy: float,
) -> Float[Tensor, "B T"]:
    """The log-likelihood of words (`said`) behind glimpses that were drawn, with a gradient that is right on average.

    A glimpse is worth the likelihood of what is said from there on, beyond what is usual (section 4.1).
    Departs from Xu et al.: what was said before is left out, for which no glimpse can be blamed, so each word has a
    baseline of its own; the average gradient is the same and single ones deviate less.
    """
    # Where it looked softly, the shares are the weights: all parts of this gradient then cancel.
    drawn = (glimpses.shares.detach() * glimpses.log_weights).sum(-1)
    spread = -(glimpses.log_weights.exp() * glimpses.log_weights).sum(-1)
    worth = (to_come(said) - baseline).detach()
    return said + (worth * (drawn - drawn.detach()) + entropy * spread).masked_fill(~is_word, 0.0)


def to_come(said: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """The log-likelihood of each word and all behind it."""
    return said.flip(1).cumsum(1).flip(1)
