"""Which positions see which, told as intervals, and attention over them."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dragoman.kernels.attention import Visible, attend

rows = st.lists(st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), max_size=5), min_size=1, max_size=3)


def segments(lengths: list[list[int]]) -> Tensor:
    """Sentences of these lengths one behind the other, then some empty positions."""
    longest = max(map(sum, lengths)) + 2
    found = torch.zeros(len(lengths), longest, dtype=torch.long)
    for row, each in enumerate(lengths):
        filled = torch.arange(1, len(each) + 1).repeat_interleave(torch.tensor(each, dtype=torch.long))
        found[row, : len(filled)] = filled
    return found


def same(queries: Tensor, keys: Tensor) -> Tensor:
    return (queries[:, :, None] == keys[:, None, :]) & (queries[:, :, None] > 0)


@settings(deadline=None)
@given(rows)
def test_positions_of_one_sentence_see_each_other_and_nothing_else(pairs: list[list[tuple[int, int]]]) -> None:
    queries, keys = (segments([[pair[side] for pair in row] for row in pairs]) for side in (0, 1))
    visible = Visible.same_sentence(queries, keys)
    assert torch.equal(visible.mask, same(queries, keys))
    # The keys tell the same: their interval holds every query that sees them, and begins and ends with one.
    told = Visible(visible.seen_from, visible.seen_until, visible.first, visible.last).mask.transpose(1, 2)
    assert torch.equal(told, visible.mask)


@settings(deadline=None)
@given(rows)
def test_where_causal_nobody_sees_what_comes_later(pairs: list[list[tuple[int, int]]]) -> None:
    target = segments([[pair[0] for pair in row] for row in pairs])
    visible = Visible.same_sentence(target, target, causal=True)
    assert torch.equal(visible.mask, same(target, target).tril())
    told = Visible(visible.seen_from, visible.seen_until, visible.first, visible.last).mask.transpose(1, 2)
    assert torch.equal(told, same(target, target).tril() | (told & ~visible.mask))
    assert (told | ~visible.mask).all()


def test_intervals_never_fall_along_a_row() -> None:
    queries, keys = segments([[3, 5, 2], [7]]), segments([[2, 1, 6], [4]])
    for visible in (Visible.same_sentence(queries, keys), Visible.same_sentence(queries, queries, causal=True)):
        for ends in (visible.first, visible.last, visible.seen_from, visible.seen_until):
            assert (ends.diff(dim=1) >= 0).all()


def test_attention_over_intervals_is_attention_over_each_sentence_by_itself() -> None:
    torch.manual_seed(0)
    queries, keys = segments([[3, 5, 2], [7, 1]]), segments([[2, 1, 6], [4, 3]])
    query, key = torch.randn(2, 3, queries.shape[1], 5), torch.randn(2, 3, keys.shape[1], 5)
    value = torch.randn(2, 3, keys.shape[1], 7)
    found = attend(query, key, value, Visible.same_sentence(queries, keys))
    for row, sentence in ((0, 1), (0, 2), (0, 3), (1, 1), (1, 2)):
        asking, seen = queries[row] == sentence, keys[row] == sentence
        scores = query[row][:, asking] @ key[row][:, seen].transpose(1, 2) / 5**0.5
        torch.testing.assert_close(found[row][:, asking], scores.softmax(-1) @ value[row][:, seen])
    assert not found.transpose(1, 2)[queries == 0].any()
