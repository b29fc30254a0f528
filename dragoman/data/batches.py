"""Pairs become rows, rows become updates (docs/tour.md).

An update is a list of rows fixed by (recipe, seed, epoch) alone; how many of them pass at once is the machine's
business. Axes: B rows, S source positions, T target positions.
"""

import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset

from dragoman.batch import BOS, EOS, PAD, Batch, Side
from dragoman.data.store import Store

OPEN_ROWS = 64  # among how many rows a pair may choose; more fill little better and take longer
ROUND_TO = 8  # lengths the matrix units like
AHEAD = 8  # updates that are packed in the background before they are wanted


@dataclass(frozen=True)
class Update:
    """One batch with the pairs it holds, so that a batch that goes wrong can be named."""

    batch: Batch
    pairs: list[int]
    target_tokens: int  # real ones: each sentence's pieces and its EOS
    epoch: int = 0

    def pin_memory(self) -> "Update":
        """The same in memory that a GPU copies from by itself."""
        return replace(self, batch=self.batch.map(Tensor.pin_memory))


class Updates:
    """The updates of a corpus, epoch after epoch."""

    def __init__(
        self,
        store: Store,
        batch_tokens: int,
        row_length: int,
        seed: int,
        packed: bool = True,
        longest: int | None = None,
    ) -> None:
        self.store = store
        self.seed = seed
        self.open_rows = OPEN_ROWS if packed else 0
        # Sources end with EOS, targets begin with BOS or end with EOS: one position more each.
        self.lengths = np.stack(store.lengths(), axis=1) + 1
        self.target_length = row_length
        # No row is longer than a model has positions, however the lengths of the two languages differ.
        self.source_length = min(_source_length(self.lengths, row_length), longest or sys.maxsize)
        fits = (self.lengths <= (self.source_length, self.target_length)).all(axis=1)
        self.fitting: NDArray[np.int64] = np.flatnonzero(fits)
        tokens_a_row = row_length if packed else self.lengths[:, 1].mean()
        self.rows_an_update = max(1, round(batch_tokens / tokens_a_row))

    @property
    def row_lengths(self) -> str:
        """For the reader."""
        return f"{self.source_length} source and {self.target_length} target positions"

    @property
    def left_out(self) -> int:
        """Pairs that are longer than a row."""
        return len(self.store) - len(self.fitting)

    def rows(self, epoch: int) -> Iterator[list[int]]:
        """The rows of an epoch, each a list of pairs, in an order that (seed, epoch) alone decides."""
        order = np.random.default_rng((self.seed, epoch)).permutation(self.fitting)
        room = (self.source_length, self.target_length)
        return pack(order, self.lengths[order], room, self.open_rows)

    def epoch(self, epoch: int, position: int = 0) -> Iterator[Update]:
        """The updates of an epoch, from a position in it on."""
        rows = self.rows(epoch)
        next(islice(rows, position * self.rows_an_update, position * self.rows_an_update), None)
        while update := list(islice(rows, self.rows_an_update)):
            yield replace(self.fill(update), epoch=epoch)

    def onwards(self, epoch: int, position: int) -> Iterator[Update]:
        """Updates without end, epoch after epoch, from a position in the first of them on."""
        while True:
            yield from self.epoch(epoch, position)
            epoch, position = epoch + 1, 0

    def fill(self, rows: Sequence[Sequence[int]]) -> Update:
        """The rows as tensors; the last update of an epoch has empty rows, so that every update has one shape."""
        pairs = np.concatenate([np.asarray(row, dtype=np.int64) for row in rows])
        row_of = np.repeat(np.arange(len(rows)), [len(row) for row in rows])
        first_of_row = np.searchsorted(row_of, row_of)
        segments = np.arange(len(pairs)) - first_of_row + 1
        sides = []
        for number, length in enumerate((self.source_length, self.target_length)):
            places = _Places(self.lengths[pairs, number], row_of, first_of_row, self.rows_an_update, length)
            ids = places.lay_out(self.store.sentences(pairs, number), EOS)
            sides.append((ids, places.spread(segments), places.spread_positions()))
        source, (labels, *target) = sides
        shifted = np.roll(labels, 1, axis=1)  # each piece stands where the one before it is to be predicted
        shifted[(target[1] == 0) & (target[0] > 0)] = BOS
        shifted[target[0] == 0] = PAD
        batch = Batch(
            Side(*map(torch.from_numpy, source)),
            Side(*map(torch.from_numpy, (shifted, *target))),
            torch.from_numpy(labels),
        )
        return Update(batch, pairs.tolist(), int(self.lengths[pairs, 1].sum()))


def in_background(updates: Updates, epoch: int, position: int) -> Iterator[Update]:
    """Updates onwards, packed by a process of its own, a few of them ahead, so that a GPU never waits."""
    loader = DataLoader(
        _Onwards(updates, epoch, position),
        batch_size=None,
        num_workers=1,
        prefetch_factor=AHEAD,
        pin_memory=torch.cuda.is_available(),
        generator=torch.Generator(),  # its own, and not the one that a run saves and restores
        multiprocessing_context="fork",  # the store is mapped, not copied
        worker_init_fn=_leave_signals_to_the_parent,
    )
    yield from loader


class _Onwards(IterableDataset[Update]):
    def __init__(self, updates: Updates, epoch: int, position: int) -> None:
        self.updates, self.epoch, self.position = updates, epoch, position

    def __iter__(self) -> Iterator[Update]:
        return self.updates.onwards(self.epoch, self.position)


def _leave_signals_to_the_parent(_: int) -> None:
    # They reach both: the parent finishes its step and saves, and wants no half-dead helper meanwhile. The helper ends
    # when the parent closes the generator, or dies.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def pack(
    order: NDArray[np.int64], lengths: NDArray[np.int64], room: tuple[int, int], open_rows: int
) -> Iterator[list[int]]:
    """Put each pair into the open row that it leaves fullest; when none has room, the row with least room is done."""
    if open_rows == 0:  # one sentence a row
        yield from ([pair] for pair in order.tolist())
        return
    rows: list[list[int]] = [[] for _ in range(open_rows)]
    free = np.tile(np.array(room), (open_rows, 1))
    for pair, length in zip(order.tolist(), lengths, strict=True):
        left = free - length
        spare = np.where(left.min(axis=1) < 0, sum(room), left.sum(axis=1))
        chosen = int(spare.argmin())
        if spare[chosen] == sum(room):
            chosen = int(free.min(axis=1).argmin())
            yield rows[chosen]
            rows[chosen] = []
            free[chosen] = room
        rows[chosen].append(pair)
        free[chosen] -= length
    yield from (row for row in rows if row)


def _source_length(lengths: NDArray[np.int64], target_length: int) -> int:
    """Rows of equal length would cap how full both sides can be; the source's follows the corpus's length ratio."""
    if len(lengths) == 0:
        return target_length
    ratio = lengths[:, 0].sum() / lengths[:, 1].sum()
    return max(1, round(float(target_length * ratio) / ROUND_TO)) * ROUND_TO


class _Places:
    """Where in a rectangle of rows each token of some sentences goes, one sentence behind the other in its row."""

    def __init__(
        self,
        lengths: NDArray[np.int64],
        row_of: NDArray[np.int64],
        first_of_row: NDArray[np.int64],
        rows: int,
        length: int,
    ) -> None:
        self.shape = (rows, length)
        before = lengths.cumsum() - lengths
        self.sentence = np.repeat(np.arange(len(lengths)), lengths)  # of each token
        self.position = np.arange(len(self.sentence)) - before[self.sentence]  # in its sentence
        starts = row_of * length + before - before[first_of_row]
        self.place = starts[self.sentence] + self.position
        self.is_last = self.position == lengths[self.sentence] - 1

    def spread(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        """The value of each sentence at all of its places."""
        return self._rectangle(values[self.sentence])

    def spread_positions(self) -> NDArray[np.int64]:
        """The position in its sentence at each place."""
        return self._rectangle(self.position)

    def lay_out(self, ids: NDArray[Any], end: int) -> NDArray[np.int64]:
        """The ids of the sentences, each with an end behind it."""
        tokens = np.full(len(self.place), end, dtype=np.int64)
        tokens[~self.is_last] = ids
        return self._rectangle(tokens)

    def _rectangle(self, values: NDArray[np.int64]) -> NDArray[np.int64]:
        filled = np.zeros(self.shape, dtype=np.int64)  # PAD, no segment, position 0
        filled.reshape(-1)[self.place] = values
        return filled
