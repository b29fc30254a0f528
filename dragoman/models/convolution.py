"""Convolutions over rows that hold several sentences: a window never reaches into another one.

Axes: B rows, S positions, T places, D width, K earlier positions that a window holds, N hypotheses.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from dragoman.models.interface import State


def states_at(states: Float[Tensor, "B S D"], place: Int[Tensor, "B T"]) -> Float[Tensor, "B T D"]:
    """The states at these places of their rows; past the end the last."""
    place = place.clamp(max=states.shape[1] - 1).long()
    return states.gather(1, place[:, :, None].expand(-1, -1, states.shape[2]))


class Convolution(nn.Module):
    """A linear map of the window around each position or, where causal, of the window that ends there."""

    def __init__(self, inputs: int, outputs: int, kernel: int, dilation: int = 1, is_causal: bool = False) -> None:
        super().__init__()
        self.inputs, self.dilation = inputs, dilation
        self.behind = (kernel - 1) * dilation
        self.ahead = 0 if is_causal else self.behind // 2
        self.behind -= self.ahead
        self.map = nn.Linear(kernel * inputs, outputs)

    def forward(self, x: Float[Tensor, "B S _"], segments: Int[Tensor, "B S"]) -> Float[Tensor, "B S _"]:
        """For every position at once; what is not of its sentence is zero, as what lies before a row is."""
        padded = nn.functional.pad(x, (0, 0, self.behind, self.ahead))
        owners = nn.functional.pad(segments, (self.behind, self.ahead))
        window = []
        for first in range(0, self.behind + self.ahead + 1, self.dilation):
            there = slice(first, first + x.shape[1])
            is_foreign = owners[:, there] != segments
            window.append(padded[:, there].masked_fill(is_foreign[:, :, None], 0.0))
        return self.map(torch.cat(window, dim=-1))

    def start(self, rows: int, like: Tensor) -> Float[Tensor, "N K _"]:
        """What a causal window holds before the first position."""
        return like.new_zeros(rows, self.behind, self.inputs)

    def step(self, x: Float[Tensor, "*any _"], state: State, name: str) -> Float[Tensor, "*any _"]:
        """One position further; the state holds, under this name, the inputs that later windows will see."""
        window = torch.cat((state[name], x.reshape(-1, 1, self.inputs)), dim=1)
        state[name] = window[:, 1:]
        return self.map(window[:, :: self.dilation].flatten(1)).view(*x.shape[:-1], -1)
