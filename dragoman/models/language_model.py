"""A decoder-only Transformer that translates: source, separator and target in one sequence (Radford et al. 2018).

There is no encoder and no cross-attention. Each position sees the earlier ones of its sentence pair: first the source,
then BOS, which separates, then the target; what is learned is the target alone.
Axes: B rows, S source positions, T target positions, L = S + T positions of both, K keys, W beam width, D width,
H heads, C channels of a head, V vocabulary, N = B*W hypotheses.
"""

from functools import partial
from math import sqrt
from typing import Any, Literal, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.attention import KeysValues, MultiHeadAttention
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings, spread_embeddings
from dragoman.models.layers import EncoderLayer, FeedForward, NormPlace, Residual
from dragoman.models.positions import PositionKind, Positions, Turn

NOTHING = 1 << 30  # where an empty position is sorted to: behind all others


class LanguageModelConfig(Section):
    """The shape of a decoder-only Transformer."""

    kind: Literal["language-model"] = "language-model"
    layers: int = Field(12, ge=1, le=1024)
    width: int = Field(768, ge=1, le=65536)
    hidden: int = Field(3072, ge=1, le=262144)
    heads: int = Field(12, ge=1, le=65536)
    dropout: float = Field(0.1, ge=0, lt=1)
    positions: PositionKind = "learned"
    norm: NormPlace = "pre"
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take; a pair may take twice as many

    @field_validator("heads")
    @classmethod
    def _heads_divide_width(cls, heads: int, others: Any) -> int:
        if (width := others.data.get("width", heads)) % heads:
            raise ValueError(f"'model.heads' = {heads} does not divide 'model.width' = {width}")
        return heads

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "LanguageModel":
        """A fresh model of this shape."""
        return LanguageModel(self, vocabulary, source_vocabulary)


class LanguageModel(Model):
    """One stack that reads the source and goes on writing."""

    def __init__(self, config: LanguageModelConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.longest, self.width = config.longest, config.width
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.positions = Positions(config.positions, 2 * config.longest, config.width)
        self.dropout = nn.Dropout(config.dropout)
        channels = config.width // config.heads
        attention = partial(MultiHeadAttention, config.width, config.heads, channels, channels)
        feed_forward = partial(FeedForward, config.width, config.hidden)
        residual = partial(Residual, config.width, config.dropout, config.norm)
        self.layers = nn.ModuleList(EncoderLayer(attention, feed_forward, residual) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width) if config.norm == "pre" else nn.Identity()
        spread_embeddings(self.target_embedding, self.source_embedding)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position at once."""
        return self._read(batch, None)[:, batch.source.ids.shape[1] :]

    def encode(self, source: Side) -> Memory:
        """Read the source; what later positions will see of it is computed here once."""
        x = self._embed(self.source_embedding, source.ids, source.positions)
        visible = Visible.same_sentence(source.segments, source.segments, causal=True)
        turn, parts = self.positions.turning(source.positions), {}
        for number, layer in enumerate(cast(list[EncoderLayer], self.layers)):
            y = layer.self_attention_residual.read(x)
            parts[f"keys.{number}"], parts[f"values.{number}"] = layer.self_attention.keys_values(y, turn)
            x = layer(x, visible, turn)
        return Memory(self.norm(x), source.segments, parts)

    def start(self, memory: Memory, beam: int) -> State:
        """Nothing written yet: each hypothesis stands behind its source."""
        lengths = (memory.segments > 0).sum(1).repeat_interleave(beam)
        state = {"position": lengths}
        for name, part in memory.parts.items():
            _, heads, _, channels = part.shape
            state[name] = part.new_zeros(len(lengths), heads, 0, channels)
        return state

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token behind each hypothesis."""
        position = state["position"].clamp(max=2 * self.longest - 1)[:, None]
        x = self._embed(self.target_embedding, tokens[:, None], position)
        turn = self.positions.turning(position)
        for number, layer in enumerate(cast(list[EncoderLayer], self.layers)):
            look = partial(_look_at_both, layer.self_attention, number, turn, state, memory)
            x = layer.self_attention_residual(x, look)
            x = layer.feed_forward_residual(x, layer.feed_forward)
        state["position"] = state["position"] + 1
        return self.project(self.norm(x)[:, 0]), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """The weights of its one attention, told apart by who looks at whom."""
        weights: list[Tensor] = []
        self._read(batch, weights)
        end = batch.source.ids.shape[1]
        return AttentionWeights(
            [each[:, :, :end, :end] for each in weights],
            [each[:, :, end:, end:] for each in weights],
            [each[:, :, end:, :end] for each in weights],
        )

    def _read(self, batch: Batch, weights: list[Tensor] | None) -> Float[Tensor, "B L D"]:
        """Both sides through the stack; each sentence's source and target are brought together and back again."""
        source, target = batch.source, batch.target
        between = Visible.same_sentence(target.segments, source.segments)
        behind = target.positions + (between.last - between.first)  # a target goes on where its source ends
        segments = torch.cat((source.segments, target.segments), dim=1)
        order, back = _together(segments)
        positions = torch.cat((source.positions, behind), dim=1).gather(1, order)
        x = torch.cat((self.source_embedding(source.ids), self.target_embedding(target.ids)), dim=1)
        x = self._place(x.take_along_dim(order[:, :, None], 1), positions)
        segments = segments.gather(1, order)
        visible, turn = Visible.same_sentence(segments, segments, causal=True), self.positions.turning(positions)
        for layer in self.layers:
            x = layer(x, visible, turn, weights)
        if weights is not None:
            rows, columns = back[:, None, :, None], back[:, None, None, :]
            weights[:] = [each.take_along_dim(rows, 2).take_along_dim(columns, 3) for each in weights]
        return self.norm(x).take_along_dim(back[:, :, None], 1)

    def _embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        return self._place(embedding(ids), positions)

    def _place(self, embedded: Float[Tensor, "B S D"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        return self.dropout(self.positions(embedded * sqrt(self.width), positions))


def _together(segments: Int[Tensor, "B L"]) -> tuple[Int[Tensor, "B L"], Int[Tensor, "B L"]]:
    """An order in which each sentence's target stands behind its source, where it stood before, and the way back."""
    order = segments.masked_fill(segments == 0, NOTHING).argsort(dim=1, stable=True)
    return order, order.argsort(dim=1)


def _look_at_both(
    attention: MultiHeadAttention, layer: int, turn: Turn, state: State, memory: Memory, y: Float[Tensor, "N Q D"]
) -> Float[Tensor, "N Q D"]:
    """Look at the source, whose row the hypotheses of a sentence share, and at what each has written itself."""
    own = attention.keys_values(y, turn)
    for name, new in zip(("keys", "values"), own, strict=True):
        state[f"{name}.{layer}"] = torch.cat((state[f"{name}.{layer}"], new), dim=2)
    written = KeysValues(state[f"keys.{layer}"], state[f"values.{layer}"])
    source = KeysValues(memory.parts[f"keys.{layer}"], memory.parts[f"values.{layer}"])
    query = turn(attention.split(attention.query(y), attention.heads))
    return attention.output(_mix_both(query, source, written, memory.segments > 0).transpose(1, 2).flatten(2))


def _mix_both(
    query: Float[Tensor, "N H Q C"], source: KeysValues, written: KeysValues, visible: Bool[Tensor, "B S"]
) -> Float[Tensor, "N H Q C"]:
    """One softmax over the keys of a source and those of each hypothesis behind it."""
    rows, heads, length, channels = source.keys.shape
    beside = query.view(rows, -1, heads, channels).transpose(1, 2)  # B H W C
    there = (beside @ source.keys.transpose(2, 3)).masked_fill(~visible[:, None, None], -torch.inf)
    here = (query @ written.keys.transpose(2, 3)).view(rows, -1, heads, written.keys.shape[2]).transpose(1, 2)
    weights = (torch.cat((there, here), dim=3) / sqrt(channels)).softmax(-1)
    seen = (weights[..., :length] @ source.values).transpose(1, 2).reshape(query.shape)
    return seen + weights[..., length:].transpose(1, 2).reshape(len(query), heads, 1, -1) @ written.values
