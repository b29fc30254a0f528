"""The layers of Figure 1: an encoder layer has two sublayers, a decoder layer three, each in a residual.

Axes: B rows, S source positions, Q queries, K keys, D width, N hypotheses.
"""

from collections.abc import Callable
from typing import Literal

from jaxtyping import Float
from torch import Tensor, nn

from dragoman.kernels.attention import Visible
from dragoman.kernels.residual import add_and_norm
from dragoman.models.attention import KeysValues, MultiHeadAttention

NormPlace = Literal["post", "pre"]


class EncoderLayer(nn.Module):
    """Follow Figure 1, left: self-attention, then feed-forward."""

    def __init__(
        self, attention: Callable[[], MultiHeadAttention], hidden: int, residual: Callable[[], "Residual"]
    ) -> None:
        super().__init__()
        self.self_attention = attention()
        self.feed_forward = FeedForward(self.self_attention.query.in_features, hidden)
        self.self_attention_residual = residual()
        self.feed_forward_residual = residual()

    def forward(
        self,
        x: Float[Tensor, "B S D"],
        visible: Visible,
        weights: list[Tensor] | None = None,
    ) -> Float[Tensor, "B S D"]:
        """One step up the encoder."""
        attention = self.self_attention
        x = self.self_attention_residual(x, lambda y: attention(y, attention.keys_values(y), visible, weights))
        return self.feed_forward_residual(x, self.feed_forward)


class DecoderLayer(nn.Module):
    """Follow Figure 1, right: self-attention that sees no later position, cross-attention, feed-forward."""

    def __init__(
        self, attention: Callable[[], MultiHeadAttention], hidden: int, residual: Callable[[], "Residual"]
    ) -> None:
        super().__init__()
        self.self_attention = attention()
        self.cross_attention = attention()
        self.feed_forward = FeedForward(self.self_attention.query.in_features, hidden)
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
        weights: tuple[list[Tensor], list[Tensor]] | tuple[None, None] = (None, None),
    ) -> Float[Tensor, "N Q D"]:
        """One step up the decoder; `remember` returns new keys and values behind those of earlier steps."""

        def look_back(y: Tensor) -> Tensor:
            seen = remember(self.self_attention.keys_values(y))
            return self.self_attention(y, seen, visible, weights[0])

        def look_at_source(y: Tensor) -> Tensor:
            # The hypotheses of a sentence are so many queries against its one row of memory.
            queries = y.reshape(len(memory.keys), -1, y.shape[-1])
            return self.cross_attention(queries, memory, memory_visible, weights[1]).view_as(y)

        x = self.self_attention_residual(x, look_back)
        x = self.cross_attention_residual(x, look_at_source)
        return self.feed_forward_residual(x, self.feed_forward)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), as published (sections 3.1 and 5.4)."""

    def __init__(self, width: int, dropout: float, norm: NormPlace) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.dropout = nn.Dropout(dropout)
        self.place = norm

    def forward(self, x: Float[Tensor, "B Q D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B Q D"]:
        """Carry x past the sublayer."""
        if self.place == "post":
            return add_and_norm(x, sublayer(x), self.norm, self.dropout)
        # Departs from the paper: pre-norm, an option, trains without warm-up where post-norm diverges.
        return x + self.dropout(sublayer(self.norm(x)))


class FeedForward(nn.Module):
    """FFN(x) = max(0, xW_1 + b_1)W_2 + b_2 (section 3.3, equation 2)."""

    def __init__(self, width: int, hidden: int) -> None:
        super().__init__()
        self.expand = nn.Linear(width, hidden)
        self.contract = nn.Linear(hidden, width)

    def forward(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """The same for every position."""
        return self.contract(self.expand(x).relu())
