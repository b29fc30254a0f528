"""The Triton kernels of the residual: a few positions at a time, each read once and written once."""

from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

# Found by trial on an H200 (docs/LOG.md).
AT_ONCE = 2  # positions of a program
WARPS = 2
PROGRAMS = 1056  # of the way back, each with its own sums: eight for each multiprocessor


def forward(
    x: Tensor, y: Tensor, weight: Tensor, bias: Tensor, seed: Tensor, dropout: float, epsilon: float
) -> tuple[Tensor, Tensor]:
    """The normed sum, and mean and inverse deviation of each position."""
    width = y.shape[-1]
    positions = y.numel() // width
    normed = torch.empty_like(y)
    moments = torch.empty((2, positions), dtype=torch.float32, device=y.device)
    _forward[(triton.cdiv(positions, AT_ONCE),)](
        *(x, y, weight, bias, seed, normed, moments, positions, dropout, epsilon),
        *(width, triton.next_power_of_2(width), AT_ONCE, dropout > 0),
        num_warps=WARPS,
    )
    return normed, moments


def backward(
    gradient: Tensor, x: Tensor, y: Tensor, weight: Tensor, seed: Tensor, moments: Tensor, dropout: float
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The gradients of x, y, weight and bias."""
    width = y.shape[-1]
    positions = y.numel() // width
    programs = min(PROGRAMS, triton.cdiv(positions, AT_ONCE))
    x_gradient, y_gradient = torch.empty_like(x), torch.empty_like(y)
    sums = torch.empty((2, programs, width), dtype=torch.float32, device=y.device)
    _backward[(programs,)](
        *(gradient, x, y, weight, seed, moments, x_gradient, y_gradient, sums, positions, dropout),
        *(width, triton.next_power_of_2(width), AT_ONCE, dropout > 0),
        num_warps=WARPS,
    )
    weight_gradient, bias_gradient = sums.sum(1).to(weight.dtype).unbind()
    return x_gradient, y_gradient, weight_gradient.clone(), bias_gradient.clone()


@triton.jit
@no_type_check
def _kept(seed, places, dropout, DROPS: tl.constexpr):
    """What each element is multiplied with: zero where it is dropped, and more than one where it is kept.

    The finaliser of MurmurHash3 over place and seed: a dozen operations, where Philox takes a hundred and as much time
    as the memory.
    """
    if DROPS:
        salt = tl.load(seed).to(tl.uint32)
        h = places.to(tl.uint32) * 0x9E3779B1 + salt
        h = (h ^ (h >> 16)) * 0x85EBCA6B + salt
        h = (h ^ (h >> 13)) * 0xC2B2AE35
        h = h ^ (h >> 16)
        return tl.where((h >> 8).to(tl.float32) < dropout * 16777216.0, 0.0, 1 / (1 - dropout))
    else:
        return tl.full(places.shape, 1.0, tl.float32)


@triton.jit
@no_type_check
def _forward(
    x, y, weight, bias, seed, normed, moments, positions, dropout, epsilon,
    D: tl.constexpr, WIDE: tl.constexpr, AT_ONCE: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    here = tl.program_id(0) * AT_ONCE + tl.arange(0, AT_ONCE)
    channels = tl.arange(0, WIDE)
    there = (here < positions)[:, None] & (channels < D)[None, :]
    places = here[:, None] * D + channels[None, :]
    summed = tl.load(x + places, mask=there, other=0.0).to(tl.float32)
    summed += tl.load(y + places, mask=there, other=0.0).to(tl.float32) * _kept(seed, places, dropout, DROPS)
    mean = tl.sum(summed, 1) / D
    centred = tl.where(there, summed - mean[:, None], 0.0)
    inverse = tl.rsqrt(tl.sum(centred * centred, 1) / D + epsilon)
    gain = tl.load(weight + channels, mask=channels < D, other=0.0)
    shift = tl.load(bias + channels, mask=channels < D, other=0.0)
    values = centred * inverse[:, None] * gain[None, :] + shift[None, :]
    tl.store(normed + places, values.to(normed.dtype.element_ty), mask=there)
    tl.store(moments + here, mean, mask=here < positions)
    tl.store(moments + positions + here, inverse, mask=here < positions)


@triton.jit
@no_type_check
def _backward(
    gradient, x, y, weight, seed, moments, x_gradient, y_gradient, sums, positions, dropout,
    D: tl.constexpr, WIDE: tl.constexpr, AT_ONCE: tl.constexpr, DROPS: tl.constexpr,
):  # fmt: skip
    program, programs = tl.program_id(0), tl.num_programs(0)
    channels = tl.arange(0, WIDE)
    gain = tl.load(weight + channels, mask=channels < D, other=0.0)
    weight_sums = tl.zeros((WIDE,), tl.float32)
    bias_sums = tl.zeros((WIDE,), tl.float32)
    for start in range(program * AT_ONCE, positions, programs * AT_ONCE):
        here = start + tl.arange(0, AT_ONCE)
        there = (here < positions)[:, None] & (channels < D)[None, :]
        places = here[:, None] * D + channels[None, :]
        kept = _kept(seed, places, dropout, DROPS)
        summed = tl.load(x + places, mask=there, other=0.0).to(tl.float32)
        summed += tl.load(y + places, mask=there, other=0.0).to(tl.float32) * kept
        mean = tl.load(moments + here, mask=here < positions, other=0.0)[:, None]
        inverse = tl.load(moments + positions + here, mask=here < positions, other=0.0)[:, None]
        normed = tl.where(there, (summed - mean) * inverse, 0.0)
        g = tl.load(gradient + places, mask=there, other=0.0).to(tl.float32)
        weight_sums += tl.sum(g * normed, 0)
        bias_sums += tl.sum(g, 0)
        g = g * gain[None, :]
        along = tl.sum(g * normed, 1)[:, None] / D
        g = (g - tl.sum(g, 1)[:, None] / D - normed * along) * inverse
        tl.store(x_gradient + places, g.to(x_gradient.dtype.element_ty), mask=there)
        tl.store(y_gradient + places, (g * kept).to(y_gradient.dtype.element_ty), mask=there)
    tl.store(sums + program * D + channels, weight_sums, mask=channels < D)
    tl.store(sums + (programs + program) * D + channels, bias_sums, mask=channels < D)
