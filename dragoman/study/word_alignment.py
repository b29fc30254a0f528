"""Which piece translates which, by the statistics of the text alone: IBM Model 1 (Brown et al. 1993).

Each target piece is drawn from one source piece or from none, and order means nothing; expectation maximisation learns
p(target piece | source piece). Trained in both directions, and only links that both find are kept.
"""

from collections.abc import Sequence
from itertools import accumulate

import numpy as np

Ids = Sequence[int]
Links = set[tuple[int, int]]  # source position, target position

ROUNDS = 10
NONE = -1  # stands before every source sentence for "no piece at all"
NEARER = 1e-9  # breaks ties between equal pieces


def align(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Links]:
    """The links of each pair that both directions agree on."""
    backward = ({(source, target) for target, source in links} for links in _align_one_way(targets, sources))
    return [links & back for links, back in zip(_align_one_way(sources, targets), backward, strict=True)]


def _align_one_way(sources: Sequence[Ids], targets: Sequence[Ids]) -> list[Links]:
    """For each target piece the likeliest source piece, if that is not none."""
    shapes = [(len(source) + 1, len(target)) for source, target in zip(sources, targets, strict=True)]
    probabilities = _learn([[NONE, *source] for source in sources], targets)
    ends = accumulate((rows * columns for rows, columns in shapes), initial=0)
    found = []
    for (rows, columns), start in zip(shapes, ends, strict=False):
        table = probabilities[start : start + rows * columns].reshape(rows, columns)
        found.append(_likeliest(table))
    return found


def _likeliest(table: np.ndarray) -> Links:
    if not table.size:
        return set()
    sources, targets = table.shape[0] - 1, table.shape[1]
    # Of equal pieces the one nearer the diagonal.
    places = np.arange(sources)[:, None] / max(sources, 1) - np.arange(targets) / targets
    table = table * np.concatenate((np.ones((1, targets)), 1 - NEARER * abs(places)))
    return {(int(source) - 1, target) for target, source in enumerate(table.argmax(0)) if source}


def _learn(sources: Sequence[Ids], targets: Sequence[Ids], rounds: int = ROUNDS) -> np.ndarray:
    """p(target piece | source piece) for every cell of every pair's table, one table after the other, row by row."""
    pairs = [(np.repeat(s, len(t)), np.tile(t, len(s))) for s, t in zip(sources, targets, strict=True)]
    source, target = (np.concatenate(each).astype(np.int64) for each in zip(*pairs, strict=True))
    first = list(accumulate(map(len, targets), initial=0))
    column = np.concatenate(
        [np.tile(np.arange(len(t)) + start, len(s)) for s, t, start in zip(sources, targets, first, strict=False)]
    )
    kinds, cell_kind = np.unique(np.stack((source, target)), axis=1, return_inverse=True)
    _, kind_source = np.unique(kinds[0], return_inverse=True)
    learned = np.ones(kinds.shape[1])
    for _ in range(rounds):
        cells = learned[cell_kind]
        shares = cells / np.bincount(column, cells)[column]  # expectation: who wrote this target piece?
        counts = np.bincount(cell_kind, shares)
        learned = counts / np.bincount(kind_source, counts)[kind_source]  # maximisation
    return learned[cell_kind]
