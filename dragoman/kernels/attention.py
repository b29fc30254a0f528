"""Scaled dot-product attention (section 3.2.1) over rows that hold several sentences.

Each query sees an interval of the keys: its own sentence's, and in the decoder none later. Spelled out as a mask, that
is torch's own attention, the reference; on a GPU a Triton kernel walks over the interval alone.
Axes: B rows, H heads, Q queries, K keys, C channels of a head.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from math import sqrt
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from dragoman.kernels import is_half_on_gpu

NONE = 1 << 30  # stands for the segment of an empty position, behind all others
CHANNELS = (16, 32, 64, 128)  # what the kernel's tiles fit
FEWEST_QUERIES = 16  # a decoding step has fewer, which our kernel's tiles would not fill


@dataclass(frozen=True)
class Visible:
    """Which keys each query may see: from `first` up to, not including, `last`. Both never fall along a row."""

    first: Int[Tensor, "B Q"]
    last: Int[Tensor, "B Q"]
    seen_from: Int[Tensor, "B K"]  # the same told by the keys: the first query that sees each,
    seen_until: Int[Tensor, "B K"]  # and the one behind the last

    @classmethod
    def same_sentence(
        cls, queries: Int[Tensor, "B Q"], keys: Int[Tensor, "B K"], causal: bool = False, window: int | None = None
    ) -> "Visible":
        """Positions of the same segment see each other; none later where causal, none farther than a window's reach.

        Empty positions see nothing.
        """
        queries, keys = _ordered(queries, NONE), _ordered(keys, NONE + 1)
        first = torch.searchsorted(keys, queries, out_int32=True)
        last = torch.searchsorted(keys, queries, out_int32=True, right=True)
        seen_from = torch.searchsorted(queries, keys, out_int32=True)
        seen_until = torch.searchsorted(queries, keys, out_int32=True, right=True)
        here = torch.arange(queries.shape[1], dtype=torch.int32, device=queries.device)
        if causal:
            last = torch.minimum(last, here + 1)
            seen_from = torch.maximum(seen_from, here)
        if window is not None:
            first, last = torch.maximum(first, here - window), torch.minimum(last, here + window + 1)
            seen_from = torch.maximum(seen_from, here - window)
            seen_until = torch.minimum(seen_until, here + window + 1)
        return cls(first, last, seen_from, seen_until)

    @cached_property
    def mask(self) -> Bool[Tensor, "B Q K"]:
        """True where a query may see a key."""
        here = torch.arange(self.seen_from.shape[1], device=self.first.device)
        return (here >= self.first[:, :, None]) & (here < self.last[:, :, None])


def attend(
    query: Float[Tensor, "B H Q C"],
    key: Float[Tensor, "B H K C"],
    value: Float[Tensor, "B H K _"],
    visible: Visible | None,
) -> Float[Tensor, "B H Q _"]:
    """softmax(QK^T / sqrt(d_k))V over what is visible; zero where nothing is."""
    is_free = query.device.type == "cpu" and not query.requires_grad and not torch.compiler.is_exporting()
    if is_free and query.shape[2] < FEWEST_QUERIES:
        return attention_weights(query, key, visible) @ value  # there torch's kernel takes longer for a few queries
    if visible is None:
        return scaled_dot_product_attention(query, key, value)
    if has_kernel(query, value) and visible.first.shape[1] == query.shape[2]:
        mixed, _ = _attend(query, key, value, visible.first, visible.last, visible.seen_from, visible.seen_until)
        return mixed
    return scaled_dot_product_attention(query, key, value, attn_mask=visible.mask[:, None])


def attention_weights(
    query: Float[Tensor, "B H Q C"], key: Float[Tensor, "B H K C"], visible: Visible | None
) -> Float[Tensor, "B H Q K"]:
    """softmax(QK^T / sqrt(d_k)), the weights of equation 1; zero where nothing is visible, as in the fused kernel."""
    scores = query @ key.transpose(-2, -1) / sqrt(query.shape[-1])
    precision = torch.promote_types(scores.dtype, torch.float32)  # as the fused kernels do
    if visible is None:
        return scores.softmax(-1, precision).to(scores.dtype)
    hidden = ~visible.mask[:, None]
    weights = scores.masked_fill(hidden, -torch.inf).softmax(-1, precision).to(scores.dtype)
    return weights.masked_fill(hidden, 0.0)  # a softmax over nothing is not a number


@contextmanager
def growing() -> Iterator[None]:
    """Attention while keys grow with every step: cuDNN would plan for tens of milliseconds at each new length."""
    was_enabled = torch.backends.cuda.cudnn_sdp_enabled()  # type: ignore[no-untyped-call]
    torch.backends.cuda.enable_cudnn_sdp(False)
    try:
        yield
    finally:
        torch.backends.cuda.enable_cudnn_sdp(was_enabled)


def has_kernel(query: Tensor, value: Tensor) -> bool:
    """Whether the kernel takes such tensors, and they are worth it: half precision on a GPU, a tile of queries."""
    fits = query.shape[-1] == value.shape[-1] and query.shape[-1] in CHANNELS
    return is_half_on_gpu(query) and fits and query.shape[-2] >= FEWEST_QUERIES


def _ordered(segments: Int[Tensor, "B S"], empty: int) -> Int[Tensor, "B S"]:
    """Segments rise along a row but for the zeros at its end."""
    return segments.masked_fill(segments == 0, empty).contiguous()


@torch.library.custom_op("dragoman::attend", mutates_args=())
def _attend(
    query: Tensor, key: Tensor, value: Tensor, first: Tensor, last: Tensor, seen_from: Tensor, seen_until: Tensor
) -> tuple[Tensor, Tensor]:
    from dragoman.kernels import attention_triton  # Triton comes with torch's builds for a GPU alone

    return attention_triton.forward(query, key, value, first, last)


@torch.library.custom_op("dragoman::attend_backward", mutates_args=())
def _attend_backward(
    gradient: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    mixed: Tensor,
    normaliser: Tensor,
    first: Tensor,
    last: Tensor,
    seen_from: Tensor,
    seen_until: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    from dragoman.kernels import attention_triton

    intervals = (first, last, seen_from, seen_until)
    return attention_triton.backward(gradient, query, key, value, mixed, normaliser, *intervals)


@_attend.register_fake
def _(
    query: Tensor, key: Tensor, value: Tensor, first: Tensor, last: Tensor, seen_from: Tensor, seen_until: Tensor
) -> tuple[Tensor, Tensor]:
    return like(query), query.new_empty(query.shape[:3], dtype=torch.float32)


@_attend_backward.register_fake
def _(gradient: Tensor, query: Tensor, key: Tensor, value: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return like(query), like(key), like(value)


def like(tensor: Float[Tensor, "B H Q C"]) -> Float[Tensor, "B H Q C"]:
    """A tensor of this shape whose heads lie side by side in memory, as the projections before and after want them."""
    rows, heads, length, channels = tensor.shape
    return tensor.new_empty(rows, length, heads, channels).transpose(1, 2)


def _keep(ctx: Any, inputs: tuple[Tensor, ...], output: tuple[Tensor, Tensor]) -> None:
    query, key, value, *intervals = inputs
    ctx.save_for_backward(query, key, value, *output, *intervals)


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*_attend_backward(gradient, *ctx.saved_tensors), None, None, None, None)


_attend.register_autograd(_differentiate, setup_context=_keep)
