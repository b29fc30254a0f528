"""The layers of Table 1 (section 4), bare: what the table counts and no more.

Attention comes without its projections, whose cost is n d^2, as that of a recurrent step's matrices. Every layer takes
and returns positions by channels, so that layers can be stacked and their costs compared.
Axes: B rows, S positions, Q queries, K keys, D width.
"""

from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import pad

from dragoman.kernels.attention import attend, attention_weights


class SelfAttention(nn.Module):
    """Every position looks at every position: equation 1 with one head, its weights written out."""

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Queries, keys and values are the positions themselves."""
        heads = x[:, None]
        return (attention_weights(heads, heads, None) @ heads)[:, 0]


class FusedSelfAttention(nn.Module):
    """The same in torch's fused kernel, which the models run: the weights are never written."""

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Queries, keys and values are the positions themselves."""
        heads = x[:, None]
        return attend(heads, heads, heads, None)[:, 0]


class RestrictedSelfAttention(nn.Module):
    """Every position looks at r neighbours, half of them to each side."""

    def __init__(self, neighbours: int) -> None:
        super().__init__()
        self.neighbours = neighbours

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """Queries in blocks of r, each block beside the 2 r keys that hold the neighbours of all its queries."""
        size, length = self.neighbours, x.shape[1]
        blocks, before = -(-length // size), self.neighbours // 2
        queries = pad(x, (0, 0, 0, blocks * size - length)).view(len(x), blocks, size, -1)
        beside = pad(x, (0, 0, before, (blocks + 1) * size - before - length)).unfold(1, 2 * size, size)  # B _ D K
        ahead = torch.arange(2 * size, device=x.device) - torch.arange(size, device=x.device)[:, None]
        places = (
            torch.arange(2 * size, device=x.device) - before + size * torch.arange(blocks, device=x.device)[:, None]
        )
        is_there = (places >= 0) & (places < length)
        hidden = ~((ahead >= 0) & (ahead < size) & is_there[:, None])
        # Not minus infinity: the queries that fill up the last block may see nothing.
        scores = (queries @ beside / sqrt(x.shape[-1])).masked_fill(hidden, torch.finfo(x.dtype).min)
        return (scores.softmax(-1) @ beside.transpose(-2, -1)).flatten(1, 2)[:, :length]


class Recurrence(nn.Module):
    """A state goes from position to position."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cell = nn.RNNCell(width, width)

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """One step after the other."""
        state, states = torch.zeros_like(x[:, 0]), []
        for position in x.unbind(1):
            state = self.cell(position, state)
            states.append(state)
        return torch.stack(states, dim=1)

    def step(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """How far one step carries: each position from itself and from what its predecessor holds."""
        before = pad(x, (0, 0, 1, -1))
        return self.cell(x.flatten(0, 1), before.flatten(0, 1)).view_as(x)


class Convolution(nn.Module):
    """Every position sees k positions that end with it, or every so many-th where dilated."""

    def __init__(self, width: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.before = (kernel - 1) * dilation
        self.convolution = nn.Conv1d(width, width, kernel, dilation=dilation)

    def forward(self, x: Float[Tensor, "B S D"]) -> Float[Tensor, "B S D"]:
        """All positions at once."""
        return self.convolution(pad(x.transpose(1, 2), (self.before, 0))).transpose(1, 2)
