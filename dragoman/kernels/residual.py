"""The residual of the paper in one pass: LayerNorm(x + Dropout(y)) (sections 3.1 and 5.4).

Every sublayer ends with it, and all it does is move memory: torch's way writes the dropped, the summed and the normed
and reads them again. What is dropped is drawn from a seed, and drawn again on the way back, never written.
Axes: B rows, Q positions, D width.
"""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from dragoman.kernels import is_half_on_gpu

WIDEST = 8192  # a row of a tensor that still fits a program's registers


def add_and_norm(
    x: Float[Tensor, "B Q D"], y: Float[Tensor, "B Q D"], norm: nn.Module, dropout: nn.Dropout
) -> Float[Tensor, "B Q D"]:
    """LayerNorm(x + Dropout(y)); in half precision, where y is, but for the arithmetic. Other norms go torch's way."""
    if not (has_kernel(y) and isinstance(norm, nn.LayerNorm)):
        return norm(x + dropout(y))
    share = dropout.p if dropout.training else 0.0
    seed = torch.randint(1 << 31, (1,), device=y.device)
    return _add_and_norm(x, y, norm.weight, norm.bias, seed, share, norm.eps)[0]


def has_kernel(y: Tensor) -> bool:
    """Whether the kernel takes such a tensor, and is worth it: while translating, torch's own start sooner."""
    return torch.is_grad_enabled() and is_half_on_gpu(y) and y.shape[-1] <= WIDEST


@torch.library.custom_op("dragoman::add_and_norm", mutates_args=())
def _add_and_norm(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    from dragoman.kernels import residual_triton  # Triton comes with torch's builds for a GPU alone

    return residual_triton.forward(x.contiguous(), y.contiguous(), weight, bias, seed, dropout, epsilon)


@torch.library.custom_op("dragoman::add_and_norm_backward", mutates_args=())
def _add_and_norm_backward(
    gradient: Tensor, x: Tensor, y: Tensor, weight: Tensor, seed: Tensor, moments: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from dragoman.kernels import residual_triton

    return residual_triton.backward(
        gradient.contiguous(), x.contiguous(), y.contiguous(), weight, seed, moments, dropout
    )


@_add_and_norm.register_fake
def _(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    moments = y.new_empty((2, y.numel() // y.shape[-1]), dtype=torch.float32)
    return torch.empty_like(y, memory_format=torch.contiguous_format), moments


@_add_and_norm_backward.register_fake
def _(
    gradient: Tensor, x: Tensor, y: Tensor, weight: Tensor, seed: Tensor, moments: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dx, dy = (torch.empty_like(each, memory_format=torch.contiguous_format) for each in (x, y))
    return dx, dy, torch.empty_like(weight), torch.empty_like(weight)


def _keep(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, y, weight, _, seed, ctx.dropout, _ = inputs
    ctx.save_for_backward(x, y, weight, seed, output[1])


def _differentiate(ctx: Any, gradient: Tensor, _: Tensor) -> tuple[Tensor | None, ...]:
    return (*_add_and_norm_backward(gradient, *ctx.saved_tensors, ctx.dropout), None, None, None)


_add_and_norm.register_autograd(_differentiate, setup_context=_keep)
