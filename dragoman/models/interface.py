"""What every model is to the rest of the program: search, training and scoring know this and nothing more.

The law that ties it together, tested for every model: stepping equals forward.
Axes: B rows, S source positions, T target positions, D width, V vocabulary, W beam width, N = B*W hypotheses.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.batch import Batch, Side
from dragoman.errors import ConfigError

Precision = Literal["auto", "float32", "bf16"]
PIECES_AT_ONCE = 4096  # of the vocabulary, whose logits a CPU computes in one go: with more it loses its pace

# One row a hypothesis, sentence-major. Following a beam is `search.follow`, the only place that reorders rows.
State = dict[str, Tensor]


@dataclass(frozen=True)
class Memory:
    """What the source has become: one row a sentence, never copied or reordered by the beam."""

    states: Float[Tensor, "B S D"]
    segments: Int[Tensor, "B S"]
    parts: dict[str, Tensor]  # what a model computes from the states once for all steps; one row a sentence

    def rows(self, kept: Int[Tensor, " B"]) -> "Memory":
        """The rows of the sentences that are still being translated."""
        parts = {name: part[kept] for name, part in self.parts.items()}
        return Memory(self.states[kept], self.segments[kept], parts)


class AttentionWeights(NamedTuple):
    """The weights of every layer and head, each B x H x queries x keys."""

    encoder: list[Tensor]
    decoder: list[Tensor]
    cross: list[Tensor]


class Model(nn.Module, ABC):
    """An encoder-decoder over ids."""

    keeps_packed_sentences_apart = True  # a model that cannot is given one sentence a row
    longest: int  # how many positions one sentence may take
    target_embedding: nn.Embedding

    @abstractmethod
    def encode(self, source: Side) -> Memory:
        """Read the source once."""

    @abstractmethod
    def start(self, memory: Memory, beam: int) -> State:
        """The state of B*beam hypotheses that hold nothing yet."""

    @abstractmethod
    def step(self, tokens: Int[Tensor, " N"], state: State, memory: Memory) -> tuple[Float[Tensor, "N V"], State]:
        """Logits of each hypothesis's next token; may write into the state, which the caller gives up."""

    @abstractmethod
    def forward(self, batch: Batch) -> Float[Tensor, "B T D"]:
        """What stands before the output projection, for every target position at once."""

    @property
    def projection(self) -> Float[Tensor, "V D"]:
        """The embedding, transposed, makes the logits (section 3.4)."""
        return self.target_embedding.weight

    def project(self, hidden: Float[Tensor, "*any D"]) -> Float[Tensor, "*any V"]:
        """Logits over the target vocabulary."""
        is_plain = hidden.dim() == 2 and hidden.dtype == self.projection.dtype and not torch.is_grad_enabled()
        if hidden.device.type != "cpu" or not is_plain:
            return nn.functional.linear(hidden, self.projection)
        logits = hidden.new_empty(len(hidden), len(self.projection))
        for first in range(0, logits.shape[1], PIECES_AT_ONCE):
            pieces = slice(first, first + PIECES_AT_ONCE)
            torch.mm(hidden, self.projection[pieces].T, out=logits[:, pieces])
        return logits

    @abstractmethod
    def attention(self, batch: Batch) -> AttentionWeights:
        """Every weight of one forced pass, computed explicitly."""

    def kept(self) -> dict[str, Tensor]:
        """What is saved of a model: its parameters, tied ones once, and what its norms have counted."""
        lasting = self.state_dict()
        counted = {name: tensor for name, tensor in self.named_buffers() if name in lasting}
        return {**dict(self.named_parameters()), **counted}

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device


def new_embeddings(vocabulary: int, source_vocabulary: int | None, width: int) -> tuple[nn.Embedding, nn.Embedding]:
    """Of target and source; one and the same where they share a vocabulary."""
    target = nn.Embedding(vocabulary, width)
    return target, target if source_vocabulary is None else nn.Embedding(source_vocabulary, width)


def spread_embeddings(*embeddings: nn.Embedding) -> None:
    """Begin with N(0, 1/width), each once and in this order: a seed makes one model."""
    for embedding in dict.fromkeys(embeddings):
        nn.init.normal_(embedding.weight, std=embedding.embedding_dim**-0.5)


def choose_device(name: str) -> torch.device:
    """The device of this name; "auto" takes the fastest there is."""
    there = {"cuda": torch.cuda.is_available(), "mps": torch.backends.mps.is_available(), "cpu": True}
    if name == "auto":
        return torch.device(next(device for device, is_there in there.items() if is_there))
    kind, _, number = name.partition(":")
    if not there.get(kind) or (number and (kind != "cuda" or not number.isdecimal())):
        raise ConfigError("--device", f"no such device on this machine, got {name}", hint="use --device auto")
    if number and int(number) >= torch.cuda.device_count():
        raise ConfigError("--device", f"this machine has {torch.cuda.device_count()} GPUs, got {name}")
    return torch.device(name)


def choose_precision(name: Precision, device: torch.device) -> torch.dtype:
    """What to multiply in; "auto" takes bf16 where a GPU has it, and not on a CPU, where it is slower (docs/LOG.md)."""
    if name == "auto":
        has_bf16 = device.type == "cuda" and torch.cuda.is_bf16_supported(including_emulation=False)
        return torch.bfloat16 if has_bf16 else torch.float32
    return torch.bfloat16 if name == "bf16" else torch.float32


def is_out_of_memory(error: RuntimeError) -> bool:
    """Whether an error of torch's means that memory ran out, on a GPU or on the CPU."""
    said = ("can't allocate memory", "out of memory")
    return isinstance(error, torch.OutOfMemoryError) or any(words in str(error) for words in said)
