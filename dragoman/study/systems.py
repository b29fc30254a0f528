"""Every system on the same corpus and budget: what it scores and costs, and what it makes of long sentences.

The question of Bahdanau et al. 2015: does a fixed vector lose long sentences, and does attention mend it?
"""

import bisect
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dragoman.evaluation.metrics import bleu
from dragoman.models.recurrent import RecurrentConfig
from dragoman.plots.charts import Line, as_svg, line_chart
from dragoman.recipe import Recipe, read_recipe
from dragoman.study.findings import Estimate, cost, curves, findings, report, scores
from dragoman.study.report import Cell, Figure, Part, Report, Table
from dragoman.study.trial import RUNS, TRANSLATIONS
from dragoman.study.trials import Outcome, Plan, choose
from dragoman.study.variants import names_of

BUCKETS = 5
VECTOR, RECURRENT, PARALLEL = "a fixed vector", "recurrent with attention", "not recurrent"


@dataclass(frozen=True)
class Bucket:
    """Sentences of like length."""

    shortest: int
    longest: int  # words of the source
    numbers: Sequence[int]

    def __str__(self) -> str:
        return f"{self.shortest} to {self.longest}" if self.shortest < self.longest else str(self.shortest)


def recipes(only: Sequence[str], overrides: Sequence[str]) -> dict[str, Recipe]:
    """Every recipe of recipes/systems/, or those that are wanted."""
    return {name: read_recipe(f"systems/{name}", overrides) for name in choose(names_of("systems"), only)}


def families(recipes: Mapping[str, Recipe]) -> dict[str, list[str]]:
    """The systems, by how the source comes to the target."""
    found: dict[str, list[str]] = {VECTOR: [], RECURRENT: [], PARALLEL: []}
    for name, recipe in recipes.items():
        model = recipe.model
        if isinstance(model, RecurrentConfig) and model.attention == "none":
            found[VECTOR].append(name)
        else:
            found[RECURRENT if model.kind in ("recurrent", "lstmn") else PARALLEL].append(name)
    return {family: names for family, names in found.items() if names}


def by_length(sources: Sequence[str], count: int = BUCKETS) -> list[Bucket]:
    """Sentences in buckets of rising length, about as many in each."""
    lengths = [len(source.split()) for source in sources]
    ranked = sorted(lengths)
    # A length belongs to one bucket alone.
    edges = sorted({ranked[len(ranked) * part // count] for part in range(1, count)} - {ranked[0]})
    members: list[list[int]] = [[] for _ in range(len(edges) + 1)]
    for number, length in enumerate(lengths):
        members[bisect.bisect_right(edges, length)].append(number)
    return [
        Bucket(min(lengths[n] for n in numbers), max(lengths[n] for n in numbers), numbers)
        for numbers in members
        if numbers
    ]


def make_report(plan: Plan, outcome: Outcome) -> Report:
    """Scores, cost, lengths and curves."""
    found, buckets = findings(outcome), by_length(outcome.sources)
    kinds = families({trial.name: trial.recipe for trial in outcome.trials})
    lengths = {name: bleu_by_length(outcome, label, buckets) for name, label in outcome.first_seeds().items()}
    parts: list[Part] = [*_sentences(lengths, kinds), scores(found, "transformer"), cost(found)]
    if lengths:
        parts += [_length_table(lengths, buckets), _length_chart(lengths, kinds, buckets)]
    parts += curves(outcome, kinds)
    more = {
        "buckets": [[bucket.shortest, bucket.longest, len(bucket.numbers)] for bucket in buckets],
        "bleu_by_bucket": {name: [each.mean for each in row] for name, row in lengths.items()},
    }
    return report(plan, outcome, "The systems, on the same text and budget", parts, more)


def bleu_by_length(outcome: Outcome, label: str, buckets: Sequence[Bucket]) -> list[Estimate]:
    """BLEU of a trial's translations in each bucket."""
    lines = (outcome.folder / RUNS / label / TRANSLATIONS).read_text(encoding="utf-8").split("\n")
    return [
        Estimate.of(bleu([lines[n] for n in bucket.numbers], [outcome.references[n] for n in bucket.numbers]))
        for bucket in buckets
    ]


def _sentences(lengths: Mapping[str, Sequence[Estimate]], kinds: Mapping[str, Sequence[str]]) -> list[str]:
    """What each family loses from the shortest sentences to the longest, computed."""
    said = []
    for family, names in kinds.items():
        rows = [lengths[name] for name in names if name in lengths]
        if rows:
            first, last = (statistics.fmean(row[end].mean for row in rows) for end in (0, -1))
            said.append(f"{family}: BLEU {first:.1f} for the shortest sentences, {last:.1f} for the longest")
    return [f"By the length of the source, in the mean over systems: {'; '.join(said)}."] if said else []


def _length_table(lengths: Mapping[str, Sequence[Estimate]], buckets: Sequence[Bucket]) -> Table:
    columns = ["words of the source", *(f"{bucket} ({len(bucket.numbers)} sentences)" for bucket in buckets)]
    rows: list[list[Cell]] = [[name, *map(str, row)] for name, row in lengths.items()]
    note = (
        "BLEU of the first seed with its bootstrap interval. Buckets of different length are not comparable by level."
    )
    return Table("BLEU by source length", columns, rows, note)


def _length_chart(
    lengths: Mapping[str, Sequence[Estimate]], kinds: Mapping[str, Sequence[str]], buckets: Sequence[Bucket]
) -> Figure:
    """A line for each family: the mean of its systems, and their range."""
    lines = []
    words = [statistics.fmean((bucket.shortest, bucket.longest)) for bucket in buckets]
    for family, names in kinds.items():
        rows = [[each.mean for each in lengths[name]] for name in names if name in lengths]
        if rows:
            columns = list(zip(*rows, strict=True))
            means = list(map(statistics.fmean, columns))
            lines.append(Line(family, words, means, list(map(min, columns)), list(map(max, columns))))
    picture = as_svg(line_chart(lines, "words of the source (middle of the bucket)", "BLEU"))
    return Figure(
        "lengths", "BLEU by source length: the mean of each family's systems, from its worst to its best", picture
    )
