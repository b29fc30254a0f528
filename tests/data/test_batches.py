"""Rows of packed sentences: nothing is lost, doubled or mixed up, and (seed, epoch) alone decides the order."""

import lzma
from itertools import islice
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batch import BOS, EOS, PAD, Batch, Side
from dragoman.data.batches import OPEN_ROWS, ROUND_TO, Update, Updates, in_background, pack
from dragoman.data.store import Store, StoreWriter
from dragoman.data.vocabulary import Vocabulary, train_vocabulary

Pairs = list[tuple[list[int], list[int]]]
VOCABULARY = 1009
REAL = Path(__file__).parents[3] / "shared" / "data"

both_ways = pytest.mark.parametrize("packed", [True, False], ids=["packed", "one sentence a row"])


def store_of(folder: Path, pairs: Pairs) -> Store:
    writer = StoreWriter(folder, "train", VOCABULARY)
    for pair in pairs:
        writer.add(*pair)
    writer.close({})
    return Store(folder, "train", VOCABULARY)


def pairs_of(count: int, longest: int, seed: int = 0) -> Pairs:
    draw = Random(seed)

    def sentence() -> list[int]:
        return [draw.randrange(EOS + 1, VOCABULARY) for _ in range(draw.randint(1, longest))]

    return [(sentence(), sentence()) for _ in range(count)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return store_of(tmp_path_factory.mktemp("batches"), pairs_of(997, 23))


def updates_of(store: Store, seed: int = 0, packed: bool = True) -> Updates:
    return Updates(store, batch_tokens=211, row_length=37, seed=seed, packed=packed)


def sentences(side: Side, row: int) -> list[list[int]]:
    """The sentences of a row in the order of their segments, which must stand in one piece each."""
    segments = side.segments[row].tolist()
    used = [segment for segment in segments if segment]
    assert segments == used + [0] * (len(segments) - len(used))  # only the end of a row is empty
    assert used == sorted(used)
    assert set(used) == set(range(1, max(used, default=0) + 1))
    return [side.ids[row][side.segments[row] == segment].tolist() for segment in range(1, max(used, default=0) + 1)]


def assert_holds(update: Update, store: Store) -> None:
    """Every law a single update must obey."""
    batch = update.batch
    expected = [tuple(side.tolist() for side in store.pair(pair)) for pair in update.pairs]
    found = []
    for row in range(len(batch)):
        sources, targets = sentences(batch.source, row), sentences(batch.target, row)
        assert len(sources) == len(targets)
        for segment, (source, target) in enumerate(zip(sources, targets, strict=True), start=1):
            labels = batch.labels[row][batch.target.segments[row] == segment].tolist()
            assert source[-1] == labels[-1] == EOS
            assert target[0] == BOS
            assert target[1:] == labels[:-1]
            found.append((source[:-1], target[1:]))
        for side in (batch.source, batch.target):
            positions = [side.positions[row][side.segments[row] == each] for each in range(1, len(sources) + 1)]
            assert all(each.tolist() == list(range(len(each))) for each in positions)
            assert set(side.ids[row][side.segments[row] == 0].tolist()) <= {PAD}
        assert set(batch.labels[row][batch.target.segments[row] == 0].tolist()) <= {PAD}
    assert found == expected
    assert update.target_tokens == int((batch.labels != PAD).sum()) == sum(len(target) + 1 for _, target in expected)


@both_ways
def test_every_update_holds_its_pairs_whole_and_side_by_side(store: Store, packed: bool) -> None:
    for update in islice(updates_of(store, packed=packed).epoch(0), 31):
        assert_holds(update, store)


@given(
    lengths=st.lists(st.tuples(st.integers(1, 29), st.integers(1, 29)), min_size=1, max_size=41),
    row_length=st.integers(8, 31),
    batch_tokens=st.integers(1, 97),
    packed=st.booleans(),
)
@settings(max_examples=50, deadline=None)
def test_each_pair_that_fits_comes_exactly_once_an_epoch_whatever_the_lengths(
    tmp_path_factory: pytest.TempPathFactory,
    lengths: list[tuple[int, int]],
    row_length: int,
    batch_tokens: int,
    packed: bool,
) -> None:
    pairs = [([5 + n] * source, [7 + n] * target) for n, (source, target) in enumerate(lengths)]
    store = store_of(tmp_path_factory.getbasetemp(), pairs)
    updates = Updates(store, batch_tokens, row_length, seed=3, packed=packed)
    room = (updates.source_length, updates.target_length)
    fitting = [n for n, (source, target) in enumerate(lengths) if source < room[0] and target < room[1]]
    assert updates.left_out == len(lengths) - len(fitting)
    seen = []
    for update in updates.epoch(0):
        assert_holds(update, store)
        seen += update.pairs
    assert sorted(seen) == fitting


@both_ways
def test_each_pair_comes_exactly_once_an_epoch(store: Store, packed: bool) -> None:
    updates = updates_of(store, packed=packed)
    for epoch in (0, 1):
        assert sorted(pair for row in updates.rows(epoch) for pair in row) == list(range(997))
    assert sorted(pair for update in updates.epoch(0) for pair in update.pairs) == list(range(997))


@both_ways
def test_seed_and_epoch_alone_decide_the_order(store: Store, packed: bool) -> None:
    first = list(updates_of(store, 0, packed).rows(0))
    assert list(updates_of(store, 0, packed).rows(0)) == first
    used = updates_of(store, 0, packed)
    list(used.rows(1))
    assert list(used.rows(0)) == first
    others = [updates_of(store, 0, packed).rows(1), updates_of(store, 1, packed).rows(0)]
    orders = [first, *map(list, others), list(updates_of(store, 1, packed).rows(1))]
    assert all(orders[a] != orders[b] for a in range(4) for b in range(a))


def tensors_of(update: Update) -> list[torch.Tensor]:
    sides = (update.batch.source, update.batch.target)
    return [update.batch.labels, *(each for side in sides for each in (side.ids, side.segments, side.positions))]


def same(one: Update, other: Update) -> bool:
    equal = all(torch.equal(*both) for both in zip(tensors_of(one), tensors_of(other), strict=True))
    return equal and (one.pairs, one.target_tokens) == (other.pairs, other.target_tokens)


@both_ways
def test_resuming_at_any_position_gives_the_updates_that_were_left(store: Store, packed: bool) -> None:
    updates = updates_of(store, packed=packed)
    for epoch in (0, 5):
        whole = list(updates.epoch(epoch))
        for position in (0, 1, 2, 13, len(whole) - 1, len(whole), len(whole) + 3):
            rest = list(updates_of(store, packed=packed).epoch(epoch, position))
            assert len(rest) == len(whole[position:])
            assert all(same(*both) for both in zip(rest, whole[position:], strict=True))


@both_ways
def test_all_updates_have_one_shape(store: Store, packed: bool) -> None:
    updates = updates_of(store, packed=packed)
    shapes = {
        (update.batch.source.ids.shape, update.batch.target.ids.shape, update.batch.labels.shape)
        for update in updates.epoch(0)
    }
    # Unpacked, a row holds one sentence, so that it takes more of them to make as many tokens.
    rows = round(211 / 37) if packed else round(211 / updates.lengths[:, 1].mean())
    assert shapes == {((rows, updates.source_length), (rows, 37), (rows, 37))}
    assert updates.source_length % ROUND_TO == 0


def test_a_model_that_cannot_keep_sentences_apart_is_given_one_a_row(store: Store) -> None:
    updates = updates_of(store, packed=False)
    assert {len(row) for row in updates.rows(0)} == {1}
    for update in updates.epoch(0):
        assert set(update.batch.source.segments.unique().tolist()) <= {0, 1}
    assert max(map(len, updates_of(store).rows(0))) > 1


def test_pairs_longer_than_a_row_are_left_out_and_counted(tmp_path: Path) -> None:
    short: Pairs = [([5] * 7, [7] * 7)] * 100
    store = store_of(tmp_path, [*short, ([5] * 16, [7] * 7), ([5] * 7, [7] * 16), ([5] * 15, [7] * 15)])
    updates = Updates(store, batch_tokens=53, row_length=16, seed=0)
    assert updates.source_length == 16
    assert updates.left_out == 2
    assert sorted(pair for row in updates.rows(0) for pair in row) == [*range(100), 102]


def test_where_no_pair_fits_there_are_no_updates(tmp_path: Path) -> None:
    updates = Updates(store_of(tmp_path, [([5] * 31, [7] * 31)] * 3), 53, 8, seed=0)
    assert (updates.left_out, list(updates.epoch(0))) == (3, [])


@pytest.mark.parametrize(("factor", "expected"), [(1, 64), (2, 128), (3, 192)])
def test_the_source_rows_follow_the_length_ratio_of_the_corpus(factor: int, expected: int, tmp_path: Path) -> None:
    store = store_of(tmp_path, [([5] * (11 * factor - 1), [7] * 10)] * 29)
    updates = Updates(store, batch_tokens=509, row_length=64, seed=0)
    assert (updates.source_length, updates.target_length) == (expected, 64)


def test_an_update_holds_at_least_one_row(store: Store) -> None:
    assert Updates(store, batch_tokens=1, row_length=37, seed=0).rows_an_update == 1


@given(
    lengths=st.lists(st.tuples(st.integers(1, 19), st.integers(1, 13)), max_size=61),
    open_rows=st.integers(1, 7),
)
@settings(max_examples=100, deadline=None)
def test_no_row_holds_more_than_its_room(lengths: list[tuple[int, int]], open_rows: int) -> None:
    room = (19, 13)
    sizes = np.array(lengths, dtype=np.int64).reshape(-1, 2)
    rows = list(pack(np.arange(len(lengths)), sizes, room, open_rows))
    assert sorted(pair for row in rows for pair in row) == list(range(len(lengths)))
    for row in rows:
        assert row
        assert (sizes[row].sum(axis=0) <= room).all()


def test_a_pair_goes_where_it_leaves_the_least_room(tmp_path: Path) -> None:
    # Five fit beside ten or beside twelve, and leave less room beside twelve.
    sizes = np.array([[10, 10], [12, 12], [5, 5], [7, 7]])
    assert list(pack(np.arange(4), sizes, (17, 17), open_rows=2)) == [[0, 3], [1, 2]]


def test_a_row_with_segments_is_one_sentence_a_row_where_it_is_padded() -> None:
    batch = Batch.of([[5, 7], [11]], [[13], [17, 19, 23]])
    assert batch.source.ids.tolist() == [[5, 7, EOS], [11, EOS, PAD]]
    assert batch.source.segments.tolist() == [[1, 1, 1], [1, 1, 0]]
    assert batch.target.ids.tolist() == [[BOS, 13, PAD, PAD], [BOS, 17, 19, 23]]
    assert batch.labels.tolist() == [[13, EOS, PAD, PAD], [17, 19, 23, EOS]]
    assert batch.target.positions.tolist() == [[0, 1, 2, 3]] * 2
    assert len(batch) == 2
    assert batch.rows(1, 2).labels.tolist() == batch.labels[1:].tolist()
    assert batch.rows(1, 2).source.ids.tolist() == batch.source.ids[1:].tolist()


@pytest.mark.parametrize("corpus", ["en-de/europarl-1", "en-de/tatoeba", "multi30k/train"])
def test_rows_of_real_sentences_are_at_least_95_percent_full(corpus: str, tmp_path: Path) -> None:
    files = [REAL / f"{corpus}.{language}.xz" for language in ("en", "de")]
    if not all(file.is_file() for file in files):
        pytest.skip(f"needs real text, {files[0]} is missing")
    sides = []
    for file in files:
        with lzma.open(file) as packed:
            sides.append([line.removesuffix(b"\n").decode() for line in islice(packed, 20_000)])
    proto = train_vocabulary(lambda: [*sides[0][::5], *sides[1][::5]], 8000, "bpe", byte_fallback=True)
    vocabulary = Vocabulary(proto)
    writer = StoreWriter(tmp_path, "train", len(vocabulary))
    for source, target in zip(*map(vocabulary.encode, sides), strict=True):
        if 0 < len(source) <= 250 and 0 < len(target) <= 250:
            writer.add(source, target)
    writer.close({})
    updates = Updates(Store(tmp_path, "train", len(vocabulary)), 25_000, 256, seed=Random().randrange(1000))
    assert updates.left_out < 0.001 * len(updates.store)
    rows = list(updates.rows(0))
    assert len(rows) > OPEN_ROWS
    tokens = updates.lengths[updates.fitting].sum()
    assert tokens / (len(rows) * (updates.source_length + updates.target_length)) >= 0.95


def test_updates_from_the_background_are_the_same_in_the_same_order(store: Store) -> None:
    updates = updates_of(store)
    last = len(list(updates.epoch(1))) - 5
    state = torch.get_rng_state()
    waiting = in_background(updates, 1, last)
    straight = [(1, each) for each in updates.epoch(1, last)] + [(2, each) for each in updates.epoch(2)]
    for (epoch, expected), found in zip(straight, islice(waiting, 31), strict=False):
        assert (found.epoch, found.pairs) == (epoch, expected.pairs)
        assert found.target_tokens == expected.target_tokens
        for one, other in zip(found.batch.tensors(), expected.batch.tensors(), strict=True):
            assert torch.equal(one, other)
    assert found.epoch > 1
    assert torch.equal(torch.get_rng_state(), state)
