"""The LSTMN (Cheng, Dong and Lapata 2016): an LSTM that looks back at all it has read instead of at one state.

Each step attends to the states of the earlier steps of its sentence (intra-attention) and goes on from the mean of
what it finds; the decoder also looks at the source (inter-attention, their shallow fusion). Self-attention before the
Transformer, but step by step.
Axes: B rows, S source positions, T target positions, K keys, Q queries, D width, V vocabulary, N = B*Q hypotheses.
"""

from math import sqrt
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from pydantic import Field
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.alignment import Score, choose, masked_softmax
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings, spread_embeddings


class LstmnConfig(Section):
    """The shape of an LSTMN encoder-decoder."""

    kind: Literal["lstmn"] = "lstmn"
    width: int = Field(512, ge=1, le=65536)  # of embeddings and states
    dropout: float = Field(0.1, ge=0, lt=1)
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "Lstmn":
        """A fresh model of this shape."""
        return Lstmn(self, vocabulary, source_vocabulary)


class Lstmn(Model):
    """Two tapes: one read from the source, one written, each looked back at."""

    def __init__(self, config: LstmnConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.longest, self.width = config.longest, config.width
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.encoder = LookingBack(config.width, config.width)
        self.decoder = LookingBack(2 * config.width, config.width)
        self.score = Score("additive", config.width)
        self.combine = nn.Linear(2 * config.width, config.width, bias=False)
        spread_embeddings(self.target_embedding, self.source_embedding)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position."""
        return self._decode(batch)[0]

    def encode(self, source: Side) -> Memory:
        """Read the source."""
        keys, _ = self._read(source)
        return Memory(keys, source.segments, {"prepared": self.score.prepare(keys)})

    def start(self, memory: Memory, beam: int) -> State:
        """An empty tape for each hypothesis."""
        return self.decoder.start(len(memory.states) * beam, memory.states)

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token behind each hypothesis."""
        everything = torch.ones_like(state["shown"][:, :, 0], dtype=torch.bool)
        visible = (memory.segments > 0)[:, None]
        embedded = self._embed(self.target_embedding, tokens)
        output, *_ = self._advance(embedded, state, everything, memory.states, memory.parts["prepared"], visible)
        return self.project(output), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """The weights of both tapes' intra-attention, and of the inter-attention between them."""
        _, encoder = self._read(batch.source)
        _, decoder, cross = self._decode(batch)
        return AttentionWeights([encoder[:, None]], [decoder[:, None]], [cross[:, None]])

    def _embed(self, embedding: nn.Embedding, ids: Int[Tensor, "*any"]) -> Float[Tensor, "*any D"]:
        return self.dropout(embedding(ids) * sqrt(self.width))

    def _read(self, source: Side) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B S K"]]:
        own = _own(source)
        embedded = self._embed(self.source_embedding, source.ids)
        state = self.encoder.start(len(embedded), embedded)
        weights = []
        for now in range(embedded.shape[1]):
            self.encoder.begin_anew(state, source.positions[:, now] == 0)
            _, looked = self.encoder(embedded[:, now], state, own[:, now, :now])
            weights.append(nn.functional.pad(looked, (0, embedded.shape[1] - now)))
        return self.dropout(state["shown"]), torch.stack(weights, dim=1)

    def _decode(self, batch: Batch) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T K"], Float[Tensor, "B T S"]]:
        source, target = batch.source, batch.target
        keys, _ = self._read(source)
        prepared, own = self.score.prepare(keys), _own(target)
        visible = Visible.same_sentence(target.segments, source.segments).mask
        embedded = self._embed(self.target_embedding, target.ids)
        state = self.decoder.start(len(embedded), embedded)
        outputs, back, cross = [], [], []
        for now in range(embedded.shape[1]):
            self.decoder.begin_anew(state, target.positions[:, now] == 0)
            here = visible[:, now : now + 1]
            output, looked_back, looked = self._advance(
                embedded[:, now], state, own[:, now, :now], keys, prepared, here
            )
            outputs.append(output)
            back.append(nn.functional.pad(looked_back, (0, embedded.shape[1] - now)))
            cross.append(looked[:, 0])
        return torch.stack(outputs, dim=1), torch.stack(back, dim=1), torch.stack(cross, dim=1)

    def _advance(
        self,
        embedded: Float[Tensor, "N D"],
        state: State,
        earlier: Bool[Tensor, "N _"],
        keys: Float[Tensor, "B K D"],
        prepared: Float[Tensor, "B K D"],
        visible: Bool[Tensor, "B #Q K"],
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N _"], Float[Tensor, "B Q K"]]:
        """Look at the source with what was shown last, go on from what lies behind, and combine the two."""
        # The hypotheses of a sentence are so many queries against its one row of memory.
        queries = state["last"].reshape(len(keys), -1, self.width)
        looked = masked_softmax(self.score(queries, prepared), visible)
        context = (looked @ keys).flatten(0, 1)
        shown, looked_back = self.decoder(torch.cat((embedded, context), dim=-1), state, earlier)
        return self.combine(torch.cat((self.dropout(shown), context), dim=-1)).tanh(), looked_back, looked


class LookingBack(nn.Module):
    """An LSTM cell whose state is, at every step, a mean of its earlier states, weighted by attention."""

    def __init__(self, inputs: int, width: int) -> None:
        super().__init__()
        self.width = width
        self.cell = nn.LSTMCell(inputs, width)
        self.score = Score("additive", width, inputs + width)

    def start(self, rows: int, like: Tensor) -> State:
        """A tape with nothing on it; what was shown last on it, and what was found when looking back."""
        tape, nothing = like.new_zeros(rows, 0, self.width), like.new_zeros(rows, self.width)
        return {"shown": tape, "prepared": tape, "kept": tape, "last": nothing, "found": nothing}

    def begin_anew(self, state: State, is_first: Bool[Tensor, " N"]) -> None:
        """What came last belongs to another sentence where one begins; the tape itself is hidden by who sees whom."""
        for name in ("last", "found"):
            state[name] = choose(is_first, torch.zeros_like(state[name]), state[name])

    def forward(
        self, x: Float[Tensor, "N _"], state: State, visible: Bool[Tensor, "N _"]
    ) -> tuple[Float[Tensor, "N D"], Float[Tensor, "N _"]]:
        """Look back, take a step and write it on the tape; returns what is shown and the weights."""
        query = torch.cat((x, state["found"]), dim=-1)[:, None]
        weights = masked_softmax(self.score(query, state["prepared"]), visible[:, None])
        found, held = ((weights @ state[name])[:, 0] for name in ("shown", "kept"))
        shown, kept = self.cell(x, (found, held))
        written = {"shown": shown, "prepared": self.score.prepare(shown[:, None])[:, 0], "kept": kept}
        for name, tensor in written.items():
            state[name] = torch.cat((state[name], tensor[:, None]), dim=1)
        state["last"], state["found"] = shown, found
        return shown, weights[:, 0]


def _own(side: Side) -> Bool[Tensor, "B T K"]:
    """Which positions of a row are of the sentence of each."""
    return Visible.same_sentence(side.segments, side.segments).mask
