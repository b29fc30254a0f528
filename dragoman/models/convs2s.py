"""ConvS2S (Gehring et al. 2017): gated convolutions that read and write all positions at once, and attention in every
layer of the decoder.

Axes: B rows, S source positions, T target positions, Q queries, K keys, D width, V vocabulary, N = B*Q hypotheses.
"""

from collections.abc import Callable
from functools import partial
from math import sqrt
from typing import Literal, NamedTuple, cast

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.alignment import masked_softmax
from dragoman.models.convolution import Convolution
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings
from dragoman.models.positions import Positions


class ConvS2SConfig(Section):
    """The shape of a ConvS2S; the defaults are those of its English-Romanian one."""

    kind: Literal["convs2s"] = "convs2s"
    layers: int = Field(20, ge=1, le=1024)  # of each stack
    width: int = Field(512, ge=1, le=65536)  # of embeddings and layers
    kernel: int = Field(3, ge=1, le=1024)  # positions a window holds (k)
    dropout: float = Field(0.1, ge=0, lt=1)
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "ConvS2S":
        """A fresh model of this shape."""
        return ConvS2S(self, vocabulary, source_vocabulary)


class Seen(NamedTuple):
    """The source as the decoder's layers look at it."""

    keys: Float[Tensor, "B K D"]  # the encoder's output
    values: Float[Tensor, "B K D"]  # and with it the embeddings: which piece stands there
    visible: Bool[Tensor, "B #Q K"]


class ConvS2S(Model):
    """Two stacks of gated convolutions."""

    def __init__(self, config: ConvS2SConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.longest, self.width = config.longest, config.width
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.source_positions, self.target_positions = (
            Positions("learned", config.longest, config.width) for _ in range(2)
        )
        self.dropout = nn.Dropout(config.dropout)
        block = partial(GatedBlock, config.width, config.kernel, config.dropout)
        self.encoder = nn.ModuleList(block(is_causal=False) for _ in range(config.layers))
        self.decoder = nn.ModuleList(LookingBlock(block(is_causal=True)) for _ in range(config.layers))
        for name, parameter in self.named_parameters():
            if "embedding" in name or "positions" in name:
                nn.init.normal_(parameter, std=0.1)  # section 3.5

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position at once."""
        return self._decode(batch, None)

    def encode(self, source: Side) -> Memory:
        """Read the source, and lay its values beside its keys."""
        keys, values = self._read(source)
        return Memory(keys, source.segments, {"values": values})

    def start(self, memory: Memory, beam: int) -> State:
        """Nothing written yet: windows of zeros at position zero."""
        hypotheses = len(memory.states) * beam
        state = {"position": torch.zeros(hypotheses, dtype=torch.long, device=memory.states.device)}
        for number, layer in enumerate(cast(list[LookingBlock], self.decoder)):
            state[f"window.{number}"] = layer.block.convolution.start(hypotheses, memory.states)
        return state

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token behind each hypothesis; each layer's window moves on by one position."""
        seen = Seen(memory.states, memory.parts["values"], (memory.segments > 0)[:, None])
        # The hypotheses of a sentence are so many queries against its one row of memory.
        queries = (len(memory.states), -1)
        position = state["position"].clamp(max=self.longest - 1)  # a sentence that is done may go on, unread
        x = written = self._embed_target(tokens.view(queries), position.view(queries))
        for number, layer in enumerate(cast(list[LookingBlock], self.decoder)):
            slide = partial(layer.block.convolution.step, state=state, name=f"window.{number}")
            x = layer(x, written, seen, slide, None)
        state["position"] = state["position"] + 1
        return self.project(self.dropout(x).flatten(0, 1)), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """The weights of every layer of the decoder."""
        weights: list[Tensor] = []
        self._decode(batch, weights)
        return AttentionWeights([], [], [each[:, None] for each in weights])

    def _embed_target(self, ids: Int[Tensor, "B T"], positions: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
        return self.dropout(self.target_positions(self.target_embedding(ids), positions))

    def _read(self, source: Side) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B S D"]]:
        """Keys and values (section 3.3): what the encoder makes of each position, and that with its embedding."""
        # Departs from Gehring et al.: gradients are not divided by the number of attentions that share the encoder, for
        # Adam takes steps of the same size whatever gradients are multiplied by.
        x = embedded = self.dropout(self.source_positions(self.source_embedding(source.ids), source.positions))
        for block in cast(list[GatedBlock], self.encoder):
            x = block(x, partial(block.convolution, segments=source.segments))
        return x, halved(x, embedded)

    def _decode(self, batch: Batch, weights: list[Tensor] | None) -> Float[Tensor, "B T D"]:
        target = batch.target
        visible = Visible.same_sentence(target.segments, batch.source.segments).mask
        seen = Seen(*self._read(batch.source), visible)
        x = written = self._embed_target(target.ids, target.positions)
        for layer in cast(list[LookingBlock], self.decoder):
            x = layer(x, written, seen, partial(layer.block.convolution, segments=target.segments), weights)
        return self.dropout(x)


class GatedBlock(nn.Module):
    """A convolution, half of which says how much of the other half passes, in a residual (section 3.2)."""

    def __init__(self, width: int, kernel: int, dropout: float, is_causal: bool) -> None:
        super().__init__()
        self.convolution = Convolution(width, 2 * width, kernel, is_causal=is_causal)
        self.dropout = nn.Dropout(dropout)
        # Section 3.5: so that what leaves a gated linear unit varies as much as what enters.
        nn.init.normal_(self.convolution.map.weight, std=sqrt(4 * (1 - dropout) / (kernel * width)))
        nn.init.zeros_(self.convolution.map.bias)

    def forward(self, x: Float[Tensor, "B T D"], convolve: Callable[[Tensor], Tensor]) -> Float[Tensor, "B T D"]:
        """One step up; `convolve` runs the convolution, over a row or one position further."""
        return halved(x, nn.functional.glu(convolve(self.dropout(x)), dim=-1))


class LookingBlock(nn.Module):
    """A layer of the decoder: a gated block that then looks at the source (section 3.3)."""

    def __init__(self, block: GatedBlock) -> None:
        super().__init__()
        self.block = block
        width = block.convolution.inputs
        self.query = nn.Linear(width, width)
        nn.init.normal_(self.query.weight, std=width**-0.5)
        nn.init.zeros_(self.query.bias)

    def forward(
        self,
        x: Float[Tensor, "B Q D"],
        written: Float[Tensor, "B Q D"],
        seen: Seen,
        convolve: Callable[[Tensor], Tensor],
        weights: list[Tensor] | None,
    ) -> Float[Tensor, "B Q D"]:
        """One step up; the query knows what the layer has made and which piece was written last (equation 1)."""
        x = self.block(x, convolve)
        query = self.query(x) + written
        looked = masked_softmax(query @ seen.keys.transpose(-2, -1), seen.visible)
        if weights is not None:
            weights.append(looked)
        # A mean of m values varies the less the more there are; sqrt(m) makes up for it (section 3.4).
        inflated = looked @ seen.values * seen.visible.sum(-1, keepdim=True).to(looked.dtype).sqrt()
        return halved(x, inflated)


def halved(x: Float[Tensor, "*any D"], y: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
    """A sum with half its variance, so that it varies as much as each of the two (section 3.4)."""
    return (x + y) * sqrt(0.5)
