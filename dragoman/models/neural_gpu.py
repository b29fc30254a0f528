"""The Extended Neural GPU (Kaiser and Bengio 2016): active memory, all of which changes at every step.

The source lies on a tape, a cell for each piece. As many steps as it has pieces, each the same gated convolutions, read
it; then a step for each target piece, in which a second tape shows what has been written so far.
Axes: B rows, S source positions, T target positions, D width, V vocabulary, N hypotheses.
"""

from math import sqrt
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.convolution import Convolution, states_at
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings, spread_embeddings


class NeuralGPUConfig(Section):
    """The shape of an Extended Neural GPU."""

    kind: Literal["neural-gpu"] = "neural-gpu"
    layers: int = Field(2, ge=1, le=1024)  # gated convolutions of a step (l)
    width: int = Field(512, ge=1, le=65536)  # of embeddings and cells (m)
    kernel: int = Field(3, ge=1, le=1024)  # cells a window holds
    dropout: float = Field(0.1, ge=0, lt=1)
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "NeuralGPU":
        """A fresh model of this shape."""
        return NeuralGPU(self, vocabulary, source_vocabulary)


class NeuralGPU(Model):
    """A memory that is read by changing it, and written from in the same way.

    Departs from Kaiser and Bengio: a tape is one cell high instead of four, gates are not cut off, and dropout is where
    embeddings enter and outputs leave, not at every step.
    """

    def __init__(self, config: NeuralGPUConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.longest, self.width = config.longest, config.width
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder, self.decoder = (
            nn.ModuleList(ConvolutionalGRU(config.width, tapes, config.kernel) for _ in range(config.layers))
            for tapes in (1, 2)
        )
        spread_embeddings(self.target_embedding, self.source_embedding)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection: a step for each target position, of all sentences of a row."""
        source, target = batch.source, batch.target
        memory, embedded = self._read(source), self._embed(self.target_embedding, target.ids)
        written, outputs = torch.zeros_like(memory), torch.zeros_like(embedded)
        pieces = Visible.same_sentence(source.segments, target.segments)  # whose are written on each cell's tape
        cells = Visible.same_sentence(target.segments, source.segments)  # on whose tape each piece is written
        last = _lengths(source) - 1
        read = cells.first + torch.minimum(target.positions, cells.last - cells.first - 1).clamp(min=0)
        for now in range(_steps(target)):
            piece = pieces.first + now
            is_here = (source.positions == last.clamp(max=now)) & (piece < pieces.last)
            written = torch.where(is_here[:, :, None], states_at(embedded, piece), written)
            memory = self._advance(memory, written, source.segments)
            outputs = torch.where((target.positions == now)[:, :, None], states_at(memory, read), outputs)
        return self.dropout(outputs)

    def encode(self, source: Side) -> Memory:
        """Read the source."""
        return Memory(self._read(source), source.segments, {})

    def start(self, memory: Memory, beam: int) -> State:
        """A memory of its own for each hypothesis, which it will change, and an empty tape."""
        own = memory.states.repeat_interleave(beam, dim=0)
        position = torch.zeros(len(own), dtype=torch.long, device=own.device)
        return {"memory": own, "written": torch.zeros_like(own), "position": position}

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token on each hypothesis's tape, change its memory, and read where it was written."""
        segments = memory.segments.repeat_interleave(len(tokens) // len(memory.segments), dim=0)
        cell = torch.minimum(state["position"], (segments > 0).sum(1) - 1)[:, None]
        is_here = torch.arange(segments.shape[1], device=cell.device) == cell
        embedded = self._embed(self.target_embedding, tokens)[:, None]
        state["written"] = torch.where(is_here[:, :, None], embedded, state["written"])
        state["memory"] = self._advance(state["memory"], state["written"], segments)
        state["position"] = state["position"] + 1
        return self.project(self.dropout(states_at(state["memory"], cell)[:, 0])), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """None: that is the point of it."""
        return AttentionWeights([], [], [])

    def _embed(self, embedding: nn.Embedding, ids: Int[Tensor, "*any"]) -> Float[Tensor, "*any D"]:
        return self.dropout(embedding(ids) * sqrt(self.width))

    def _read(self, source: Side) -> Float[Tensor, "B S D"]:
        """The memory after as many steps as its sentence has pieces."""
        memory, lengths = self._embed(self.source_embedding, source.ids), _lengths(source)
        for now in range(_steps(source)):
            changed = memory
            for layer in self.encoder:
                changed = layer(changed, source.segments)
            memory = torch.where((now < lengths)[:, :, None], changed, memory)
        return memory

    def _advance(
        self, memory: Float[Tensor, "B S D"], written: Float[Tensor, "B S D"], segments: Int[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        for layer in self.decoder:
            memory = layer(memory, segments, written)
        return memory


class ConvolutionalGRU(nn.Module):
    """A gated recurrent unit in every cell, which sees the neighbours."""

    def __init__(self, width: int, tapes: int, kernel: int) -> None:
        super().__init__()
        self.gates = Convolution(tapes * width, 2 * width, kernel)
        self.candidate = Convolution(tapes * width, width, kernel)
        nn.init.ones_(self.gates.map.bias)  # to begin with, what is there stays

    def forward(
        self, x: Float[Tensor, "B S D"], segments: Int[Tensor, "B S"], beside: Float[Tensor, "B S D"] | None = None
    ) -> Float[Tensor, "B S D"]:
        """The cells after a step; what stands on a tape beside them is seen and does not change."""
        tapes = [] if beside is None else [beside]
        update, reset = self.gates(torch.cat((x, *tapes), dim=-1), segments).sigmoid().chunk(2, dim=-1)
        candidate = self.candidate(torch.cat((reset * x, *tapes), dim=-1), segments).tanh()
        return update * x + (1 - update) * candidate


def _steps(side: Side) -> int:
    """How many steps the longest sentence takes."""
    # On a GPU a row's length, which no sentence exceeds: nobody waits for the answer there, and a step can be recorded.
    return side.ids.shape[1] if side.ids.is_cuda else int(side.positions.max()) + 1


def _lengths(side: Side) -> Int[Tensor, "B S"]:
    """How many pieces the sentence of each position has."""
    own = Visible.same_sentence(side.segments, side.segments)
    return own.last - own.first
