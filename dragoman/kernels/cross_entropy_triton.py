"""The Triton kernel of the loss: a program a position, over its logits twice; the second time they are in the cache."""

from typing import no_type_check

import triton
import triton.language as tl
from torch import Tensor

PIECES = 2048  # of a position's logits at once
WARPS = 8


def to_gradient(logits: Tensor, labels: Tensor, losses: Tensor, vocabulary: int, smoothing: float, empty: int) -> None:
    """Write the loss of each position, and the gradient of its logits in their place; padding gets none."""
    _to_gradient[(len(logits),)](
        logits, labels, losses, vocabulary, logits.stride(0), smoothing, empty, PIECES, num_warps=WARPS
    )


@triton.jit
@no_type_check
def _to_gradient(logits, labels, losses, vocabulary, stride, smoothing, empty, PIECES: tl.constexpr):
    position = tl.program_id(0).to(tl.int64)
    label = tl.load(labels + position).to(tl.int32)
    row = logits + position * stride
    some = tl.arange(0, PIECES)
    is_real = label != empty
    end = tl.where(is_real, vocabulary, 0)
    # Each lane keeps its own maximum and sums; they meet once, at the end.
    highest = tl.full((PIECES,), -1e30, tl.float32)
    total = tl.zeros((PIECES,), tl.float32)
    plain = tl.zeros((PIECES,), tl.float32)
    for start in range(0, end, PIECES):
        there = start + some < end
        score = tl.load(row + start + some, mask=there, other=float("-inf")).to(tl.float32)
        higher = tl.maximum(highest, score)
        total = total * tl.exp(highest - higher) + tl.exp(score - higher)
        plain += tl.where(there, score, 0.0)
        highest = higher
    top = tl.max(highest)
    normaliser = top + tl.log(tl.where(is_real, tl.sum(total * tl.exp(highest - top)), 1.0))
    right = tl.load(row + tl.where(is_real, label, 0)).to(tl.float32)
    loss = normaliser - (1 - smoothing) * right - smoothing * tl.sum(plain) / vocabulary
    tl.store(losses + position, tl.where(is_real, loss, 0.0))
    tl.debug_barrier()  # no logit is written over before every warp has read what it needs
    for start in range(0, stride, PIECES):
        piece = start + some
        there = piece < end
        score = tl.load(row + piece, mask=there, other=float("-inf")).to(tl.float32)
        excess = tl.exp(score - normaliser) - smoothing / vocabulary - tl.where(piece == label, 1 - smoothing, 0.0)
        tl.store(row + piece, tl.where(there, excess, 0.0).to(logits.dtype.element_ty), mask=piece < stride)
