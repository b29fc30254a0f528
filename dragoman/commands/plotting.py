"""Pictures: `dragoman plot`. Each command parses, computes what is to be drawn, and saves or prints it."""

from collections.abc import Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from dragoman.commands import looking
from dragoman.commands.options import Checkpoint
from dragoman.commands.pictures import TERMINAL, Out, OutOrTerminal, choose_file, save_picture
from dragoman.errors import ConfigError
from dragoman.plots.curves import VALUES, Value, line_of

if TYPE_CHECKING:
    from dragoman.plots.charts import Line
    from dragoman.recipe import TrainingConfig

app = typer.Typer(no_args_is_help=True, help="Pictures of the paper's figures, from a recipe, a model or nothing.")
app.command()(looking.attention)
app.command()(looking.head)


@app.command()
def masks(out: OutOrTerminal = None) -> None:
    """Who may see whom: causal, padding, and two sentences packed into one row."""
    from dragoman.plots.masks import draw_masks, example_masks
    from dragoman.plots.terminal import attention_map

    place = choose_file(out, "masks", has_text=True)
    if place == TERMINAL:
        print("\n\n".join(f"{m.title}\n{attention_map(m.visible.float(), m.queries, m.keys)}" for m in example_masks()))
    else:
        save_picture(draw_masks(example_masks()), place)


@app.command()
def positions(
    kind: Annotated[Literal["interleaved", "halves", "periods"] | None, typer.Option(help="All unless given.")] = None,
    model: Annotated[Path | None, typer.Option(help="What this model adds instead: learned positions, or not.")] = None,
    positions: Annotated[int, typer.Option(min=1, max=1000, help="How many.")] = 20,
    width: Annotated[int, typer.Option(min=2, max=4096, help="Of each encoding: d_model.")] = 512,
    out: Out = None,
    checkpoint: Checkpoint = None,
) -> None:
    """Positional encodings: interleaved and in halves, their long periods, or a model's own (section 3.5)."""
    from dragoman.plots.positions import ARRANGEMENTS, draw_positions, draw_tables, find_tables
    from dragoman.saved import load_model

    place = choose_file(out, "positions")
    if model is not None and kind is not None:
        raise ConfigError("--kind", "is a way to draw the sinusoids, not what --model adds")
    if model is None:
        save_picture(draw_positions(positions, width, (kind,) if kind else ARRANGEMENTS), place)
        return
    tables = find_tables(load_model(model, checkpoint).model)
    if not tables:
        raise ConfigError(model, "adds no positions that could be drawn")
    panels = {}
    for name, table in tables.items():
        how = "learned" if table.requires_grad else "not learned"
        chosen = table.detach()[:positions]
        panels[f"{len(chosen)} of {len(table):,} {name} of {model.name}, {how}"] = chosen
    save_picture(draw_tables(panels), place)


@app.command()
def architecture(
    what: Annotated[str, typer.Argument(help="A recipe, a model folder or a run folder.")] = "base",
    vocabulary: Annotated[int | None, typer.Option(min=1, max=1 << 31, help="Of a recipe: pieces.")] = None,
    out: Out = None,
    checkpoint: Checkpoint = None,
) -> None:
    """The parts of a recipe's or a model's network with their widths and parameters (Figure 1)."""
    from dragoman.plots.architecture import draw_architecture
    from dragoman.plots.drafts import draft_folder, draft_recipe

    place = choose_file(out, "architecture")
    if Path(what).is_dir():
        save_picture(draw_architecture(draft_folder(Path(what), checkpoint)), place)
    else:
        save_picture(draw_architecture(draft_recipe(what, vocabulary)), place)


@app.command()
def schedule(
    recipes: Annotated[list[str] | None, typer.Argument(help="Recipes, instead of widths and warm-ups.")] = None,
    width: Annotated[list[int] | None, typer.Option(min=1, help="d_model; may be repeated.")] = None,
    warmup: Annotated[list[int] | None, typer.Option(min=1, help="warmup_steps; may be repeated.")] = None,
    steps: Annotated[int | None, typer.Option(min=2, max=1 << 30, help="How far; the budget of a recipe.")] = None,
    out: OutOrTerminal = None,
) -> None:
    """The learning rate for several widths and warm-ups, or of recipes (section 5.3, equation 3)."""
    from dragoman.recipe import TrainingConfig, read_recipe

    place = choose_file(out, "schedule", has_text=True)
    if recipes:
        if width or warmup:
            raise ConfigError("--width and --warmup", "are said by the recipes")
        read = {name: read_recipe(name) for name in recipes}
        lines = [_rates(name, each.training, each.model.width, steps) for name, each in read.items()]
    else:
        pairs = product(width or (256, 512), warmup or (4000, 8000))
        lines = [
            _rates(f"width {wide:,}, warm-up {warm:,}", TrainingConfig(warmup=warm), wide, steps or 20000)
            for wide, warm in pairs
        ]
    _show_lines([("learning rate", lines)], "step", place)


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Run folders, drawn together.", show_default=False)],
    value: Annotated[list[Value] | None, typer.Option(help="May be repeated; the losses and BLEU.")] = None,
    against: Annotated[Literal["steps", "minutes"], typer.Option(help="Along the bottom.")] = "steps",
    out: OutOrTerminal = None,
) -> None:
    """Learning curves of several runs together, from their journals, while they run too."""
    from dragoman.training.journal import JOURNAL, read_journal

    place = choose_file(out, "curves", has_text=True)
    for run in runs:
        if not (run / JOURNAL).is_file():
            raise ConfigError(run, f"not a run folder: it has no {JOURNAL}")
    is_clear = len({run.name for run in runs}) == len(runs)
    journals = {run.name if is_clear else str(run): read_journal(run) for run in runs}
    panels: list[tuple[str, Sequence[Line]]] = []
    for each in value or (Value.LOSS, Value.VALIDATION_LOSS, Value.BLEU):
        lines = [line_of(name, events, each, against) for name, events in journals.items()]
        if any(line.x for line in lines):
            panels.append((VALUES[each][2], lines))
        elif value:
            raise ConfigError("--value", f"no run has written any, got {each}")
    if not panels:
        raise ConfigError(runs[0], "its journal has nothing to draw yet")
    _show_lines(panels, "step" if against == "steps" else "minutes of training", place)


@app.command()
def smoothing(
    epsilon: Annotated[list[float] | None, typer.Option(min=0, max=1, help="May be repeated; 0, 0.1, 0.2.")] = None,
    vocabulary: Annotated[int, typer.Option(min=2, max=12, help="Pieces.")] = 8,
    out: Out = None,
) -> None:
    """What label smoothing teaches in place of one label (section 5.4)."""
    from dragoman.plots.curves import draw_smoothing

    place = choose_file(out, "smoothing")
    save_picture(draw_smoothing(vocabulary // 3, vocabulary, epsilon or [0.0, 0.1, 0.2]), place)


def _show_lines(panels: "Sequence[tuple[str, Sequence[Line]]]", x_label: str, place: Path) -> None:
    from dragoman.plots.curves import draw_panels
    from dragoman.plots.terminal import line_chart

    if place == TERMINAL:
        print("\n\n".join(line_chart(lines, x_label, y_label) for y_label, lines in panels))
    else:
        save_picture(draw_panels(panels, x_label), place)


def _rates(name: str, config: "TrainingConfig", width: int, steps: int | None) -> "Line":
    from dragoman.plots.charts import Line
    from dragoman.training.schedule import Progress, learning_rate, spent

    budget = steps or (None if config.epochs or config.minutes else config.steps)
    if budget is None:
        raise ConfigError(name, "its budget is not in steps alone", hint="say --steps")
    within = config.model_copy(update={"steps": budget, "epochs": None, "minutes": None})
    shown = sorted({*range(1, budget, max(1, budget // 500)), min(config.warmup, budget), budget})
    rates = [learning_rate(config, width, step, spent(Progress(step=step - 1), within)) for step in shown]
    return Line(name, shown, rates)
