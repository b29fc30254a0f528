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
from dragoman.models.positions import Turn, unturned

NormPlace = Literal["post", "pre"]
NormKind = Literal["layer", "rms"]
NORMS: dict[str, Callable[[int], nn.Module]] = {"layer": nn.LayerNorm, "rms": nn.RMSNorm}


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

        x = self.self_attention_residual(x, look_around)
        return self.feed_forward_residual(x, self.feed_forward)


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

        x = self.self_attention_residual(x, look_back)
        x = self.cross_attention_residual(x, look_at_source)
        return self.feed_forward_residual(x, self.feed_forward)


class Residual(nn.Module):
    """LayerNorm(x + Dropout(Sublayer(x))), as published (sections 3.1 and 5.4)."""

    def __init__(self, width: int, dropout: float, place: NormPlace, norm: NormKind = "layer") -> None:
        super().__init__()
        self.norm = NORMS[norm](width)
        self.dropout = nn.Dropout(dropout)
        self.place = place

    def read(self, x: Float[Tensor, "B Q D"]) -> Float[Tensor, "B Q D"]:
        """What the sublayer is given."""
        return x if self.place == "post" else self.norm(x)

    def forward(self, x: Float[Tensor, "B Q D"], sublayer: Callable[[Tensor], Tensor]) -> Float[Tensor, "B Q D"]:
        """Carry x past the sublayer."""
        if self.place == "post":
            return add_and_norm(x, sublayer(self.read(x)), self.norm, self.dropout)
        # Departs from the paper: pre-norm, an option, trains without warm-up where post-norm diverges.
        return x + self.dropout(sublayer(self.read(x)))


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
