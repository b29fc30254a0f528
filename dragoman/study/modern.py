"""What came after the paper, part by part and together, against the paper's Transformer (docs/systems.md)."""

from collections.abc import Sequence

from dragoman.recipe import Recipe
from dragoman.study.findings import cost, curves, findings, report, scores
from dragoman.study.report import Part, Report
from dragoman.study.trials import Outcome, Plan, choose
from dragoman.study.variants import names_of, read_variant

PAPER = "paper"  # the name that the Transformer as published goes under here
PLAIN = "systems/transformer"


def recipes(only: Sequence[str], overrides: Sequence[str]) -> dict[str, Recipe]:
    """The paper's Transformer and recipes/modern/; an override leaves alone what a recipe is about."""
    parts = [name for name in names_of("modern") if name != "all"]
    files = {PAPER: PLAIN} | {name: f"modern/{name}" for name in (*parts, "all")}
    return {name: read_variant(files[name], PLAIN, overrides) for name in choose(list(files), only)}


def make_report(plan: Plan, outcome: Outcome) -> Report:
    """Scores against the paper's, cost and curves."""
    found = findings(outcome)
    families = {"The modern parts": [name for name in found if name != "all"], "All together": [PAPER, "all"]}
    parts: list[Part] = [scores(found, PAPER), cost(found), *curves(outcome, families)]
    return report(plan, outcome, "The Transformer of 2017 and what came after", parts)
