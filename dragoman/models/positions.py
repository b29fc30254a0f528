"""Positions (section 3.5): sinusoidal, learned, or none; and rotary, which came later.

Axes: B rows, S positions, D width, H heads, C channels of a head.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

PositionKind = Literal["sinusoidal", "learned", "none", "rotary"]
Turn = Callable[[Tensor], Tensor]  # of queries or keys, before they meet


def unturned(x: Tensor) -> Tensor:
    """As the paper has it: positions are in the embeddings, and nothing is turned."""
    return x


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
            case "none" | "rotary":
                self.table = None
        self.is_rotary = kind == "rotary"

    def forward(self, embedded: Float[Tensor, "B S D"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B S D"]:
        """Embeddings with their positions."""
        if self.table is None:
            return embedded
        return embedded + nn.functional.embedding(positions, self.table)

    def turning(self, positions: Int[Tensor, "B S"]) -> Turn:
        """How queries and keys at these positions are turned before they meet."""
        return partial(rotate, positions=positions) if self.is_rotary else unturned


def rotate(x: Float[Tensor, "B H S C"], positions: Int[Tensor, "B S"]) -> Float[Tensor, "B H S C"]:
    """Turn each pair of channels by an angle that grows with the position (Su et al. 2021).

    A turned query and a turned key agree by how far apart they stand, wherever that is. The angles are those of the
    paper's sinusoids; an odd channel at the end is left as it is.
    """
    channels, paired = x.shape[-1], x.shape[-1] // 2 * 2
    speeds = 10000 ** (-torch.arange(0, paired, 2, device=x.device) / channels)
    angles = positions[:, None, :, None] * speeds
    exact = x.to(torch.promote_types(x.dtype, torch.float32))  # half precision cannot tell far positions apart
    even, odd, rest = exact[..., 0:paired:2], exact[..., 1:paired:2], exact[..., paired:]
    turned = torch.stack((even * angles.cos() - odd * angles.sin(), even * angles.sin() + odd * angles.cos()), dim=-1)
    return torch.cat((turned.flatten(-2), rest), dim=-1).to(x.dtype)
