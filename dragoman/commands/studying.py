"""Commands that study the paper: an experiment each, with a report."""

import typer

from dragoman.commands import measuring, trying

app = typer.Typer(no_args_is_help=True, help="Experiments on the paper's claims, each with a report.")

app.command()(trying.table3)
for study, help in {
    "systems": "Train every system on the same text and budget: scores, cost, and what becomes of long sentences.",
    "modern": "Train what came after the paper, one by one and together, beside the paper's Transformer.",
    "norms": "Train with layer, batch and no norm, after and before the residual, and without any residual.",
}.items():
    app.command(study, help=help)(trying.study_of(study))
for command in (trying.captions, measuring.table1, measuring.scaling, measuring.heads, measuring.sizes):
    app.command()(command)
