"""Diagrams of architectures: every parameter of every recipe is in a box, and every text in its box."""

import re
from functools import cache
from pathlib import Path
from typing import Any

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
NORM_KINDS = {"layer": "layer norm", "rms": "RMS norm", "batch": "batch norm"}
NAMES = ["base", *sorted(f"{folder}/{path.stem}" for folder in FOLDERS for path in (RECIPES / folder).glob("*.toml"))]


@cache
def drawn(name: str) -> Any:
    return draw_architecture(draft_recipe(name, 1 << 20))


def written(name: str) -> list[str]:
    return [text.get_text() for text in drawn(name).axes[0].texts]


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
    "name",
    [
        *("base", "sizes/gpt-3", "modern/all"),
        *(f"systems/{name}" for name in ("wu", "luong-predictive", "bytenet", "neural-gpu")),
    ],
)
def test_every_text_fits_its_box(name: str) -> None:
    figure = drawn(name)
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
    said = written("base")
    assert said.count("6 \N{MULTIPLICATION SIGN}") == 2
    assert "8 heads of 64 · 1,048,576 parameters" in said
    assert "512 → 2,048 → 512, ReLU · 2,099,712 parameters" in said
    assert said.count("Add, layer norm") == 2 + 3
    assert "target pieces, shifted right" in said


@pytest.mark.parametrize(
    ("place", "kind", "residual", "expected"),
    [
        ("post", "layer", "true", ["*", "Add, layer norm"]),
        ("post", "batch", "true", ["*", "Add, batch norm"]),
        ("post", "none", "true", ["*", "Add"]),
        ("post", "rms", "false", ["*", "RMS norm"]),
        ("post", "none", "false", ["*"]),
        ("pre", "rms", "true", ["RMS norm", "*", "Add"]),
        ("pre", "none", "true", ["*", "Add"]),
        ("pre", "batch", "false", ["Batch norm", "*"]),
    ],
)
def test_norms_and_additions_stand_where_the_recipe_puts_them(
    place: str, kind: str, residual: str, expected: list[str]
) -> None:
    words = [f"model.norm={place}", f"model.norm_kind={kind}", f"model.residual={residual}"]
    recipe = read_recipe("tiny", words)
    with torch.device("meta"):
        model = build_model(recipe, 31, 31)
    blueprint = draft(recipe, model)
    assert blueprint.parameters == sum(each.numel() for each in model.parameters())
    (stack,) = (part for part in blueprint.columns[0].parts if isinstance(part, Stack))
    for name, sublayer in zip(("Self-attention", "Feed-forward"), stack.sublayers, strict=True):
        assert [block.name for block in sublayer.blocks] == [name if each == "*" else each for each in expected]
        assert sublayer.is_residual is (residual == "true")
    last = [part.name for part in blueprint.columns[1].parts if isinstance(part, Block) and "norm" in part.name]
    assert last == ([f"Last {NORM_KINDS[kind]}"] if place == "pre" and kind != "none" else [])


def test_a_convolution_is_drawn_with_its_window_and_its_steps() -> None:
    said = {name: written(f"systems/{name}") for name in ("convs2s", "bytenet", "neural-gpu")}
    assert said["convs2s"].count("8 \N{MULTIPLICATION SIGN}") == 2
    assert {"Convolution, 3 wide", "Causal convolution, 3 wide", "Attention, dot"} <= set(said["convs2s"])
    assert "172 → 172, dilated by 1, 2, 4, 8, 16 · 88,924 parameters" in said["bytenet"]
    assert {"Causal convolution, 3 wide", "memory"} <= set(said["bytenet"])
    assert "2 \N{MULTIPLICATION SIGN}" in said["neural-gpu"]
    assert {"for each\nsource\npiece", "for each\ntarget\npiece"} <= set(said["neural-gpu"])


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
