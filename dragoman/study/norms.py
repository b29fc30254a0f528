"""What normalisation and residuals are for (section 3.1): layer, batch and none, after and before, with and without.

Batch norm's statistics are those of the rows that pass at once, and depend on how many those are.
"""

from collections.abc import Sequence

import torch

from dragoman.models.layers import NORMS
from dragoman.recipe import Recipe, read_recipe
from dragoman.study.findings import cost, curves, findings, report, scores
from dragoman.study.report import Cell, Part, Report, Table
from dragoman.study.trials import Outcome, Plan, choose

EXAMPLE = ((1.0, 2.0), (3.0, 4.0), (5.0, 6.0))  # three positions of two channels
BARE = "-no-residual"
PLACED = {
    "layer-after": ("layer", "post"),  # as published
    "layer-before": ("layer", "pre"),
    "batch-after": ("batch", "post"),
    "batch-before": ("batch", "pre"),
    "none": ("none", "post"),  # without a norm, after and before are the same
}


def recipes(only: Sequence[str], overrides: Sequence[str]) -> dict[str, Recipe]:
    """The Transformer of recipes/systems/ with each norm in each place, with its residuals and without."""
    words = {
        name + bare: [f"model.norm_kind={kind}", f"model.norm={place}", f"model.residual={'false' if bare else 'true'}"]
        for bare in ("", BARE)
        for name, (kind, place) in PLACED.items()
    }
    chosen = choose(list(words), only)
    return {name: read_recipe("systems/transformer", [*overrides, *words[name]]) for name in chosen}


def side_by_side() -> Table:
    """Batch and layer norm of a small example, by the norms that the models are made of."""
    x = torch.tensor([EXAMPLE])
    with torch.no_grad():
        layer, batch = (NORMS[kind](x.shape[-1]).train()(x)[0].tolist() for kind in ("layer", "batch"))
    rows: list[list[Cell]] = [
        [_show(given), _show(by_layer), _show(by_batch)]
        for given, by_layer, by_batch in zip(EXAMPLE, layer, batch, strict=True)
    ]
    note = (
        "Layer norm looks along a position, batch norm along a channel: over all real positions of the batch. So in "
        "training a position is influenced by later ones through the statistics; at evaluation, by running averages, "
        "it is not."
    )
    return Table("Three positions of two channels", ["x", "layer norm", "batch norm"], rows, note)


def _show(row: Sequence[float]) -> str:
    return "[" + ", ".join(f"{value:.4g}" for value in row) + "]"


def make_report(plan: Plan, outcome: Outcome) -> Report:
    """The example, scores against the paper's way, cost and curves."""
    found = findings(outcome)
    families = {
        "With residuals": [name for name in found if BARE not in name],
        "Without": [name for name in found if BARE in name],
    }
    parts: list[Part] = [side_by_side(), scores(found, "layer-after"), *_of_averages(outcome), cost(found)]
    parts += curves(outcome, families)
    return report(plan, outcome, "Norms and residuals", parts)


def _of_averages(outcome: Outcome) -> list[str]:
    """What is to be known of a batch norm whose checkpoints were averaged."""
    if not any("batch" in each.name and len(each.averaged) > 1 for each in outcome.results.values()):
        return []
    return [
        "Checkpoints were averaged, and with them the running means and variances of batch norm. Those are not the "
        "statistics of the averaged model: batch norm may score less than it would with statistics counted anew, or "
        "without --average."
    ]
