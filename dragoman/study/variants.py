"""Recipes that vary in one thing, and what is asked of all of them."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from dragoman.config import parse_overrides
from dragoman.recipe import Recipe, preset_folders, read_recipe


def read_variant(name: str, plain: str, overrides: Sequence[str]) -> Recipe:
    """A recipe with overrides, but for those of what tells it from the plain one: that is what is studied."""
    variant, base = read_recipe(name), read_recipe(plain)
    studied = {
        f"model.{key}"
        for key in type(variant.model).model_fields
        if getattr(variant.model, key) != getattr(base.model, key, None)
    }
    if variant.training.smoothing != base.training.smoothing:
        studied.add("training.smoothing")
    return read_recipe(name, [word for word in overrides if word.partition("=")[0] not in studied])


def left_alone(recipes: Mapping[str, Recipe], overrides: Sequence[str]) -> str | None:
    """A line that names the overrides which some trials do not follow, because those are about just that."""
    said = []
    for section, values in parse_overrides(overrides).items():
        for key, value in values.items():
            names = [name for name, recipe in recipes.items() if recipe.model_dump()[section][key] != value]
            if names:
                said.append(f"{section}.{key} of {', '.join(names)}")
    return f"left as it is, for that is what is studied: {'; '.join(said)}" if said else None


def names_of(folder: str) -> list[str]:
    """The recipes of a folder of presets."""
    found = [presets / folder for presets in preset_folders() if (presets / folder).is_dir()]
    return sorted(path.stem for path in Path(found[0]).glob("*.toml"))
