"""Diagrams of architectures: every parameter of every recipe is in a box, and every text in its box."""

import re
from pathlib import Path

import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import FancyBboxPatch

from dragoman.models.interface import Model
from dragoman.plots.architecture import draw_architecture
from dragoman.plots.blueprint import Block, Stack
from dragoman.plots.charts import as_svg
from dragoman.plots.drafts import draft, draft_folder, draft_recipe
from dragoman.recipe import Recipe, read_recipe
from dragoman.saved import build_model

RECIPES = Path(__file__).parents[2] / "recipes"
FOLDERS = ("systems", "modern", "sizes")
NAMES = ["base", *sorted(f"{folder}/{path.stem}" for folder in FOLDERS for path in (RECIPES / folder).glob("*.toml"))]


def texts(svg: str) -> list[str]:
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


@pytest.mark.parametrize("name", [*NAMES, "table3/b-key-width-16", "table3/e-learned-positions"])
def test_the_boxes_of_a_recipe_hold_all_of_its_parameters(name: str) -> None:
    recipe = read_recipe(name)
    with torch.device("meta"):
        model = build_model(recipe, 1009, 1013)
    blueprint = draft(recipe, model)
    assert blueprint.parameters == sum(each.numel() for each in model.parameters())
    assert f"{blueprint.parameters:,} parameters" in blueprint.title
    assert all(column.flows for column in blueprint.columns)


@pytest.mark.parametrize(
    "name", ["base", "table3/b-key-width-16", "sizes/gpt-3", "systems/wu", "systems/luong-predictive", "modern/all"]
)
def test_every_text_fits_its_box(name: str) -> None:
    figure = draw_architecture(draft_recipe(name, 1 << 20))
    renderer = FigureCanvasAgg(figure).get_renderer()
    (axes,) = figure.axes
    boxes = [each.get_window_extent(renderer) for each in axes.patches if isinstance(each, FancyBboxPatch)]
    places = [(each.get_text(), each.get_window_extent(renderer)) for each in axes.texts if each.get_text()]
    whole = figure.get_window_extent(renderer)
    inside = 0
    for text, place in places:
        assert whole.x0 <= place.x0 <= place.x1 <= whole.x1, text
        middle = (place.x0 + place.x1) / 2, (place.y0 + place.y1) / 2
        for box in boxes:
            if box.height < 100 and box.contains(*middle):  # a box, and not the frame of a repeated layer
                inside += 1
                assert box.x0 < place.x0 < place.x1 < box.x1, text
                assert box.y0 < place.y0 < place.y1 < box.y1, text
    assert inside >= 16


def test_figure_1_names_the_widths_of_the_base_model() -> None:
    said = texts(as_svg(draw_architecture(draft_recipe("base", None))))
    assert said.count("6 \N{MULTIPLICATION SIGN}") == 2
    assert "8 heads of 64 · 1,048,576 parameters" in said
    assert "512 → 2,048 → 512, ReLU · 2,099,712 parameters" in said
    assert said.count("Add, layer norm") == 2 + 3
    assert "target pieces, shifted right" in said


def test_a_norm_stands_where_the_recipe_puts_it() -> None:
    def stack(*words: str) -> list[str]:
        recipe = read_recipe("tiny", words)
        column = draft(recipe, build_model(recipe, 31, 31)).columns[0]
        (found,) = (part for part in column.parts if isinstance(part, Stack))
        return [block.name for sublayer in found.sublayers for block in sublayer.blocks]

    attention, forward = "Self-attention", "Feed-forward"
    assert stack("model.norm=post") == [attention, "Add, layer norm", forward, "Add, layer norm"]
    pre = stack("model.norm=pre", "model.norm_kind=rms")
    assert pre == ["RMS norm", attention, "Add", "RMS norm", forward, "Add"]


def test_what_is_learned_or_turned_or_windowed_is_said() -> None:
    names = {
        words: " ".join(
            f"{block.name} {block.detail}"
            for column in draft(recipe, build_model(recipe, 31, 37)).columns
            for part in column.parts
            for block in ([part] if isinstance(part, Block) else [b for s in part.sublayers for b in s.blocks])
        )
        for words in ("model.positions=learned", "model.positions=rotary", "model.window=3", "data.shared=false")
        for recipe in [read_recipe("tiny", [words])]
    }
    assert "Add positions: learned" in names["model.positions=learned"]
    assert "turned by position" in names["model.positions=rotary"]
    assert "Add positions" not in names["model.positions=rotary"]
    assert "3 neighbours" in names["model.window=3"]
    assert "the same matrix" in names["model.window=3"]
    assert "the same matrix" not in names["data.shared=false"]


def test_a_system_that_is_not_known_is_a_list_of_its_parts() -> None:
    recipe = read_recipe("systems/bahdanau")
    with torch.device("meta"):
        model = build_model(recipe, 31, 31)
    unknown = Recipe().model_copy(update={"model": read_recipe("systems/lstmn").model})
    blueprint = draft(unknown, model)
    assert blueprint.parameters == sum(each.numel() for each in model.parameters())
    assert [column.flows for column in blueprint.columns] == [False]
    assert "alignment" in texts(as_svg(draw_architecture(blueprint)))


def test_a_run_is_drawn_with_its_own_vocabulary(reverser: Path, translator: object) -> None:
    model: Model = translator.models[0]  # type: ignore[attr-defined]
    blueprint = draft_folder(reverser, "last")
    assert blueprint.parameters == sum(each.numel() for each in model.parameters())
    assert f"{len(model.projection):,} pieces" in as_svg(draw_architecture(blueprint))
