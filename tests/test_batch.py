"""Rows of ids with their segments and positions."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batch import BOS, EOS, PAD, UNK, Batch, Side

ids = st.lists(st.integers(min_value=4, max_value=96), max_size=7)
pairs = st.lists(st.tuples(ids, ids), min_size=1, max_size=5)
patient = settings(deadline=None)  # other work may share the cores


def test_the_first_four_ids_are_special() -> None:
    assert (PAD, UNK, BOS, EOS) == (0, 1, 2, 3)


@patient
@given(st.lists(ids, min_size=1, max_size=5))
def test_a_side_holds_its_sentences_and_nothing_else(sentences: list[list[int]]) -> None:
    side = Side.of(sentences)
    assert side.ids.shape == side.segments.shape == side.positions.shape == (len(sentences), max(map(len, sentences)))
    for row, sentence in enumerate(sentences):
        real = side.segments[row] > 0
        assert side.ids[row][real].tolist() == sentence
        assert side.positions[row][real].tolist() == list(range(len(sentence)))
        assert (side.ids[row][~real] == PAD).all()
        assert set(side.segments[row].tolist()) <= {0, 1}
    assert {tensor.dtype for tensor in vars(side).values()} == {torch.int64}


@patient
@given(pairs)
def test_labels_are_the_target_one_step_ahead(sentences: list[tuple[list[int], list[int]]]) -> None:
    sources, targets = zip(*sentences, strict=True)
    batch = Batch.of(sources, targets)
    assert len(batch) == len(sentences)
    assert batch.labels.shape == batch.target.ids.shape
    for row, (source, target) in enumerate(sentences):
        sides = (batch.source.ids[row], batch.source.segments[row]), (batch.target.ids[row], batch.target.segments[row])
        found = [each[segment > 0].tolist() for each, segment in sides]
        assert found == [[*source, EOS], [BOS, *target]]
        labels = batch.labels[row]
        assert labels[labels != PAD].tolist() == [*target, EOS]
        assert torch.equal(labels[: len(target)], batch.target.ids[row, 1 : len(target) + 1])
        assert torch.equal(labels != PAD, batch.target.segments[row] > 0)


@patient
@given(pairs, st.integers(0, 5), st.integers(0, 5))
def test_rows_of_a_batch_are_the_same_rows_of_all_its_parts(
    sentences: list[tuple[list[int], list[int]]], first: int, last: int
) -> None:
    batch = Batch.of(*zip(*sentences, strict=True))
    part = batch.rows(first, last)
    assert len(part) == len(range(len(sentences))[first:last])
    assert torch.equal(part.labels, batch.labels[first:last])
    for whole, some in ((batch.source, part.source), (batch.target, part.target)):
        for name, tensor in vars(whole).items():
            assert torch.equal(getattr(some, name), tensor[first:last])


def test_a_batch_moves_as_a_whole() -> None:
    moved = Batch.of([[5], [6, 7]], [[8, 9, 10], []]).to(torch.device("meta"))
    tensors = [moved.labels, *vars(moved.source).values(), *vars(moved.target).values()]
    assert {tensor.device.type for tensor in tensors} == {"meta"}


def test_a_batch_cannot_be_changed_by_name() -> None:
    batch = Batch.of([[5]], [[6, 7]])
    with pytest.raises(AttributeError):
        batch.labels = batch.labels  # type: ignore[misc]
