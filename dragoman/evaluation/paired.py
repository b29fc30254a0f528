"""Is one translation better than another? BLEU of the same sentences drawn anew, many times (Koehn 2004)."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from sacrebleu.metrics import BLEU

RESAMPLES, SEED = 1000, 12345


class Difference(NamedTuple):
    """How much more BLEU, with the 95 % interval of the resampled differences."""

    bleu: float
    low: float
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval leaves out zero."""
        return self.low > 0 or self.high < 0


class ResampledBleu:
    """BLEU of a translation, and of many texts drawn from it: the same sentences for every translation."""

    def __init__(self, hypotheses: Sequence[str], references: Sequence[str]) -> None:
        metric = BLEU()
        counts = np.array(metric._extract_corpus_statistics(hypotheses, [references]))
        draw = np.random.default_rng(SEED)
        texts = (
            np.bincount(draw.integers(len(counts), size=len(counts)), minlength=len(counts)) for _ in range(RESAMPLES)
        )
        self.score = metric._compute_score_from_stats(counts.sum(0).tolist()).score
        self.drawn = np.array([metric._compute_score_from_stats((text @ counts).tolist()).score for text in texts])

    def minus(self, other: "ResampledBleu") -> Difference:
        """How much more than the other, sentence drawn against the same sentence."""
        low, high = np.quantile(self.drawn - other.drawn, [0.025, 0.975])
        return Difference(float(self.score - other.score), float(low), float(high))
