"""Recipes: presets, overrides and budgets, what is refused, and the hash that names what is left."""

import tomllib
from pathlib import Path

import pytest

from dragoman.config import check
from dragoman.errors import ConfigError
from dragoman.models.transformer import TransformerConfig
from dragoman.recipe import Recipe, TrainingConfig, find_recipe, preset_folders, read_recipe

[FOLDER] = preset_folders()
FILES = sorted(set(FOLDER.rglob("*.toml")) - set(FOLDER.glob("captions/*.toml")))  # which are recipes of another kind
NAMES = [str(file.relative_to(FOLDER).with_suffix("")) for file in FILES if "." not in file.stem]

each_file = pytest.mark.parametrize("file", FILES, ids=[str(file.relative_to(FOLDER)) for file in FILES])


@each_file
def test_a_recipe_written_as_toml_is_read_as_the_same_recipe(file: Path, tmp_path: Path) -> None:
    recipe = read_recipe(file)
    again = check(Recipe, tomllib.loads(recipe.toml()), "again")
    assert again == recipe
    assert again.hash == recipe.hash
    (tmp_path / "recipe.toml").write_text(recipe.toml())
    assert read_recipe(tmp_path / "recipe.toml") == recipe


def test_no_two_recipes_share_a_hash_but_those_that_are_equal() -> None:
    recipes = [read_recipe(file) for file in FILES]
    for recipe in recipes:
        for other in recipes:
            assert (recipe.hash == other.hash) == (recipe == other)


def other_values() -> list[tuple[str, str, object]]:
    """For every key of a recipe, a value that is not its own."""
    special: dict[str, object] = {
        "kind": None,
        "algorithm": "unigram",
        "invalid": "drop",
        "positions": "none",
        "norm": "pre",
        "norm_kind": "rms",
        "feed_forward": "swiglu",
    }
    special |= {"schedule": "landing", "precision": "bf16", "heads": 16}
    found: list[tuple[str, str, object]] = []
    for section, values in read_recipe("base").model_dump().items():
        for key, value in values.items():
            other: object
            if key in special:
                other = special[key]
            elif isinstance(value, bool):
                other = not value
            else:
                other = 1 if value is None else 2 * value if value else 0.5 if isinstance(value, float) else 1
            found += [] if other is None else [(section, key, other)]
    return found


@pytest.mark.parametrize(("section", "key", "value"), other_values())
def test_the_hash_changes_with_every_single_value(section: str, key: str, value: object) -> None:
    base = read_recipe("base")
    value = 0.95 if key in ("beta1", "beta2") else value
    changed = base.with_values({section: {key: value}}, "test")
    assert changed != base
    assert changed.hash != base.hash


def test_the_hash_does_not_depend_on_how_the_values_are_written(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("[training]\nminutes = 5\nwarmup = 100\n[model]\ndropout = 0.10\n")
    (tmp_path / "b.toml").write_text("[model]\n[training]\nwarmup = 1_00\nminutes = 5.0\n")
    assert read_recipe(tmp_path / "a.toml").hash == read_recipe(tmp_path / "b.toml").hash


def test_the_base_recipe_states_every_default() -> None:
    # Its steps alone are a choice: a budget has no default.
    assert read_recipe("base", ["training.save_every=1000"]) == Recipe(training=TrainingConfig(steps=100_000))


@pytest.mark.parametrize("name", NAMES)
def test_a_preset_is_found_by_its_name_with_or_without_folder_and_suffix(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    expected = FOLDER / f"{name}.toml"
    for spelling in (name, f"{name}.toml", f"recipes/{name}", f"recipes/{name}.toml", str(expected)):
        assert find_recipe(spelling) == expected
    assert find_recipe(expected) == expected


@pytest.mark.parametrize("name", ["table3/d-dropout-0.0", "recipes/table3/d-smoothing-0.2"])
def test_a_preset_whose_name_has_a_point_is_found_too(name: str) -> None:
    assert find_recipe(name) == FOLDER / f"{name.removeprefix('recipes/')}.toml"


def test_a_file_of_ones_own_goes_before_a_preset_of_the_same_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "base.toml").write_text("[model]\nlayers = 7\n")
    assert read_recipe("base.toml").model.layers == 7
    assert read_recipe("base").model.layers == 6


@pytest.mark.parametrize("name", ["bse", "nothing/here.toml", "base.tml", "/gone.toml", "recipes", ".", "..", ""])
def test_an_unknown_recipe_is_refused_with_the_presets_there_are(name: str) -> None:
    with pytest.raises(ConfigError, match=r"no such recipe$") as refusal:
        read_recipe(name)
    assert refusal.value.hint is not None
    assert refusal.value.hint.endswith("presets: " + ", ".join(sorted(file.stem for file in FOLDER.glob("*.toml"))))
    assert "base, big" in refusal.value.hint


def test_overrides_are_typed() -> None:
    words = ["model.layers=3", "model.dropout=0.25", "model.norm=pre", "training.compile=true", "training.peak=3e-4"]
    recipe = read_recipe("base", words)
    assert (recipe.model.layers, recipe.model.dropout, recipe.model.norm) == (3, 0.25, "pre")
    assert recipe.training.compile is True
    assert recipe.training.peak == 0.0003


def test_an_override_changes_nothing_else() -> None:
    base, changed = read_recipe("base").model_dump(), read_recipe("base", ["model.layers=3"]).model_dump()
    base["model"]["layers"] = 3
    assert changed == base


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["model.layers=three"], "'model.layers': input should be a valid integer, got 'three'"),
        (["model.layers=2.0"], "'model.layers': input should be a valid integer, got 2.0"),
        (["model.layers=-1"], "'model.layers': input should be greater than or equal to 1, got -1"),
        (["model.dropout=1.0"], "'model.dropout': input should be less than 1, got 1.0"),
        (["training.compile=1"], "'training.compile': input should be a valid boolean, got 1"),
        (["training.peak=nan"], "'training.peak': input should be a finite number, got nan"),
        (["model.norm=past"], "'model.norm': input should be 'post' or 'pre', got 'past'"),
        (["training.stps=3"], "unknown key 'training.stps', did you mean 'training.steps'?"),
        (["models.width=3"], "unknown key 'models', did you mean 'model'?"),
        (["extends=tiny.toml"], "unknown key 'extends'"),
        (["training.row_length=1025"], "'training.row_length' = 1025 is more than 'model.longest' = 1024"),
        (["model.longest=199"], "'training.row_length' = 256 is more than 'model.longest' = 199"),
    ],
)
def test_a_bad_override_is_named_with_its_recipe(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        read_recipe("base", words)
    assert str(refusal.value) == f"{FOLDER / 'base.toml'} with {' '.join(words)}: {message}"


def test_an_override_can_mend_a_file(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text("[model]\nlayers = 0\n")
    with pytest.raises(ConfigError) as refusal:
        read_recipe(tmp_path / "own.toml")
    assert str(refusal.value).startswith(f"{tmp_path / 'own.toml'}: 'model.layers'")
    assert read_recipe(tmp_path / "own.toml", ["model.layers=3"]).model.layers == 3


def test_a_name_that_is_nearly_a_preset_is_guessed() -> None:
    with pytest.raises(ConfigError) as refusal:
        read_recipe("tinny")
    assert refusal.value.hint is not None
    assert refusal.value.hint.startswith("did you mean tiny? presets: ")


def test_heads_that_do_not_fit_are_named_beside_every_other_mistake() -> None:
    with pytest.raises(ConfigError) as refusal:
        read_recipe("base", ["model.heads=7", "model.layers=0", "model.dropout=2"])
    assert len(refusal.value.what.splitlines()) == 3
    assert "'model.heads' = 7 does not divide 'model.width' = 512" in refusal.value.what


@pytest.mark.parametrize(
    "key", ["training.warmup", "decoding.beam", "training.seed", "training.steps", "model.dropout"]
)
def test_a_key_without_its_section_is_answered_with_its_full_name(key: str) -> None:
    bare = key.split(".")[1]
    with pytest.raises(ConfigError, match=f"unknown key '{bare}', did you mean '{key}'\\?$"):
        read_recipe("base", [f"{bare}=3"])


@pytest.mark.parametrize("key", ["training.qqqq", "model.xyz", "training.lr"])
def test_a_key_like_no_other_is_answered_with_no_guess(key: str) -> None:
    with pytest.raises(ConfigError, match=f"unknown key '{key}'$"):
        read_recipe("base", [f"{key}=3"])


@pytest.mark.parametrize("word", ["data=5", "model=5", "training=5", "decoding=5", "training=steps"])
def test_a_value_where_a_section_belongs_is_a_mistake(word: str) -> None:
    section = word.split("=")[0]
    with pytest.raises(ConfigError, match=f": '{section}': input should be a valid dictionary"):
        read_recipe("base", [word])


def test_all_mistakes_of_all_sections_are_named_at_once() -> None:
    words = ["data.ratio=0.5", "model.heads=7", "training.stps=3", "decoding.beam=0", "models.width=5"]
    with pytest.raises(ConfigError) as refusal:
        read_recipe("base", words)
    assert len(refusal.value.report().splitlines()) == 5
    for part in ("'data.ratio'", "'model.heads' = 7", "'training.stps'", "'decoding.beam'", "'models'"):
        assert part in refusal.value.what


@pytest.mark.parametrize(("word", "budget"), [("steps=13", 13), ("epochs=3", 3), ("minutes=0.5", 0.5)])
@pytest.mark.parametrize("preset", ["base", "tiny"])
def test_a_budget_on_the_command_line_replaces_the_recipes(preset: str, word: str, budget: float) -> None:
    training = read_recipe(preset, [f"training.{word}"]).training
    name = word.split("=")[0]
    budgets = {each: getattr(training, each) for each in ("steps", "epochs", "minutes")}
    assert budgets == {"steps": None, "epochs": None, "minutes": None} | {name: budget}


def test_several_budgets_may_be_given_together() -> None:
    training = read_recipe("base", ["training.epochs=3", "training.minutes=5"]).training
    assert (training.steps, training.epochs, training.minutes) == (None, 3, 5.0)


def test_any_other_override_leaves_the_budget_alone() -> None:
    assert read_recipe("base", ["training.warmup=13"]).training.steps == 100_000


@pytest.mark.parametrize(("heads", "width"), [(7, 512), (8, 20), (3, 2)])
def test_heads_must_divide_the_width(heads: int, width: int) -> None:
    message = f"'model.heads' = {heads} does not divide 'model.width' = {width}: use another number of heads, or set"
    for widths in ([], ["model.key_width=5"], ["model.value_width=5"]):
        with pytest.raises(ConfigError, match=message):
            read_recipe("base", [f"model.heads={heads}", f"model.width={width}", *widths])


def test_heads_need_not_divide_the_width_where_both_widths_of_a_head_are_set() -> None:
    config = TransformerConfig(heads=7, width=11, key_width=3, value_width=5)
    assert config.channels == (3, 5)
    assert TransformerConfig(heads=4, width=20, key_width=3).channels == (3, 5)
    assert TransformerConfig(heads=4, width=20).channels == (5, 5)


@pytest.mark.parametrize(
    "word",
    [
        "model.width=1000000000",
        "model.hidden=1000000000",
        "model.layers=-3",
        "model.layers=1000000000",
        "model.heads=0",
        "model.key_width=1000000000",
        "model.value_width=1000000000",
        "model.longest=1000000000",
        "model.longest=0",
    ],
)
def test_a_model_that_no_machine_could_hold_is_refused_before_it_is_built(word: str) -> None:
    key = word.split("=")[0]
    with pytest.raises(ConfigError, match=f"'{key}': input should be (less|greater) than or equal to"):
        read_recipe("base", [word])


def test_values_replaced_in_a_recipe_are_checked_anew() -> None:
    recipe = read_recipe("tiny")
    assert recipe.with_values({"decoding": {"beam": 7}}, "here").decoding.beam == 7
    with pytest.raises(
        ConfigError, match=r"^here: 'decoding.beam': input should be greater than or equal to 1, got 0$"
    ):
        recipe.with_values({"decoding": {"beam": 0}}, "here")


@each_file
def test_every_recipe_has_a_budget_and_rows_its_model_has_positions_for(file: Path) -> None:
    recipe = read_recipe(file)
    assert any((recipe.training.steps, recipe.training.epochs, recipe.training.minutes))
    assert recipe.training.row_length <= recipe.model.longest
