"""The evaluation of a model on a test set: every score with its signature, kept in the model's card."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman.decoding.translator import Translator
from dragoman.evaluation.metrics import Metric, bleu, chrf, exact_match
from dragoman.saved import read_card, write_card


@dataclass(frozen=True)
class Report:
    """What a model scored on a test set, and how."""

    bleu: Metric
    chrf: Metric
    exact_match: float
    perplexity: float  # per piece, without smoothing
    sentences: int
    decoding: dict[str, Any]
    recipe: str
    test: str  # which text

    def summary(self) -> str:
        """The report for people."""
        lines = [
            f"{name:<12}{metric.score:6.2f}  [{metric.interval[0]:.2f}, {metric.interval[1]:.2f}]  {metric.signature}"
            for name, metric in (("BLEU", self.bleu), ("chrF", self.chrf))
        ]
        lines += [f"{'exact match':<12}{self.exact_match:6.3f}", f"{'perplexity':<12}{self.perplexity:6.2f}"]
        settings = ", ".join(f"{key} {value}" for key, value in self.decoding.items())
        return "\n".join([*lines, f"{self.sentences:,} sentences of {self.test}, {settings}, recipe {self.recipe}"])


def evaluate(
    translator: Translator, sources: Sequence[str], references: Sequence[str], recipe: str, test: str
) -> tuple[Report, list[str]]:
    """Translate and score a test set; returns the translations too."""
    translations = [each.text for each in translator.translate(sources)]
    report = Report(
        bleu(translations, references),
        chrf(translations, references),
        exact_match(translations, references),
        perplexity(translator, sources, references),
        len(references),
        translator.decoding.model_dump(),
        recipe,
        test,
    )
    return report, translations


def perplexity(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> float:
    """exp of the mean loss a piece; pairs too long for the model have none and are left out."""
    longest = translator.longest
    lengths = zip(
        translator.source_vocabulary.encode(sources), translator.target_vocabulary.encode(references), strict=True
    )
    fitting = [number for number, ids in enumerate(lengths) if max(map(len, ids)) <= longest]
    scores = translator.score([sources[n] for n in fitting], [references[n] for n in fitting])
    pieces = sum(score.pieces for score in scores)
    return math.exp(-sum(score.log_probability for score in scores) / pieces) if pieces else math.nan


def keep_in_card(folder: Path, report: Report) -> None:
    """Add a report to the card of a model, in place of an earlier one on the same text with the same settings."""
    card = read_card(folder)
    new = asdict(report)
    same = ("test", "decoding")
    older = [old for old in card.get("scores", []) if any(old[key] != new[key] for key in same)]
    write_card(folder, card | {"scores": [*older, new]})
