"""The evaluation of a model on a test set: every score with its signature, kept in the model's card."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dragoman.decoding.translator import Translator
from dragoman.evaluation.metrics import Metric, bleu, chrf, exact_match
from dragoman.saved import read_card, write_card

LARGEST_EXPONENT = 700.0  # beyond it exp is no float


@dataclass(frozen=True)
class Report:
    """What a model scored on a test set, and how."""

    bleu: Metric
    chrf: Metric
    exact_match: float
    perplexity: float | None  # per piece, without smoothing
    sentences: int
    decoding: dict[str, Any]
    recipe: str
    test: str  # which text
    test_sha256: str

    def summary(self) -> str:
        """The report for people."""
        lines = [
            f"{name:<12}{metric.score:6.2f}  [{metric.interval[0]:.2f}, {metric.interval[1]:.2f}]  {metric.signature}"
            for name, metric in (("BLEU", self.bleu), ("chrF", self.chrf))
        ]
        lines += [f"{'exact match':<12}{self.exact_match:6.3f}"]
        lines += [f"{'perplexity':<12}{self.perplexity:6.2f}"] if self.perplexity is not None else []
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
        settings_of(translator),
        recipe,
        test,
        text_sha256(sources, references),
    )
    return report, translations


def settings_of(translator: Translator) -> dict[str, Any]:
    """How a translator decodes, and what with."""
    engine = translator.engine
    return translator.decoding.model_dump() | {"engine": engine.name, "precision": engine.precision}


def perplexity(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> float | None:
    """exp of the mean loss a piece; None where every pair is too long for the model."""
    loss = translator.loss(sources, references)
    return None if loss is None else math.exp(min(loss, LARGEST_EXPONENT))


def text_sha256(sources: Sequence[str], references: Sequence[str]) -> str:
    """Tells one test set from another of the same name."""
    return hashlib.sha256("\n".join([*sources, *references]).encode("utf-8", "replace")).hexdigest()


def keep_in_card(folder: Path, report: Report) -> None:
    """Add a report to the card of a model, in place of an earlier one on the same text with the same settings."""
    card = read_card(folder)
    new = asdict(report)
    same = ("test", "test_sha256", "decoding")
    older = [old for old in card.get("scores", []) if any(old[key] != new[key] for key in same)]
    write_card(folder, card | {"scores": [*older, new]})
