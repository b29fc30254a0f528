"""Scores that carry their own settings: sacreBLEU and chrF with signature and bootstrap interval, exact match."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sacrebleu.metrics import BLEU, CHRF

# sacreBLEU holds all resamples in memory at once, 72 bytes a line for chrF; the signature says how many there were.
RESAMPLED_LINES = 20_000_000
FEWEST_RESAMPLES = 20


@dataclass(frozen=True)
class Metric:
    """A score with the signature that makes it comparable, and its 95 % confidence interval."""

    score: float
    signature: str
    interval: tuple[float, float]


def bleu(hypotheses: Sequence[str], references: Sequence[str], resamples: int = 1000) -> Metric:
    """Cased BLEU as sacreBLEU computes it (tok:13a)."""
    return _measure(BLEU(), hypotheses, references, resamples)


def chrf(hypotheses: Sequence[str], references: Sequence[str], resamples: int = 1000) -> Metric:
    """Character n-gram F-score."""
    return _measure(CHRF(), hypotheses, references, resamples)


def plain_bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """BLEU alone, where a validation needs no interval."""
    return float(BLEU().corpus_score(hypotheses, [references]).score)


def exact_match(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    """The share of lines that are right to the last character, 0 to 1."""
    return sum(map(str.__eq__, hypotheses, references)) / len(references)


def left_empty(sources: Sequence[str], hypotheses: Sequence[str]) -> int:
    """How many lines that say something became lines that say nothing."""
    return sum(bool(source.strip()) and not line.strip() for source, line in zip(sources, hypotheses, strict=True))


def _measure(metric: BLEU | CHRF, hypotheses: Sequence[str], references: Sequence[str], resamples: int) -> Metric:
    compute = metric._compute_score_from_stats

    def compute_plainly(stats: Any) -> Any:
        # sacreBLEU 2.6 fails to average scores where some are Python's floats (the zeros) and some are numpy's.
        result = compute(stats)
        result.score = float(result.score)
        return result

    metric._compute_score_from_stats = compute_plainly  # type: ignore[method-assign]
    resamples = min(resamples, max(FEWEST_RESAMPLES, RESAMPLED_LINES // len(references)))
    result = metric.corpus_score(hypotheses, [references], n_bootstrap=resamples)
    mean, spread = float(result._mean), float(result._ci)
    interval = (max(0.0, mean - spread), min(100.0, mean + spread))
    return Metric(min(100.0, float(result.score)), str(metric.get_signature()), interval)
