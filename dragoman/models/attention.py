"""Attention (section 3.2): scaled dot-product attention and its multi-head form.

Axes: B rows, Q queries, K keys, D width, H heads, C channels per head.
"""

from typing import NamedTuple

from jaxtyping import Float
from torch import Tensor, nn

from dragoman.kernels.attention import Visible, attend, attention_weights
from dragoman.models.positions import Turn, unturned


class KeysValues(NamedTuple):
    """What queries look at; the widths of keys and values are free of each other."""

    keys: Float[Tensor, "B H K _"]
    values: Float[Tensor, "B H K _"]


class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, ..., head_h) W^O (section 3.2.2)."""

    def __init__(self, width: int, heads: int, key_width: int, value_width: int, key_heads: int | None = None) -> None:
        super().__init__()
        self.heads = heads
        self.key_heads = key_heads or heads
        self.query = nn.Linear(width, heads * key_width, bias=False)
        self.key = nn.Linear(width, self.key_heads * key_width, bias=False)
        self.value = nn.Linear(width, self.key_heads * value_width, bias=False)
        self.output = nn.Linear(heads * value_width, width, bias=False)

    def forward(
        self,
        queries: Float[Tensor, "B Q D"],
        seen: KeysValues,
        visible: Visible | None,
        weights: list[Tensor] | None = None,
        turn: Turn = unturned,
    ) -> Float[Tensor, "B Q D"]:
        """Let every query look at the visible keys; where a list is given, append the weights to it."""
        query = turn(self.split(self.query(queries), self.heads))
        if self.key_heads < self.heads:
            # Departs from the paper: several heads may share keys and values (Ainslie et al. 2023), an option.
            seen = KeysValues(*(each.repeat_interleave(self.heads // self.key_heads, dim=1) for each in seen))
        if weights is None:
            mixed = attend(query, *seen, visible)
        else:
            weights.append(attention_weights(query, seen.keys, visible))
            mixed = weights[-1] @ seen.values
        return self.output(mixed.transpose(1, 2).flatten(2))

    def keys_values(self, memory: Float[Tensor, "B K D"], turn: Turn = unturned) -> KeysValues:
        """Project what will be looked at, once, however many queries come."""
        keys, values = (self.split(each(memory), self.key_heads) for each in (self.key, self.value))
        return KeysValues(turn(keys), values)

    def split(self, projected: Float[Tensor, "B Q HC"], heads: int) -> Float[Tensor, "B H Q C"]:
        """The channels of each head by themselves."""
        rows, length, _ = projected.shape
        return projected.view(rows, length, heads, -1).transpose(1, 2)
