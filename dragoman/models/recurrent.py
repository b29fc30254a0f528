"""Recurrent encoder-decoders, which the Transformer is compared with (section 1, Tables 1 and 2).

One model with a choice at each joint: Cho et al. and Sutskever et al. 2014 (a fixed vector), Bahdanau et al. 2015 (soft
alignment), Luong et al. 2015 (global and local attention), Wu et al. 2016 (a deep residual stack). A state begins anew
where a sentence does, so sentences may share a row.
Axes: B rows, S source positions, T target positions, K keys, Q queries, D width, U state (D, or 2 D of an LSTM),
V vocabulary, N = B*Q hypotheses.
"""

from math import sqrt
from typing import Any, Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, field_validator
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.config import Section
from dragoman.kernels.attention import Visible
from dragoman.models.alignment import Alignment, Scoring, Seen, Sight, choose
from dragoman.models.interface import AttentionWeights, Memory, Model, State, new_embeddings, spread_embeddings

CellKind = Literal["rnn", "gru", "lstm"]
CELLS = {"rnn": nn.RNNCell, "gru": nn.GRUCell, "lstm": nn.LSTMCell}


class RecurrentConfig(Section):
    """The shape of a recurrent encoder-decoder."""

    kind: Literal["recurrent"] = "recurrent"
    cell: CellKind = "lstm"
    layers: int = Field(1, ge=1, le=1024)
    width: int = Field(512, ge=2, le=65536)  # of embeddings and states
    reads: Literal["forward", "backward", "both"] = "forward"  # both: the first layer, each way with half the width
    summary: Literal["first", "always"] = "first"  # when the decoder is told how the encoder ended
    attention: Scoring | Literal["none"] = "none"
    looks: Literal["before", "after"] = "after"  # with the state before a step (Bahdanau) or after it (Luong)
    sight: Sight = "all"
    window: int = Field(10, ge=1, le=1 << 20)  # how far from its place a local attention sees (D)
    residual: bool = False  # a layer adds to what it reads
    dropout: float = Field(0.1, ge=0, lt=1)
    longest: int = Field(1024, ge=1, le=1 << 20)  # positions a sentence may take

    @field_validator("reads")
    @classmethod
    def _both_ways_share_the_width(cls, reads: str, others: Any) -> str:
        if reads == "both" and (width := others.data.get("width", 0)) % 2:
            raise ValueError(f"'model.reads' = 'both' needs an even 'model.width', got {width}")
        return reads

    def build(self, vocabulary: int, source_vocabulary: int | None = None) -> "Recurrent":
        """A fresh model of this shape."""
        return Recurrent(self, vocabulary, source_vocabulary)


class Recurrent(Model):
    """An encoder that reads piece by piece, and a decoder that writes from where it ended."""

    def __init__(self, config: RecurrentConfig, vocabulary: int, source_vocabulary: int | None = None) -> None:
        super().__init__()
        self.longest, self.width, self.residual = config.longest, config.width, config.residual
        self.looks = None if config.attention == "none" else config.looks
        self.tells_always = config.summary == "always"
        self.target_embedding, self.source_embedding = new_embeddings(vocabulary, source_vocabulary, config.width)
        self.dropout = nn.Dropout(config.dropout)
        ways: list[str] = ["forward", "backward"] if config.reads == "both" else [config.reads]
        self.encoder = nn.ModuleList(
            EncoderLayer(config.cell, config.width, ways if number == 0 else ways[:1])
            for number in range(config.layers)
        )
        # The first layer of the decoder reads a piece, what was looked at, and the summary where it is always told.
        inputs = config.width * (1 + (self.looks is not None) + self.tells_always)
        self.decoder = nn.ModuleList(
            Cell(config.cell, inputs if number == 0 else config.width, config.width) for number in range(config.layers)
        )
        if config.attention != "none":
            self.alignment = Alignment(config.width, config.attention, config.sight, config.window)
            self.combine = nn.Linear(2 * config.width, config.width, bias=False)
        spread_embeddings(self.target_embedding, self.source_embedding)

    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position."""
        return self._decode(batch)[0]

    def encode(self, source: Side) -> Memory:
        """Read the source; how the encoder ended is how the decoder begins."""
        visible = Visible.same_sentence(torch.ones_like(source.ids[:, :1]), source.segments)
        keys, endings = self._read(source, visible)
        parts = {f"cell.{number}": ending[:, 0] for number, ending in enumerate(endings)}
        parts |= {"prepared": self._prepare(keys), "positions": source.positions}
        return Memory(keys, source.segments, parts)

    def start(self, memory: Memory, beam: int) -> State:
        """The encoder's last states, once for each hypothesis."""
        states = [memory.parts[f"cell.{number}"] for number in range(len(self.decoder))]
        return self._begin([state.repeat_interleave(beam, 0) for state in states])

    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Write one token behind each hypothesis."""
        positions = state["position"].view(len(memory.states), -1)
        visible = (memory.segments > 0)[:, None].expand(-1, positions.shape[1], -1)
        seen = Seen(memory.states, memory.parts["prepared"], memory.parts["positions"], visible, positions)
        output, state, _ = self._advance(self._embed(self.target_embedding, tokens), state, seen)
        return self.project(output), state

    def attention(self, batch: Batch) -> AttentionWeights:
        """The weights of its one attention; none where it has none."""
        weights = self._decode(batch)[1]
        return AttentionWeights([], [], [torch.cat(weights, dim=1)[:, None]] if weights else [])

    def _embed(self, embedding: nn.Embedding, ids: Int[Tensor, "*any"]) -> Float[Tensor, "*any D"]:
        return self.dropout(embedding(ids) * sqrt(self.width))

    def _prepare(self, keys: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        return self.alignment.score.prepare(keys) if self.looks else keys

    def _read(self, source: Side, visible: Visible) -> tuple[Float[Tensor, "B S D"], list[Float[Tensor, "B T U"]]]:
        """The top layer at every source position, and how each layer ended the sentence of each target position."""
        x, endings = self._embed(self.source_embedding, source.ids), []
        for number, layer in enumerate(self.encoder):
            shown, ending = layer(x, source.segments, visible)
            endings.append(ending)
            x = self._add(number, x, shown)
        return x, endings

    def _decode(self, batch: Batch) -> tuple[Float[Tensor, "B T D"], list[Float[Tensor, "B Q S"]]]:
        source, target = batch.source, batch.target
        visible = Visible.same_sentence(target.segments, source.segments)
        keys, endings = self._read(source, visible)
        prepared = self._prepare(keys)
        beginnings = self._begin([ending.flatten(0, 1) for ending in endings])
        beginnings = {name: tensor.view(*target.ids.shape, *tensor.shape[1:]) for name, tensor in beginnings.items()}
        embedded = self._embed(self.target_embedding, target.ids)
        state: State = {name: torch.zeros_like(tensor[:, 0]) for name, tensor in beginnings.items()}
        outputs, weights = [], []
        for now in range(target.ids.shape[1]):
            is_first = target.positions[:, now] == 0
            state = {name: choose(is_first, beginnings[name][:, now], tensor) for name, tensor in state.items()}
            here = slice(now, now + 1)
            seen = Seen(keys, prepared, source.positions, visible.mask[:, here], target.positions[:, here])
            output, state, looked = self._advance(embedded[:, now], state, seen)
            outputs.append(output)
            weights += [looked] if looked is not None else []
        return torch.stack(outputs, dim=1), weights

    def _begin(self, states: list[Float[Tensor, "N U"]]) -> State:
        state = {f"cell.{number}": each for number, each in enumerate(states)}
        last = states[-1][:, : self.width]
        state["position"] = torch.zeros(len(last), dtype=torch.long, device=last.device)
        if self.looks == "after":
            state["output"] = torch.zeros_like(last)
        if self.tells_always:
            state["summary"] = last
        return state

    def _advance(
        self, embedded: Float[Tensor, "N D"], state: State, seen: Seen
    ) -> tuple[Float[Tensor, "N D"], State, Float[Tensor, "B Q K"] | None]:
        """One step of the decoder: look, read, and say what stands before the projection."""
        context = looked = None
        inputs = [embedded]
        if self.looks == "before":
            context, looked = self._look(state[f"cell.{len(self.decoder) - 1}"][:, : self.width], seen)
            inputs.append(context)
        if self.looks == "after":
            inputs.append(state["output"])  # Luong et al. 2015, section 3.3: past choices are fed in
        if self.tells_always:
            inputs.append(state["summary"])
        new, x = {"position": state["position"] + 1}, torch.cat(inputs, dim=-1)
        for number, cell in enumerate(self.decoder):
            new[f"cell.{number}"] = cell(x, state[f"cell.{number}"])
            x = self._add(number, x, new[f"cell.{number}"][:, : self.width])
        if self.looks == "after":
            context, looked = self._look(x, seen)
        if context is not None:
            x = self.combine(torch.cat((x, context), dim=-1)).tanh()
        return x, {**state, **new, **({"output": x} if self.looks == "after" else {})}, looked

    def _add(self, layer: int, x: Float[Tensor, "*any _"], y: Float[Tensor, "*any D"]) -> Float[Tensor, "*any D"]:
        y = self.dropout(y)
        return x + y if self.residual and layer > 0 else y

    def _look(self, query: Float[Tensor, "N D"], seen: Seen) -> tuple[Float[Tensor, "N D"], Float[Tensor, "B Q K"]]:
        # The hypotheses of a sentence are so many queries against its one row of memory.
        context, looked = self.alignment(query.reshape(len(seen.keys), -1, self.width), seen)
        return context.flatten(0, 1), looked


class EncoderLayer(nn.Module):
    """Reads a row in one direction, or in both with half the width each."""

    def __init__(self, kind: CellKind, width: int, ways: list[str]) -> None:
        super().__init__()
        self.readers = nn.ModuleList(Reader(kind, width, width // len(ways), way == "backward") for way in ways)
        size = width * (2 if kind == "lstm" else 1)
        # Bahdanau et al. 2015, appendix A.2.2; what one direction ended with is handed over as it is.
        self.bridge = nn.Sequential(nn.Linear(size, size), nn.Tanh()) if len(ways) > 1 else nn.Identity()

    def forward(
        self, x: Float[Tensor, "B S D"], segments: Int[Tensor, "B S"], visible: Visible
    ) -> tuple[Float[Tensor, "B S D"], Float[Tensor, "B T U"]]:
        """What it shows at every position, and the state in which it left each query's sentence."""
        shown, kept = zip(*(reader(x, segments, visible) for reader in self.readers), strict=True)
        # What both show stands before what both keep, as in a state of full width.
        parts = zip(*(each.split(shown[0].shape[-1], dim=-1) for each in kept), strict=True)
        return torch.cat(shown, dim=-1), self.bridge(torch.cat([each for part in parts for each in part], dim=-1))


class Reader(nn.Module):
    """A cell that reads a row in one direction, anew for every sentence."""

    def __init__(self, kind: CellKind, inputs: int, width: int, is_backward: bool) -> None:
        super().__init__()
        self.cell = Cell(kind, inputs, width)
        self.is_backward = is_backward

    def forward(
        self, x: Float[Tensor, "B S _"], segments: Int[Tensor, "B S"], visible: Visible
    ) -> tuple[Float[Tensor, "B S _"], Float[Tensor, "B T _"]]:
        """What it shows at every position, and the state in which it left each query's sentence."""
        # Where it comes into another sentence; what it begins the row with is nothing already.
        begins = segments != segments.roll(-1 if self.is_backward else 1, dims=1)
        order = range(x.shape[1])
        state, states = self.cell.zeros(len(x)), []
        for now in reversed(order) if self.is_backward else order:
            state = self.cell(x[:, now], state.masked_fill(begins[:, now, None], 0.0))
            states.append(state)
        every = torch.stack(states[::-1] if self.is_backward else states, dim=1)
        # A query that sees nothing has no sentence: for it any state will do.
        end = visible.first if self.is_backward else visible.last - 1
        end = end.long().clamp(0, x.shape[1] - 1)
        return every[..., : self.cell.width], every.gather(1, end[:, :, None].expand(-1, -1, every.shape[2]))


class Cell(nn.Module):
    """One step of a recurrent layer; the state of an LSTM is what it shows and what it keeps, side by side."""

    def __init__(self, kind: CellKind, inputs: int, width: int) -> None:
        super().__init__()
        self.cell = CELLS[kind](inputs, width)
        self.width, self.is_lstm = width, kind == "lstm"

    def zeros(self, rows: int) -> Float[Tensor, "N U"]:
        """The state of a reader that has read nothing."""
        return self.cell.weight_hh.new_zeros(rows, self.width * (1 + self.is_lstm))

    def forward(self, x: Float[Tensor, "N _"], state: Float[Tensor, "N U"]) -> Float[Tensor, "N U"]:
        """The next state."""
        if self.is_lstm:
            return torch.cat(self.cell(x, state.chunk(2, dim=-1)), dim=-1)
        return self.cell(x, state)
