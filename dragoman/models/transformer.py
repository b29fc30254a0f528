"""The Transformer of *Attention Is All You Need* (Vaswani et al. 2017, section 3, Figure 1).

Axes: B rows, S source positions, T target positions, Q queries, K keys, D width, V vocabulary,
W beam width, N = B*W hypotheses.
"""

from dataclasses import fields
from functools import partial
from math import sqrt
from typing import Any, Literal, cast

import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.attention import KeysValues, MultiHeadAttention
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings
from dragoman.models.layers import (
    NORMS,
    DecoderLayer,
    EncoderLayer,
    FeedForward,
    GatedFeedForward,
    NormKind,
    NormPlace,
    Residual,
    normalise,
)
from dragoman.models.positions import PositionKind, Positions

FEED_FORWARDS = {"relu": FeedForward, "swiglu": GatedFeedForward}


class TransformerConfig(Section):
    """The shape of a Transformer; the defaults are the paper's base model (Table 3)."""

    kind: Literal["transformer"] = "transformer"
    layers: int = Field(6, ge=1, le=1024)  # N
    decoder_layers: int | None = Field(None, ge=1, le=1024)  # None: as many
    width: int = Field(512, ge=1, le=65536)  # d_model
    hidden: int = Field(2048, ge=1, le=262144)  # d_ff
    heads: int = Field(8, ge=1, le=65536)  # h
    key_width: int | None = Field(None, ge=1, le=65536)  # d_k; None: width / heads
    value_width: int | None = Field(None, ge=1, le=65536, validate_default=True)  # d_v; None: width / heads
    key_heads: int | None = Field(None, ge=1, le=65536)  # heads of keys and values; None: as many as of queries
    feed_forward: Literal["relu", "swiglu"] = "relu"
    dropout: float = Field(0.1, ge=0, lt=1)  # P_drop
    positions: PositionKind = "sinusoidal"
    norm: NormPlace = "post"
    norm_kind: NormKind = "layer"
    residual: bool = True  # whether x is carried past each sublayer
    window: int | None = Field(None, ge=1, le=1 << 20)  # neighbours seen to each side: r = 2 window + 1 (Table 1)
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take

    @field_validator("value_width")
    @classmethod
    def _heads_divide_width(cls, value_width: int | None, others: Any) -> int | None:
        # A field's validator speaks up also where other fields are wrong: every mistake is named at once.
        width, heads = others.data.get("width"), others.data.get("heads")
        if width and heads and None in (others.data.get("key_width"), value_width) and width % heads:
            raise ValueError(
                f"'model.heads' = {heads} does not divide 'model.width' = {width}: "
                "use another number of heads, or set both 'model.key_width' and 'model.value_width'"
            )
        return value_width

    @field_validator("key_heads")
    @classmethod
    def _key_heads_divide_heads(cls, key_heads: int | None, others: Any) -> int | None:
        if key_heads and (heads := others.data.get("heads", key_heads)) % key_heads:
            raise ValueError(f"'model.key_heads' = {key_heads} does not divide 'model.heads' = {heads}")
        return key_heads

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "Transformer":
        """A fresh model of this shape."""
        return Transformer(self, vocabulary, source_vocabulary)

    @property
    def channels(self) -> tuple[int, int]:
        """The widths of keys and of values in one head."""
        share = self.width // self.heads
        return self.key_width or share, self.value_width or share


class Transformer(Model):
    """An encoder and a decoder over one embedding: embed, encode, decode, project."""

    def __init__(self, config: TransformerConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        """Tie source embedding, target embedding and projection; a source vocabulary of its own unties the first."""
        super().__init__()
        self.longest = config.longest
        self.width = config.width
        self.window = config.window
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.positions = Positions(config.positions, config.longest, config.width)
        self.dropout = nn.Dropout(config.dropout)
        attention = partial(MultiHeadAttention, config.width, config.heads, *config.channels, config.key_heads)
        feed_forward = partial(FEED_FORWARDS[config.feed_forward], config.width, config.hidden)
        residual = partial(Residual, config.width, config.dropout, config.norm, config.norm_kind, config.residual)
        parts = (attention, feed_forward, residual)
        self.encoder = nn.ModuleList(EncoderLayer(*parts) for _ in range(config.layers))
        self.decoder = nn.ModuleList(DecoderLayer(*parts) for _ in range(config.decoder_layers or config.layers))
        # Pre-norm leaves the last residual unnormalised; post-norm has already normalised it.
        final = partial(NORMS[config.norm_kind], config.width) if config.norm == "pre" else nn.Identity
        self.encoder_norm, self.decoder_norm = final(), final()
        self.apply(_initialise)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position at once."""
        states = self._encode(batch.source, None)
        return self._decode(batch, states, (None, None))

    def encode(self, source: Side, weights: list[Tensor] | None = None) -> Memory:
        """Read the source; the decoder's view of it, keys and values of each layer, is computed here once."""
        states = self._encode(source, weights)
        parts: dict[str, Tensor] = {}
        for number, layer in enumerate(cast(list[DecoderLayer], self.decoder)):
            parts[f"keys.{number}"], parts[f"values.{number}"] = layer.cross_attention.keys_values(states)
        # One query a row sees the whole sentence: told here once, not at every step.
        visible = Visible.same_sentence(torch.ones_like(source.segments[:, :1]), source.segments)
        parts |= {f"visible.{name}": tensor for name, tensor in vars(visible).items()}
        return Memory(states, source.segments, parts)

    def start(self, memory: Memory, beam: int) -> State:
        """Nothing written yet: caches of length zero at position zero."""
        hypotheses = len(memory.states) * beam
        state = {"position": torch.zeros(hypotheses, dtype=torch.long, device=memory.states.device)}
        for number in range(len(self.decoder)):
            for name in ("keys", "values"):
                _, heads, _, channels = memory.parts[f"{name}.{number}"].shape
                state[f"{name}.{number}"] = memory.states.new_zeros(hypotheses, heads, 0, channels)
        return state

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token behind each hypothesis; everything written so far is visible."""
        # A sentence that is done may go on for a while, unread.
        position = state["position"].clamp(max=self.longest - 1)
        x = self._embed(self.target_embedding, tokens[:, None], position[:, None])
        turn = self.positions.turning(position[:, None])
        memory_visible = Visible(*(memory.parts[f"visible.{each.name}"] for each in fields(Visible)))
        for number, layer in enumerate(self.decoder):
            seen = KeysValues(memory.parts[f"keys.{number}"], memory.parts[f"values.{number}"])
            x = layer(x, None, seen, memory_visible, partial(_remember, state, number, self.window), turn)
        state["position"] = state["position"] + 1
        return self.project(self.decoder_norm(x)[:, 0]), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """Every weight of one forced pass, computed explicitly."""
        weights = AttentionWeights([], [], [])
        states = self._encode(batch.source, weights.encoder)
        self._decode(batch, states, (weights.decoder, weights.cross))
        return weights

    def _encode(self, source: Side, weights: list[Tensor] | None) -> Float[Tensor, "B S D"]:
        visible = Visible.same_sentence(source.segments, source.segments, window=self.window)
        x = self._embed(self.source_embedding, source.ids, source.positions)
        turn = self.positions.turning(source.positions)
        for layer in self.encoder:
            x = layer(x, visible, turn, weights)
        return normalise(self.encoder_norm, x, visible)

    def _decode(
        self,
        batch: Batch,
        states: Float[Tensor, "B S D"],
        weights: tuple[list[Tensor], list[Tensor]] | tuple[None, None],
    ) -> Float[Tensor, "B T D"]:
        target = batch.target
        visible = Visible.same_sentence(target.segments, target.segments, causal=True, window=self.window)
        memory_visible = Visible.same_sentence(target.segments, batch.source.segments)
        x = self._embed(self.target_embedding, target.ids, target.positions)
        turn = self.positions.turning(target.positions)
        for layer in cast(list[DecoderLayer], self.decoder):
            seen = layer.cross_attention.keys_values(states)
            x = layer(x, visible, seen, memory_visible, turn=turn, weights=weights)
        return normalise(self.decoder_norm, x, visible)

    def _embed(
        self, embedding: nn.Embedding, ids: Int[Tensor, "B S"], positions: Int[Tensor, "B S"]
    ) -> Float[Tensor, "B S D"]:
        # Section 3.4 scales by sqrt(d_model), section 5.4 drops out the sum with the positions.
        return self.dropout(self.positions(embedding(ids) * sqrt(self.width), positions))


def _remember(state: State, layer: int, window: int | None, new: KeysValues) -> KeysValues:
    """Append this step's keys and values to those of the earlier steps that are still in sight."""
    for name, tensor in zip(("keys", "values"), new, strict=True):
        earlier = state[f"{name}.{layer}"]
        if window is not None:
            earlier = earlier[:, :, -window:]
        state[f"{name}.{layer}"] = torch.cat((earlier, tensor), dim=2)
    return KeysValues(state[f"keys.{layer}"], state[f"values.{layer}"])


def _initialise(module: nn.Module) -> None:
    """The paper is silent here: Xavier uniform per matrix, embeddings N(0, 1/width), biases zero."""
    if isinstance(module, nn.Linear):
        nn.init.xavier_uniform_(module.weight)
        if module.bias is not None:
            nn.init.zeros_(module.bias)
    elif isinstance(module, nn.Embedding):
        nn.init.normal_(module.weight, std=module.embedding_dim**-0.5)
