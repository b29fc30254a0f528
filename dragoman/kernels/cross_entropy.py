"""Projection and label-smoothed cross entropy in one operation (sections 3.4 and 5.4).

The logits are the largest tensor of a step. Here they are made for some positions at a time, turned into the loss and,
in the same memory, into their own gradient, and that into the gradients of what they came from, all on the way forth.
Axes: N positions, D width, V vocabulary.
"""

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn import functional

from dragoman.kernels import is_half_on_gpu

LOGITS_BYTES = 1 << 30  # at once
ROUND_TO = 64  # pieces; the matrix units fall off their fast path where rows are not aligned


def smoothed_loss(
    hidden: Float[Tensor, "N D"], weight: Float[Tensor, "V D"], labels: Int[Tensor, " N"], smoothing: float, empty: int
) -> Float[Tensor, ""]:
    """The loss summed over the labels that are not empty; smoothing spreads its share evenly over the vocabulary."""
    if has_kernel(hidden):
        return _smoothed_loss(hidden, weight, labels, smoothing, empty)[0]
    logits = functional.linear(hidden, weight)
    return functional.cross_entropy(
        logits.float(), labels, ignore_index=empty, label_smoothing=smoothing, reduction="sum"
    )


def has_kernel(hidden: Tensor) -> bool:
    """Whether the kernel takes such a tensor."""
    return is_half_on_gpu(hidden)


@torch.library.custom_op("dragoman::smoothed_loss", mutates_args=())
def _smoothed_loss(
    hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, empty: int
) -> tuple[Tensor, Tensor, Tensor]:
    from dragoman.kernels import cross_entropy_triton  # Triton comes with torch's builds for a GPU alone

    vocabulary, width = weight.shape
    padded = hidden.new_zeros(-(-vocabulary // ROUND_TO) * ROUND_TO, width)
    padded[:vocabulary] = weight
    losses = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)
    hidden_gradient = torch.empty_like(hidden)
    weight_gradient = torch.zeros_like(weight)
    at_once = max(1, LOGITS_BYTES // (len(padded) * hidden.element_size()))
    for first in range(0, len(hidden), at_once):
        some = slice(first, first + at_once)
        logits = hidden[some] @ padded.T
        cross_entropy_triton.to_gradient(logits, labels[some], losses[some], vocabulary, smoothing, empty)
        torch.mm(logits, padded, out=hidden_gradient[some])
        weight_gradient += (logits.T @ hidden[some])[:vocabulary]
    return losses.sum(), hidden_gradient, weight_gradient


@_smoothed_loss.register_fake
def _(hidden: Tensor, weight: Tensor, labels: Tensor, smoothing: float, empty: int) -> tuple[Tensor, Tensor, Tensor]:
    return hidden.new_empty((), dtype=torch.float32), torch.empty_like(hidden), torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    ctx.save_for_backward(*output[1:])


def _differentiate(ctx: Any, gradient: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
    hidden_gradient, weight_gradient = ctx.saved_tensors
    return hidden_gradient * gradient.to(hidden_gradient.dtype), weight_gradient * gradient, None, None, None


_smoothed_loss.register_autograd(_differentiate, setup_context=_keep)
