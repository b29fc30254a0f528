"""Table 3 (section 6.2): every row at any scale, the paper's numbers beside ours, and which of its orderings hold."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from typing import Literal, NamedTuple

from dragoman.errors import ConfigError
from dragoman.recipe import Recipe
from dragoman.study.findings import Finding, cost, curves, findings, report, scores
from dragoman.study.report import Cell, Part, Report, Table
from dragoman.study.student import differ
from dragoman.study.trials import Outcome, Plan, choose
from dragoman.study.variants import read_variant


class Printed(NamedTuple):
    """What the paper prints of a row: on newstest2013, en-de."""

    perplexity: float
    bleu: float
    millions: int | None = None


PAPER = {
    "base": Printed(4.92, 25.8, 65),
    "a-1-head": Printed(5.29, 24.9),
    "a-4-heads": Printed(5.00, 25.5),
    "a-16-heads": Printed(4.91, 25.8),
    "a-32-heads": Printed(5.01, 25.4),
    "b-key-width-16": Printed(5.16, 25.1, 58),
    "b-key-width-32": Printed(5.01, 25.4, 60),
    "c-2-layers": Printed(6.11, 23.7, 36),
    "c-4-layers": Printed(5.19, 25.3, 50),
    "c-8-layers": Printed(4.88, 25.5, 80),
    "c-width-256": Printed(5.75, 24.5, 28),
    "c-width-1024": Printed(4.66, 26.0, 168),
    "c-hidden-1024": Printed(5.12, 25.4, 53),
    "c-hidden-4096": Printed(4.75, 26.2, 90),
    "d-dropout-0.0": Printed(5.77, 24.6),
    "d-dropout-0.2": Printed(4.95, 25.5),
    "d-smoothing-0.0": Printed(4.67, 25.3),
    "d-smoothing-0.2": Printed(5.47, 25.7),
    "e-learned-positions": Printed(4.92, 25.7),
    "big": Printed(4.33, 26.4, 213),
}
# What is compared with what: rows that differ in one thing.
GROUPS = {
    "(A) heads": ("a-1-head", "a-4-heads", "base", "a-16-heads", "a-32-heads"),
    "(B) width of keys": ("b-key-width-16", "b-key-width-32", "base"),
    "(C) layers": ("c-2-layers", "c-4-layers", "base", "c-8-layers"),
    "(C) width": ("c-width-256", "base", "c-width-1024"),
    "(C) hidden": ("c-hidden-1024", "base", "c-hidden-4096"),
    "(D) dropout": ("d-dropout-0.0", "base", "d-dropout-0.2"),
    "(D) smoothing": ("d-smoothing-0.0", "base", "d-smoothing-0.2"),
    "(E) positions": ("base", "e-learned-positions"),
    "big": ("base", "big"),
}
SIZES = ("layers", "width", "hidden", "key_width", "value_width")

Verdict = Literal["holds", "leans so", "leans against", "reversed"]


@dataclass(frozen=True)
class Ordering:
    """Of two rows the one that the paper finds worse, the one it finds better, and whether we do."""

    group: str
    worse: str
    better: str
    bleu: Verdict | None  # None where ours are equal
    perplexity: bool | None  # whether the means lie the same way; None where the paper's or ours are equal


def recipes(only: Sequence[str], overrides: Sequence[str]) -> dict[str, Recipe]:
    """The rows that are wanted; an override leaves alone what a row is about."""
    return {name: read_variant(f"table3/{name}", "table3/base", overrides) for name in choose(list(PAPER), only)}


def at_scale(recipes: Mapping[str, Recipe], scale: float) -> dict[str, Recipe]:
    """The rows with layers and widths times a factor; no two of them may become the same."""
    rows = {name: scaled(recipe, scale) for name, recipe in recipes.items()}
    for (one, first), (other, second) in combinations(rows.items(), 2):
        if first.model == second.model and first.training.smoothing == second.training.smoothing:
            hint = "leave one out with --only, or choose another scale"
            raise ConfigError("table3", f"{other} is the same as {one} at this scale", hint=hint)
    return rows


def scaled(recipe: Recipe, scale: float) -> Recipe:
    """Layers and widths times a factor, so that rows keep their proportions."""
    values = {name: size for name in SIZES if (size := getattr(recipe.model, name)) is not None}
    sizes = {name: max(1, round(scale * size)) for name, size in values.items()}
    return recipe.with_values({"model": sizes}, f"--scale {scale}")


def orderings(
    ours: Mapping[str, Sequence[float]], perplexities: Mapping[str, float | None] | None = None
) -> list[Ordering]:
    """Every pair of rows of a group whose BLEU differs in the paper, and what we find with so many seeds."""
    found = []
    for group, rows in GROUPS.items():
        for pair in combinations([row for row in rows if row in ours], 2):
            worse, better = sorted(pair, key=lambda row: PAPER[row].bleu)
            if PAPER[worse].bleu < PAPER[better].bleu:
                agrees = _same_way(worse, better, perplexities or {})
                found.append(Ordering(group, worse, better, verdict(ours[worse], ours[better]), agrees))
    return found


def verdict(worse: Sequence[float], better: Sequence[float]) -> Verdict | None:
    """Whether what the paper finds better is so here too, and beyond chance; one seed says nothing of chance."""
    above = statistics.fmean(better) - statistics.fmean(worse)
    if above == 0:
        return None
    if differ(worse, better):
        return "holds" if above > 0 else "reversed"
    return "leans so" if above > 0 else "leans against"


def _same_way(one: str, other: str, perplexities: Mapping[str, float | None]) -> bool | None:
    ours, papers = [perplexities.get(row) for row in (one, other)], [PAPER[row].perplexity for row in (one, other)]
    if ours[0] is None or ours[1] is None or ours[0] == ours[1] or papers[0] == papers[1]:
        return None
    return (ours[0] < ours[1]) == (papers[0] < papers[1])


def make_report(plan: Plan, outcome: Outcome) -> Report:
    """The table, the orderings and the curves."""
    found = findings(outcome)
    ours = {name: finding.scores for name, finding in found.items() if finding.results}
    orders = orderings(ours, {name: finding.mean("perplexity") for name, finding in found.items()})
    parts: list[Part] = [
        _beside_the_paper(found),
        _summary(orders),
        _pairs(orders, ours),
        scores(found, "base"),
        cost(found),
        *curves(outcome, GROUPS),
    ]
    return report(
        plan, outcome, "Table 3 of the paper, measured", parts, {"orderings": [asdict(each) for each in orders]}
    )


def _beside_the_paper(found: Mapping[str, Finding]) -> Table:
    columns = ["row", "perplexity", "the paper's", "BLEU [95 %]", "the paper's", "parameters, M", "the paper's"]
    rows: list[list[Cell]] = []
    for name, finding in found.items():
        paper, millions = PAPER[name], finding.mean("parameters", 1e6)
        ours = finding.mean("perplexity")
        rows.append([name, ours, paper.perplexity, finding.score, paper.bleu, millions, paper.millions])
    note = "The paper's: newstest2013 en-de, 100,000 updates (big: 300,000), perplexity a piece of its own vocabulary."
    return Table("Table 3", columns, rows, note)


def _summary(orders: Sequence[Ordering]) -> Table:
    verdicts: tuple[Verdict, ...] = ("holds", "leans so", "leans against", "reversed")
    rows: list[list[Cell]] = []
    for group in dict.fromkeys(order.group for order in orders):
        those = [order for order in orders if order.group == group]
        same = [order.perplexity for order in those if order.perplexity is not None]
        counts = [sum(order.bleu == each for order in those) for each in verdicts]
        rows.append([group, len(those), *counts, f"{sum(same)} of {len(same)}"])
    columns = ["group", "pairs", *verdicts, "same way in perplexity"]
    note = (
        "Pairs of rows whose BLEU differs in the paper. Holds, reversed: our means over seeds differ by Welch's t at "
        "5 %, each pair by itself. Leans: they do not, or a row has a single seed, of which no significance is "
        "claimed. A dash: ours are equal. Perplexities are compared by their means alone."
    )
    return Table("Which of the paper's orderings hold", columns, rows, note)


def _pairs(orders: Sequence[Ordering], ours: Mapping[str, Sequence[float]]) -> Table:
    rows: list[list[Cell]] = [
        [
            each.group,
            f"{each.worse} < {each.better}",
            f"{PAPER[each.worse].bleu} < {PAPER[each.better].bleu}",
            f"{statistics.fmean(ours[each.worse]):.2f}, {statistics.fmean(ours[each.better]):.2f}",
            each.bleu,
            None if each.perplexity is None else "yes" if each.perplexity else "no",
        ]
        for each in orders
    ]
    columns = ["group", "the paper's ordering", "its BLEU", "ours", "BLEU", "same way in perplexity"]
    return Table("Pair by pair", columns, rows)
