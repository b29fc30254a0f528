"""ByteNet (Kalchbrenner et al. 2016): dilated convolutions whose windows double from layer to layer, and a decoder that
stands on the encoder, position upon position, without attention.

Axes: B rows, S source positions, T target positions, D width, V vocabulary, W beam width, N = B*W hypotheses.
"""

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.convolution import Convolution, states_at
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings, spread_embeddings

DILATIONS = (1, 2, 4, 8, 16)  # of one layer after the other, then from the beginning


class ByteNetConfig(Section):
    """The shape of a ByteNet; the defaults are those of its translator of characters."""

    kind: Literal["bytenet"] = "bytenet"
    layers: int = Field(30, ge=1, le=1024)  # residual blocks of each stack
    width: int = Field(1600, ge=2, le=65536)  # of embeddings and residuals (2d); windows see half of it
    kernel: int = Field(3, ge=1, le=1024)  # positions a window holds (k)
    dropout: float = Field(0.1, ge=0, lt=1)
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "ByteNet":
        """A fresh model of this shape."""
        return ByteNet(self, vocabulary, source_vocabulary)


class ByteNet(Model):
    """A stack of convolutions over the source, and one of causal convolutions on top of it."""

    def __init__(self, config: ByteNetConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.longest, self.width = config.longest, config.width
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        dilations = [DILATIONS[number % len(DILATIONS)] for number in range(config.layers)]
        block = partial(Block, config.width, config.kernel, config.dropout)
        self.encoder = nn.ModuleList(block(dilation, is_causal=False) for dilation in dilations)
        self.decoder = nn.ModuleList(block(dilation, is_causal=True) for dilation in dilations)
        self.last = nn.Sequential(nn.Linear(config.width, config.width), nn.LayerNorm(config.width), nn.ReLU())
        spread_embeddings(self.target_embedding, self.source_embedding)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position at once."""
        source, target = batch.source, batch.target
        below = Visible.same_sentence(target.segments, source.segments)
        place = below.first + target.positions
        x = self._embed(self.target_embedding, target.ids) + columns(self._read(source), place, place < below.last)
        for block in cast(list[Block], self.decoder):
            x = block(x, partial(block.convolution, segments=target.segments))
        return self.dropout(self.last(x))

    def encode(self, source: Side) -> Memory:
        """Read the source."""
        return Memory(self._read(source), source.segments, {})

    def start(self, memory: Memory, beam: int) -> State:
        """Nothing written yet: windows of zeros at position zero."""
        hypotheses = len(memory.states) * beam
        state = {"position": torch.zeros(hypotheses, dtype=torch.long, device=memory.states.device)}
        for number, block in enumerate(cast(list[Block], self.decoder)):
            state[f"window.{number}"] = block.convolution.start(hypotheses, memory.states)
        return state

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token behind each hypothesis, above the source's next position while there is one."""
        place = state["position"].view(len(memory.states), -1)
        inside = place < (memory.segments > 0).sum(1, keepdim=True)
        x = self._embed(self.target_embedding, tokens) + columns(memory.states, place, inside).flatten(0, 1)
        for number, block in enumerate(cast(list[Block], self.decoder)):
            x = block(x, partial(block.convolution.step, state=state, name=f"window.{number}"))
        state["position"] = state["position"] + 1
        return self.project(self.dropout(self.last(x))), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """None: what it knows of the source is what lies below."""
        return AttentionWeights([], [], [])

    def _embed(self, embedding: nn.Embedding, ids: Int[Tensor, "*any"]) -> Float[Tensor, "*any D"]:
        return self.dropout(embedding(ids) * sqrt(self.width))

    def _read(self, source: Side) -> Float[Tensor, "B S D"]:
        x = self._embed(self.source_embedding, source.ids)
        for block in cast(list[Block], self.encoder):
            x = block(x, partial(block.convolution, segments=source.segments))
        return x


class Block(nn.Module):
    """A dilated convolution in half the width, between two maps, in a residual (section 3.6, Figure 3).

    Norm and ReLU stand before each of the three.
    """

    def __init__(self, width: int, kernel: int, dropout: float, dilation: int, is_causal: bool) -> None:
        super().__init__()
        half = width // 2
        self.contract = nn.Sequential(
            nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, half), nn.LayerNorm(half), nn.ReLU()
        )
        self.convolution = Convolution(half, half, kernel, dilation, is_causal)
        self.expand = nn.Sequential(nn.LayerNorm(half), nn.ReLU(), nn.Linear(half, width))
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "*any D"], convolve: Callable[[Tensor], Tensor]) -> Float[Tensor, "*any D"]:
        """One step up; `convolve` runs the convolution, over a row or one position further."""
        return x + self.dropout(self.expand(convolve(self.contract(x))))


def columns(
    states: Float[Tensor, "B S D"], place: Int[Tensor, "B T"], inside: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T D"]:
    """The encoder's state at each place, nothing where the source has ended (dynamic unfolding, section 3.2).

    Departs from Kalchbrenner et al.: the source is not made longer by an estimate of the target's length, so what is
    written past its end is known from what was written before.
    """
    return states_at(states, place).masked_fill(~inside[:, :, None], 0.0)
