"""Scores that carry their own settings: sacreBLEU and chrF with signature and bootstrap interval, exact match."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF


@dataclass(frozen=True)
class Metric:
    """A score with the signature that makes it comparable, and its 95 % confidence interval."""

    score: float
    signature: str
    interval: tuple[float, float]


def bleu(hypotheses: Sequence[str], references: Sequence[str], resamples: int = 1000) -> Metric:
    """Cased BLEU as sacreBLEU computes it (tok:13a)."""
    return _measure(_FloatBLEU(), hypotheses, references, resamples)


def chrf(hypotheses: Sequence[str], references: Sequence[str], resamples: int = 1000) -> Metric:
    """Character n-gram F-score."""
    return _measure(CHRF(), hypotheses, references, resamples)


def plain_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU alone, where a validation needs no interval."""
    return float(BLEU().corpus_score(hypotheses, [references]).score)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of lines that are right to the last character, 0 to 1."""
    return sum(map(str.__eq__, hypotheses, references)) / len(references)


class _FloatBLEU(BLEU):
    """sacreBLEU 2.6 fails to average scores where some are Python's floats (the zeros) and some are numpy's."""

    def _compute_score_from_stats(self, stats: Any) -> Any:
        result = super()._compute_score_from_stats(stats)
        result.score = float(result.score)
        return result


def _measure(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str], resamples: int) -> Metric:
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=resamples)
    mean, spread = float(result._mean), float(result._ci)
    return Metric(float(result.score), str(metric.get_signature()), (mean - spread, mean + spread))
