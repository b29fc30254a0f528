"""The Triton kernels of attention: tiles of queries against the interval of keys that any of them sees, and back.

The softmax is computed along the way (Milakov and Gimelshein 2018, Dao et al. 2022), so no weight is ever written.
Powers are of two, since that is what the hardware has: a query's weights are 2^(scores - normaliser).
Every tensor lies in memory as rows x positions x heads x channels; `stride` is what lies between two positions.
"""

from math import log, sqrt
from typing import no_type_check

import torch
import triton
import triton.language as tl
from torch import Tensor

from dragoman.kernels.attention import like

# Positions of a tile and warps that share it, found by trial on an H200 (docs/LOG.md).
FORWARD, FORWARD_WARPS = 64, 4
BACKWARD, BACKWARD_WARPS = 32, 2


def forward(query: Tensor, key: Tensor, value: Tensor, first: Tensor, last: Tensor) -> tuple[Tensor, Tensor]:
    """What each query sees, and its normaliser."""
    rows, heads, queries, channels = query.shape
    query, key, value = map(_side_by_side, (query, key, value))
    mixed = like(query)
    normaliser = torch.empty(query.shape[:3], dtype=torch.float32, device=query.device)
    _forward[triton.cdiv(queries, FORWARD), heads, rows](
        *(query, key, value, mixed, normaliser, first, last),
        *(query.stride(2), key.stride(2), value.stride(2)),
        *(1 / (sqrt(channels) * log(2)), heads, queries, key.shape[2], channels, FORWARD),
        num_warps=FORWARD_WARPS,
    )
    return mixed, normaliser


def backward(
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
    """The gradients of query, key and value."""
    rows, heads, queries, channels = query.shape
    keys = key.shape[2]
    gradient, query, key, value = map(_side_by_side, (gradient, query, key, value))
    query_gradient, key_gradient, value_gradient = like(query), like(key), like(value)
    falling = torch.empty_like(normaliser)
    given = (gradient, query, key, value, gradient.stride(2), query.stride(2), key.stride(2), value.stride(2))
    sizes = (1 / (sqrt(channels) * log(2)), 1 / sqrt(channels), heads, queries, keys, channels, BACKWARD)
    _backward_queries[triton.cdiv(queries, BACKWARD), heads, rows](
        *given, mixed, normaliser, falling, query_gradient, first, last, *sizes, num_warps=BACKWARD_WARPS
    )
    _backward_keys[triton.cdiv(keys, BACKWARD), heads, rows](
        *given,
        *(normaliser, falling, key_gradient, value_gradient, first, last, seen_from, seen_until),
        *sizes,
        num_warps=BACKWARD_WARPS,
    )
    return query_gradient, key_gradient, value_gradient


def _side_by_side(tensor: Tensor) -> Tensor:
    """The tensor itself if its heads lie side by side, as projections write them; else a copy that does."""
    length, channels = tensor.shape[2:]
    stride = tensor.stride(2)
    if tensor.stride() == (length * stride, channels, stride, 1):
        return tensor
    return tensor.transpose(1, 2).contiguous().transpose(1, 2)


@triton.jit
@no_type_check
def _tile(start, row, head, length, stride, C: tl.constexpr, TILE: tl.constexpr):
    """Where a tile of positions lies, and which of them there are."""
    here = start + tl.arange(0, TILE)
    places = (row * length + here)[:, None] * stride + head * C + tl.arange(0, C)[None, :]
    return places, here < length


@triton.jit
@no_type_check
def _load(tensor, start, row, head, length, stride, C: tl.constexpr, TILE: tl.constexpr):
    places, there = _tile(start, row, head, length, stride, C, TILE)
    return tl.load(tensor + places, mask=there[:, None], other=0.0)


@triton.jit
@no_type_check
def _store(tensor, values, start, row, head, length, stride, C: tl.constexpr, TILE: tl.constexpr):
    places, there = _tile(start, row, head, length, stride, C, TILE)
    tl.store(tensor + places, values.to(tensor.dtype.element_ty), mask=there[:, None])


@triton.jit
@no_type_check
def _interval(first, last, start, row, queries, keys, TILE: tl.constexpr):
    """The keys that each query of a tile sees; none for those behind the end of the row."""
    here = start + tl.arange(0, TILE)
    begin = tl.load(first + row * queries + here, mask=here < queries, other=keys)
    end = tl.load(last + row * queries + here, mask=here < queries, other=0)
    return begin, end


@triton.jit
@no_type_check
def _forward(
    query, key, value, mixed, normaliser, first, last, query_stride, key_stride, value_stride,
    scale, heads, queries, keys, C: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block, head, row = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2).to(tl.int64)
    begin, end = _interval(first, last, block, row, queries, keys, TILE)
    q = _load(query, block, row, head, queries, query_stride, C, TILE)
    highest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    sums = tl.zeros((TILE, C), tl.float32)
    for start in range(tl.min(begin), tl.max(end), TILE):
        k = _load(key, start, row, head, keys, key_stride, C, TILE)
        v = _load(value, start, row, head, keys, value_stride, C, TILE)
        here = start + tl.arange(0, TILE)[None, :]
        visible = (here >= begin[:, None]) & (here < end[:, None])
        scores = tl.where(visible, tl.dot(q, tl.trans(k)) * scale, float("-inf"))
        higher = tl.maximum(highest, tl.max(scores, 1))
        base = tl.where(higher == float("-inf"), 0.0, higher)  # nothing seen yet
        weights = tl.exp2(scores - base[:, None])
        shrink = tl.exp2(highest - base)
        total = total * shrink + tl.sum(weights, 1)
        sums = sums * shrink[:, None] + tl.dot(weights.to(v.dtype), v)
        highest = higher
    divisor = tl.where(total > 0, total, 1.0)
    _store(mixed, sums / divisor[:, None], block, row, head, queries, heads * C, C, TILE)
    here = block + tl.arange(0, TILE)
    logarithm = tl.where(total > 0, highest + tl.log2(divisor), 0.0)
    tl.store(normaliser + (row * heads + head) * queries + here, logarithm, mask=here < queries)


@triton.jit
@no_type_check
def _backward_queries(
    gradient, query, key, value, gradient_stride, query_stride, key_stride, value_stride,
    mixed, normaliser, falling, query_gradient, first, last,
    scale, slope, heads, queries, keys, C: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block, head, row = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2).to(tl.int64)
    begin, end = _interval(first, last, block, row, queries, keys, TILE)
    q = _load(query, block, row, head, queries, query_stride, C, TILE)
    g = _load(gradient, block, row, head, queries, gradient_stride, C, TILE)
    seen = _load(mixed, block, row, head, queries, heads * C, C, TILE)
    here = block + tl.arange(0, TILE)
    at = (row * heads + head) * queries + here
    norm = tl.load(normaliser + at, mask=here < queries, other=0.0)
    # What the softmax takes back from every score of a query, since its weights sum to one.
    fall = tl.sum(g.to(tl.float32) * seen.to(tl.float32), 1)
    tl.store(falling + at, fall, mask=here < queries)
    sums = tl.zeros((TILE, C), tl.float32)
    for start in range(tl.min(begin), tl.max(end), TILE):
        k = _load(key, start, row, head, keys, key_stride, C, TILE)
        v = _load(value, start, row, head, keys, value_stride, C, TILE)
        there = start + tl.arange(0, TILE)[None, :]
        visible = (there >= begin[:, None]) & (there < end[:, None])
        weights = tl.where(visible, tl.exp2(tl.dot(q, tl.trans(k)) * scale - norm[:, None]), 0.0)
        risen = weights * (tl.dot(g, tl.trans(v)) - fall[:, None])
        sums += tl.dot(risen.to(k.dtype), k)
    _store(query_gradient, sums * slope, block, row, head, queries, heads * C, C, TILE)


@triton.jit
@no_type_check
def _backward_keys(
    gradient, query, key, value, gradient_stride, query_stride, key_stride, value_stride,
    normaliser, falling, key_gradient, value_gradient, first, last, seen_from, seen_until,
    scale, slope, heads, queries, keys, C: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    block, head, row = tl.program_id(0) * TILE, tl.program_id(1), tl.program_id(2).to(tl.int64)
    k = _load(key, block, row, head, keys, key_stride, C, TILE)
    v = _load(value, block, row, head, keys, value_stride, C, TILE)
    here = block + tl.arange(0, TILE)
    begin = tl.load(seen_from + row * keys + here, mask=here < keys, other=queries)
    end = tl.load(seen_until + row * keys + here, mask=here < keys, other=0)
    key_sums = tl.zeros((TILE, C), tl.float32)
    value_sums = tl.zeros((TILE, C), tl.float32)
    for start in range(tl.min(begin), tl.max(end), TILE):
        q = _load(query, start, row, head, queries, query_stride, C, TILE)
        g = _load(gradient, start, row, head, queries, gradient_stride, C, TILE)
        lowest, highest = _interval(first, last, start, row, queries, keys, TILE)
        there = start + tl.arange(0, TILE)
        at = (row * heads + head) * queries + there
        norm = tl.load(normaliser + at, mask=there < queries, other=0.0)
        fall = tl.load(falling + at, mask=there < queries, other=0.0)
        visible = (here[:, None] >= lowest[None, :]) & (here[:, None] < highest[None, :])
        weights = tl.where(visible, tl.exp2(tl.dot(k, tl.trans(q)) * scale - norm[None, :]), 0.0)
        value_sums += tl.dot(weights.to(g.dtype), g)
        risen = weights * (tl.dot(v, tl.trans(g)) - fall[None, :])
        key_sums += tl.dot(risen.to(q.dtype), q)
    _store(key_gradient, key_sums * slope, block, row, head, keys, heads * C, C, TILE)
    _store(value_gradient, value_sums, block, row, head, keys, heads * C, C, TILE)
