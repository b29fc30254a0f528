"""What data makes and models read: a rectangle of token rows with segments and positions.

Padding is the special case of one sentence a row; packing many sentences into one row is the general case.
Axes: B rows, S source positions, T target positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Int
from torch import Tensor

# The first four ids of every vocabulary.
PAD, UNK, BOS, EOS = range(4)


@dataclass(frozen=True)
class Side:
    """One side of a batch: which token stands where, in which sentence, at which position of it."""

    ids: Int[Tensor, "B S"]
    segments: Int[Tensor, "B S"]  # 0 = empty; 1, 2, ... = which sentence of this row
    positions: Int[Tensor, "B S"]  # restarting with every sentence

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> "Side":
        """One sentence a row, padded on the right to the longest."""
        length = max(map(len, sentences))
        ids = torch.full((len(sentences), length), PAD)
        segments = torch.zeros_like(ids)
        for row, sentence in enumerate(sentences):
            ids[row, : len(sentence)] = torch.tensor(sentence, dtype=torch.long)
            segments[row, : len(sentence)] = 1
        return cls(ids, segments, torch.arange(length).expand_as(ids).contiguous())

    def tensors(self) -> list[Tensor]:
        """All of it."""
        return [self.ids, self.segments, self.positions]

    def to(self, device: torch.device) -> "Side":
        """The same side on another device."""
        return Side(*(tensor.to(device, non_blocking=True) for tensor in self.tensors()))


@dataclass(frozen=True)
class Batch:
    """Source rows, target rows shifted right (they begin with BOS), and the labels to predict (they end with EOS)."""

    source: Side
    target: Side
    labels: Int[Tensor, "B T"]

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> "Batch":
        """One pair a row, from plain ids without BOS and EOS."""
        labels = Side.of([[*target, EOS] for target in targets]).ids
        shifted = Side.of([[BOS, *target] for target in targets])
        return cls(Side.of([[*source, EOS] for source in sources]), shifted, labels)

    def tensors(self) -> list[Tensor]:
        """All of it."""
        return [*self.source.tensors(), *self.target.tensors(), self.labels]

    def map(self, function: Callable[[Tensor], Tensor]) -> "Batch":
        """The batch of what a function makes of each tensor."""
        tensors = [function(tensor) for tensor in self.tensors()]
        return Batch(Side(*tensors[:3]), Side(*tensors[3:6]), tensors[6])

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        return self.map(lambda tensor: tensor.to(device, non_blocking=True))

    def rows(self, first: int, last: int) -> "Batch":
        """The rows from first up to, not including, last."""
        return self.map(lambda tensor: tensor[first:last])

    def __len__(self) -> int:
        return len(self.labels)
