"""The layers of Figure 1: an encoder layer has two sublayers, a decoder layer three, each in a residual.

Axes: B rows, S source positions, Q queries, K keys, D width, N hypotheses.
"""

from collections.abc import Callable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dragoman.kernels.attention import Visible
from dragoman.kernels.residual import add_and_norm
from dragoman.models.attention import KeysValues, MultiHeadAttention
from dragoman.models.positions import Turn, unturned

NormPlace = Literal["post", "pre"]
NormKind = Literal["layer", "rms", "batch", "none"]


class EncoderLayer(nn.Module):
    """Follow Figure 1, left: self-attention, then feed-forward."""

    def __init__(
        self,
        attention: Callable[[], MultiHeadAttention],
        feed_forward: Callable[[], nn.Module],
        residual: Callable[[], "Residual"],
    ) -> None:
        super().__init__()
        self.self_attention = attention()
        self.feed_forward = feed_forward()
        self.self_attention_residual = residual()
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        visible: Visible,
        turn: Turn = unturned,
        weights: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """One step up the encoder."""

        def look_around(y: Tensor) -> Tensor:
            return self.self_attention(y, self.self_attention.keys_values(y, turn), visible, weights, turn)

        x = self.self_attention_residual(x, look_around, visible)
        return self.feed_forward_residual(x, self.feed_forward, visible)


class DecoderLayer(nn.Module):
    """Follow Figure 1, right: self-attention that sees no later position, cross-attention, feed-forward."""

    def __init__(
        self,
        attention: Callable[[], MultiHeadAttention],
        feed_forward: Callable[[], nn.Module],
        residual: Callable[[], "Residual"],
    ) -> None:
        super().__init__()
        self.self_attention = attention()
        self.cross_attention = attention()
        self.feed_forward = feed_forward()
        self.self_attention_residual = residual()
        self.cross_attention_residual = residual()
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Float[Tensor, "N Q D"],
        visible: Visible | None,
        memory: KeysValues,
        memory_visible: Visible,
        remember: Callable[[KeysValues], KeysValues] = lambda new: new,
        turn: Turn = unturned,
        weights: tuple[list[Tensor], list[Tensor]] | tuple[None, None] = (None, None),
    ) -> Float[Tensor, "N Q D"]:
        """One step up the decoder; `remember` returns new keys and values behind those of earlier steps."""

        def look_back(y: Tensor) -> Tensor:
            seen = remember(self.self_attention.keys_values(y, turn))
            return self.self_attention(y, seen, visible, weights[0], turn)

        def look_at_source(y: Tensor) -> Tensor:
            # The hypotheses of a sentence are so many queries against its one row of memory.
            queries = y.reshape(memory.keys.shape[0], -1, y.shape[-1])
            return self.cross_attention(queries, memory, memory_visible, weights[1]).view_as(y)

        x = self.self_attention_residual(x, look_back, visible)
        x = self.cross_attention_residual(x, look_at_source, visible)
        return self.feed_forward_residual(x, self.feed_forward, visible)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), as published (sections 3.1 and 5.4)."""

    def __init__(
        self, width: int, dropout: float, place: NormPlace, norm: NormKind = "layer", carries: bool = True
    ) -> None:
        super().__init__()
        self.norm = NORMS[norm](width)
        self.dropout = nn.Dropout(dropout)
        self.place = place
        self.carries = carries

    def read(self, x: Float[Tensor, "B Q D"], visible: Visible | None = None) -> Float[Tensor, "B Q D"]:
        """What the sublayer is given."""
        return x if self.place == "post" else normalise(self.norm, x, visible)

    def forward(
        self, x: Float[Tensor, "B Q D"], sublayer: Callable[[Tensor], Tensor], visible: Visible | None = None
    ) -> Float[Tensor, "B Q D"]:
        """Carry x past the sublayer; what its positions see tells a batch norm which of them are real."""
        y = sublayer(self.read(x, visible))
        carried = x if self.carries else torch.zeros_like(x)
        if self.place == "pre":
            # Departs from the paper: pre-norm, an option, trains without warm-up where post-norm diverges.
            return carried + self.dropout(y)
        if isinstance(self.norm, BatchNorm):
            return self.norm(carried + self.dropout(y), visible)
        return add_and_norm(carried, y, self.norm, self.dropout)


class BatchNorm(nn.Module):
    """Departs from the paper: each channel by its mean and deviation over a batch (Ioffe and Szegedy 2015), an option.

    Empty positions see nothing, and so they are not counted. What is counted in training is averaged for what comes
    after it, so that a sentence is translated alike whatever stands beside it.

    In training a position is influenced by later ones through the statistics, which are theirs too; at evaluation it
    is not.
    """

    mean: Tensor
    variance: Tensor

    def __init__(self, width: int, momentum: float = 0.1, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.bias = nn.Parameter(torch.zeros(width))
        self.register_buffer("mean", torch.zeros(width))
        self.register_buffer("variance", torch.ones(width))
        self.momentum, self.epsilon = momentum, epsilon

    def forward(self, x: Float[Tensor, "B Q D"], visible: Visible | None = None) -> Float[Tensor, "B Q D"]:
        """By the batch's own statistics while training, by their running averages afterwards."""
        mean, variance = self._count(x, visible) if self.training else (self.mean, self.variance)
        return (x - mean) * (variance + self.epsilon).rsqrt() * self.weight + self.bias

    def _count(
        self, x: Float[Tensor, "B Q D"], visible: Visible | None
    ) -> tuple[Float[Tensor, " D"], Float[Tensor, " D"]]:
        real = torch.ones_like(x[..., 0]) if visible is None else visible.first < visible.last
        # Weights, not a selection, for whose size a GPU would have to be waited for.
        share = real.to(self.mean.dtype)[..., None]
        share = share / share.sum().clamp(min=1)
        mean = (x * share).sum((0, 1))
        variance = ((x - mean).square() * share).sum((0, 1))
        with torch.no_grad():
            self.mean.lerp_(mean.to(self.mean.dtype), self.momentum)
            self.variance.lerp_(variance.to(self.mean.dtype), self.momentum)
        return mean, variance


# "none" takes the width too, and needs it not.
NORMS: dict[str, Callable[[int], nn.Module]] = {
    "layer": nn.LayerNorm,
    "rms": nn.RMSNorm,
    "batch": BatchNorm,
    "none": nn.Identity,
}


def normalise(norm: nn.Module, x: Float[Tensor, "B Q D"], visible: Visible | None) -> Float[Tensor, "B Q D"]:
    """Batch norm alone asks which positions are real."""
    return norm(x, visible) if isinstance(norm, BatchNorm) else norm(x)


class FeedForward(nn.Module):
    """FFN(x) = max(0, xW_1 + b_1)W_2 + b_2 (section 3.3, equation 2)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """The same for every position."""
        return self.contract(self.expand(x).relu())


class GatedFeedForward(nn.Module):
    """Departs from the paper: (silu(xW) * xV)W_2, an option that came later (Shazeer 2020), without biases."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.gate = nn.Linear(width, hidden, bias=False)
        self.expand = nn.Linear(width, hidden, bias=False)
        self.contract = nn.Linear(hidden, width, bias=False)

    def forward(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """The same for every position."""
        return self.contract(nn.functional.silu(self.gate(x)) * self.expand(x))
