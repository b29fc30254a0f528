"""What data makes and models read: a rectangle of token rows with segments and positions.

Padding is the special case of one sentence a row; packing many sentences into one row is the general case.
Axes: B rows, S source positions, T target positions.
"""

from collections.abc import Sequence
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

    def to(self, device: torch.device) -> "Side":
        """The same side on another device."""
        ids, segments, positions = (
            tensor.to(device, non_blocking=True) for tensor in (self.ids, self.segments, self.positions)
        )
        return Side(ids, segments, positions)

    def rows(self, first: int, last: int) -> "Side":
        """The rows from first up to, not including, last."""
        return Side(self.ids[first:last], self.segments[first:last], self.positions[first:last])


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

    def to(self, device: torch.device) -> "Batch":
        """The same batch on another device."""
        labels = self.labels.to(device, non_blocking=True)
        return Batch(self.source.to(device), self.target.to(device), labels)

    def rows(self, first: int, last: int) -> "Batch":
        """The rows from first up to, not including, last."""
        return Batch(self.source.rows(first, last), self.target.rows(first, last), self.labels[first:last])

    def __len__(self) -> int:
        return len(self.labels)
