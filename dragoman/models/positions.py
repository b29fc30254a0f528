"""Positions (section 3.5): sinusoidal, learned, or none.

Axes: B rows, S positions, D width.
"""

from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned", "none"]


def sinusoids(length: int, width: int) -> Float[Tensor, "S D"]:
    """PE(pos, 2i) = sin(pos / 10000^(2i/d_model)), PE(pos, 2i+1) = cos of the same: interleaved."""
    even = torch.arange(0, width, 2, dtype=torch.float64)
    angles = torch.arange(length, dtype=torch.float64)[:, None] / 10000 ** (even / width)
    # An odd width has one sine more than cosines.
    return torch.stack((angles.sin(), angles.cos()), dim=-1).flatten(1)[:, :width].float()


class Positions(nn.Module):
    """Adds to each embedding what says where in its sentence it stands."""

    def __init__(self, kind: PositionKind, longest: int, width: int) -> None:
        super().__init__()
        self.table: Tensor | None
        match kind:
            case "sinusoidal":
                self.register_buffer("table", sinusoids(longest, width), persistent=False)
            case "learned":
                self.table = nn.Parameter(torch.randn(longest, width) * width**-0.5)
            case "none":
                self.table = None

    def forward(self, embedded: Float[Tensor, "B S D"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Embeddings with their positions."""
        if self.table is None:
            return embedded
        return embedded + nn.functional.embedding(positions, self.table)
