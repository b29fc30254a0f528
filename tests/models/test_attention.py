"""Multi-head attention against a loop over its heads, and what masks may and may not do."""

from math import sqrt

import pytest
import torch
from torch import Tensor

from dragoman.kernels.attention import Visible, attention_weights
from dragoman.models.attention import KeysValues, MultiHeadAttention

WIDTH, HEADS, KEY_WIDTH, VALUE_WIDTH = 11, 3, 5, 7
ROWS, QUERIES, KEYS = 2, 13, 17


def interval(first: Tensor, last: Tensor) -> Visible:
    """What is visible, told by the queries alone: that is all that torch's own attention asks for."""
    nothing = torch.zeros(len(first), KEYS, dtype=torch.int32)
    return Visible(first, last, nothing, nothing)


def draw(seed: int, dtype: torch.dtype = torch.float64) -> tuple[MultiHeadAttention, Tensor, Tensor, Visible]:
    """An attention, queries, what they look at, and of that an interval for each query, of one key at least."""
    torch.manual_seed(seed)
    attention = MultiHeadAttention(WIDTH, HEADS, KEY_WIDTH, VALUE_WIDTH).to(dtype)
    queries, memory = torch.randn(ROWS, QUERIES, WIDTH, dtype=dtype), torch.randn(ROWS, KEYS, WIDTH, dtype=dtype)
    ends = torch.randint(0, KEYS + 1, (2, ROWS, QUERIES), dtype=torch.int32)
    first = ends.amin(0).clamp(max=KEYS - 1)
    return attention, queries, memory, interval(first, torch.maximum(ends.amax(0), first + 1))


@pytest.mark.parametrize("collect", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("masked", [False, True], ids=["open", "masked"])
def test_heads_look_by_themselves_and_are_concatenated_in_order(collect: bool, masked: bool) -> None:
    attention, queries, memory, visible = draw(seed=1)
    heads = []
    for head in range(HEADS):
        keys, values = (slice(head * width, (head + 1) * width) for width in (KEY_WIDTH, VALUE_WIDTH))
        query = queries @ attention.query.weight[keys].T
        key = memory @ attention.key.weight[keys].T
        scores = query @ key.transpose(1, 2) / sqrt(KEY_WIDTH)
        if masked:
            scores = scores.masked_fill(~visible.mask, -torch.inf)
        heads.append(scores.softmax(-1) @ (memory @ attention.value.weight[values].T))
    expected = torch.cat(heads, dim=-1) @ attention.output.weight.T
    weights: list[Tensor] | None = [] if collect else None
    found = attention(queries, attention.keys_values(memory), visible if masked else None, weights)
    torch.testing.assert_close(found, expected)


def test_weights_are_collected_once_a_call_for_every_head_and_sum_to_one() -> None:
    attention, queries, memory, visible = draw(seed=2)
    weights: list[Tensor] = []
    attention(queries, attention.keys_values(memory), visible, weights)
    attention(queries, attention.keys_values(memory), None, weights)
    assert [tuple(each.shape) for each in weights] == [(ROWS, HEADS, QUERIES, KEYS)] * 2
    for each in weights:
        torch.testing.assert_close(each.sum(-1), torch.ones(ROWS, HEADS, QUERIES, dtype=each.dtype))
    assert not weights[0].masked_select(~visible.mask[:, None]).any()
    assert (weights[0].masked_select(visible.mask[:, None]) > 0).all()
    assert not visible.mask.all()


@pytest.mark.parametrize("collect", [False, True], ids=["fused", "explicit"])
def test_what_is_not_visible_has_no_influence(collect: bool) -> None:
    attention, queries, memory, _ = draw(seed=3)
    visible = interval(torch.full((ROWS, QUERIES), 5), torch.full((ROWS, QUERIES), 11))
    changed = memory.clone()
    changed[:, [4, 11]] += 100.0
    before, after = (
        attention(queries, attention.keys_values(each), visible, [] if collect else None) for each in (memory, changed)
    )
    torch.testing.assert_close(after, before, rtol=0, atol=0)


def test_a_query_learns_nothing_from_other_queries() -> None:
    attention, queries, memory, visible = draw(seed=4)
    changed = queries.clone()
    changed[:, 6] += 1.0
    before, after = (attention(each, attention.keys_values(memory), visible) for each in (queries, changed))
    same = (before - after).abs().amax(dim=(0, 2)) < 1e-12
    assert same.tolist() == [position != 6 for position in range(QUERIES)]


def test_the_order_of_what_is_looked_at_does_not_matter() -> None:
    attention, queries, memory, _ = draw(seed=5)
    visible = interval(torch.full((ROWS, QUERIES), 3), torch.full((ROWS, QUERIES), KEYS - 2))
    order = torch.cat((torch.arange(3), 3 + torch.randperm(KEYS - 5), torch.arange(KEYS - 2, KEYS)))
    before = attention(queries, attention.keys_values(memory), visible)
    after = attention(queries, attention.keys_values(memory[:, order]), visible)
    torch.testing.assert_close(after, before)


def test_one_interval_serves_all_queries() -> None:
    attention, queries, memory, visible = draw(seed=6)
    seen, one = attention.keys_values(memory), interval(visible.first[:, :1], visible.last[:, :1])
    every = interval(one.first.expand(-1, QUERIES), one.last.expand(-1, QUERIES))
    for collect in (False, True):
        found, expected = (attention(queries, seen, each, [] if collect else None) for each in (one, every))
        torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("collect", [False, True], ids=["fused", "explicit"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_query_that_sees_nothing_gets_zeros_and_harms_no_gradient(collect: bool, dtype: torch.dtype) -> None:
    attention, queries, memory, visible = draw(seed=7, dtype=dtype)
    visible.last[0, 3] = visible.first[0, 3]
    visible.last[1] = visible.first[1]
    queries.requires_grad_()
    memory.requires_grad_()
    found = attention(queries, attention.keys_values(memory), visible, [] if collect else None)
    assert not found[0, 3].any()
    assert not found[1].any()
    found.square().sum().backward()
    gradients = [queries.grad, memory.grad, *(parameter.grad for parameter in attention.parameters())]
    for gradient in gradients:
        assert gradient is not None
        assert gradient.isfinite().all()
        assert gradient.any()
    assert queries.grad is not None
    assert not queries.grad[0, 3].any()


def test_weights_are_zero_where_nothing_is_visible() -> None:
    query, key = torch.randn(1, HEADS, QUERIES, KEY_WIDTH), torch.randn(1, HEADS, KEYS, KEY_WIDTH)
    last = torch.full((1, QUERIES), KEYS)
    last[:, 2] = 0
    weights = attention_weights(query, key, interval(torch.zeros_like(last), last))
    assert weights.sum(-1)[0, 0].round(decimals=4).tolist() == [float(row != 2) for row in range(QUERIES)]


def test_keys_and_values_are_projected_apart() -> None:
    attention, _, memory, _ = draw(seed=8)
    seen = attention.keys_values(memory)
    assert isinstance(seen, KeysValues)
    assert seen.keys.shape == (ROWS, HEADS, KEYS, KEY_WIDTH)
    assert seen.values.shape == (ROWS, HEADS, KEYS, VALUE_WIDTH)
