"""TOML is read strictly: every mistake is named, with the nearest valid name, and all of them at once."""

import tomllib
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field, ValidationError

from dragoman.config import Section, Values, check, merge, parse_overrides, read_values, write_toml
from dragoman.errors import ConfigError


class Boat(Section):
    length: float = Field(7.0, gt=0)
    oars: int = Field(2, ge=0)
    sail: Literal["lateen", "square"] = "lateen"
    motor: bool = False
    berths: int | None = None


class Harbour(Section):
    boat: Boat = Boat()
    other_boat: Boat = Boat()


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_what_is_not_stated_has_its_default() -> None:
    assert check(Harbour, {"boat": {"oars": 5}}, "here") == Harbour(boat=Boat(oars=5))


def test_a_section_cannot_be_changed() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        setattr(Boat(), "oars", 3)  # noqa: B010


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"boat": {"orrs": 3}}, "unknown key 'boat.orrs', did you mean 'boat.oars'?"),
        ({"boats": {}}, "unknown key 'boats', did you mean 'boat'?"),
        ({"motor": True}, "unknown key 'motor', did you mean 'boat.motor'?"),
        ({"quay": 3}, "unknown key 'quay'"),
        ({"boat": {"oars": "3"}}, "'boat.oars': input should be a valid integer, got '3'"),
        ({"boat": {"oars": 3.0}}, "'boat.oars': input should be a valid integer, got 3.0"),
        ({"boat": {"oars": True}}, "'boat.oars': input should be a valid integer, got True"),
        ({"boat": {"motor": 1}}, "'boat.motor': input should be a valid boolean, got 1"),
        ({"boat": {"length": "7"}}, "'boat.length': input should be a valid number, got '7'"),
        ({"boat": {"length": float("nan")}}, "'boat.length': input should be a finite number, got nan"),
        ({"boat": {"length": float("inf")}}, "'boat.length': input should be a finite number, got inf"),
        ({"boat": {"length": 0}}, "'boat.length': input should be greater than 0, got 0"),
        ({"boat": {"oars": -1}}, "'boat.oars': input should be greater than or equal to 0, got -1"),
        ({"boat": {"sail": "gaff"}}, "'boat.sail': input should be 'lateen' or 'square', got 'gaff'"),
    ],
)
def test_a_mistake_is_named_with_what_was_got(values: Values, message: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        check(Harbour, values, "harbour.toml")
    assert refusal.value.what == message
    assert refusal.value.report() == f"error: harbour.toml: {message}"


def test_a_value_where_a_section_belongs_is_a_mistake() -> None:
    with pytest.raises(ConfigError, match=r"^harbour.toml: 'boat': input should be a valid dictionary .*, got 3$"):
        check(Harbour, {"boat": 3}, "harbour.toml")


def test_all_mistakes_are_reported_at_once() -> None:
    values = {"boat": {"orrs": 3, "length": -1.5, "motor": "yes"}, "other_boat": {"sail": "gaff"}, "crew": 5}
    with pytest.raises(ConfigError) as refusal:
        check(Harbour, values, "harbour.toml")
    lines = refusal.value.report().splitlines()
    assert len(lines) == 5
    for line, place in zip(
        sorted(lines), ("boat.length", "boat.motor", "other_boat.sail", "boat.orrs", "crew"), strict=True
    ):
        assert line.startswith("error: harbour.toml: ")
        assert f"'{place}'" in line


def test_a_whole_number_is_a_number() -> None:
    assert check(Boat, {"length": 5}, "here").length == 5.0


def test_a_file_states_only_what_differs_from_what_it_extends(tmp_path: Path) -> None:
    write(tmp_path / "old.toml", "[boat]\noars = 3\nlength = 5.0\n[other_boat]\noars = 7\n")
    (tmp_path / "deep").mkdir()
    write(tmp_path / "deep" / "middle.toml", 'extends = "../old.toml"\n[boat]\noars = 11\nmotor = true\n')
    last = write(tmp_path / "new.toml", 'extends = "deep/middle.toml"\n[boat]\nmotor = false\n')
    expected = {"boat": {"oars": 11, "length": 5.0, "motor": False}, "other_boat": {"oars": 7}}
    assert read_values(last) == expected


@pytest.mark.parametrize("names", [["a"], ["a", "b"], ["a", "b", "c"]])
def test_a_file_that_extends_itself_in_the_end_is_refused(names: list[str], tmp_path: Path) -> None:
    for name, parent in zip(names, [*names[1:], names[0]], strict=True):
        write(tmp_path / f"{name}.toml", f'extends = "{parent}.toml"\n')
    with pytest.raises(ConfigError, match=f"^{tmp_path / 'a.toml'}: 'extends' leads back to this file$"):
        read_values(tmp_path / "a.toml")


def test_a_loop_through_other_spellings_of_a_name_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", f'extends = "../{tmp_path.name}/./a.toml"\n')
    with pytest.raises(ConfigError, match=r"'extends' leads back to this file$"):
        read_values(path)


def test_a_missing_parent_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", 'extends = "gone.toml"\n')
    with pytest.raises(ConfigError, match=f"^{path}: 'extends' = 'gone.toml': no such recipe, neither beside"):
        read_values(path)


def test_extends_must_be_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "a.toml", "extends = 3\n")
    with pytest.raises(ConfigError, match=f"^{path}: 'extends' should name a recipe file, got 3$"):
        read_values(path)


@pytest.mark.parametrize("content", [b"width =", b"[a]\n[a]\n", b"x = \xff"])
def test_what_is_no_toml_is_refused_by_name(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=f"^{tmp_path / 'a.toml'}: not a TOML file: ."):
        read_values(tmp_path / "a.toml")


def test_a_folder_is_no_toml(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"^{tmp_path}: not a TOML file: ."):
        read_values(tmp_path)


@pytest.mark.parametrize(
    ("word", "value"),
    [
        ("boat.oars=3", 3),
        ("boat.oars=1_000", 1000),
        ("boat.length=1e-3", 0.001),
        ("boat.length=2.5", 2.5),
        ("boat.motor=true", True),
        ("boat.motor=false", False),
        ("boat.sail=lateen", "lateen"),
        ('boat.sail="lateen"', "lateen"),
        ("boat.name=a=b", "a=b"),
        ("boat.name=", ""),
        ("boat.name=Öl und Wein", "Öl und Wein"),
        ("boat.name=[1, 2]", [1, 2]),
        ("boat.name=True", "True"),
    ],
)
def test_an_override_has_the_type_it_would_have_in_toml_and_else_is_a_string(word: str, value: object) -> None:
    [(section, values)] = parse_overrides([word]).items()
    [(_, found)] = values.items()
    assert section == "boat"
    assert (type(found), found) == (type(value), value)


def test_overrides_nest_and_the_last_one_holds() -> None:
    assert parse_overrides(["a.b=1", "a.c=2", "d=3", "a.b=5"]) == {"a": {"b": 5, "c": 2}, "d": 3}
    assert parse_overrides([]) == {}


@pytest.mark.parametrize("word", ["boat.oars", "", "=3", ".oars=3", "boat.=3", "boat..oars=3", "--oars"])
def test_an_override_of_another_form_is_refused(word: str) -> None:
    with pytest.raises(ConfigError) as refusal:
        parse_overrides(["boat.oars=3", word])
    assert str(refusal.value) == f"{word}: an override has the form 'section.key=value'"


trees = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3), max_leaves=7
).filter(lambda tree: isinstance(tree, dict))


@given(trees, trees)
@settings(max_examples=100, deadline=None)
def test_merged_values_are_those_of_both_and_the_upper_wins(below: Values, above: Values) -> None:
    assert merge(below, {}) == merge({}, below) == merge(below, below) == below
    merged = merge(below, above)
    assert merged.keys() == below.keys() | above.keys()
    for key, value in merged.items():
        old, new = below.get(key), above.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            assert value == merge(old, new)
        else:
            assert value == (new if key in above else old)


def test_merging_changes_neither_side() -> None:
    below, above = {"a": {"b": 1}}, {"a": {"c": 2}}
    assert merge(below, above) == {"a": {"b": 1, "c": 2}}
    assert (below, above) == ({"a": {"b": 1}}, {"a": {"c": 2}})


@given(
    length=st.floats(min_value=0, exclude_min=True, allow_infinity=False),
    oars=st.integers(0, 2**63 - 1),
    sail=st.sampled_from(["lateen", "square"]),
    motor=st.booleans(),
    berths=st.none() | st.integers(-(2**63), 2**63 - 1),
)
@settings(max_examples=100, deadline=None)
def test_what_is_written_as_toml_is_read_as_the_same(
    length: float, oars: int, sail: Literal["lateen", "square"], motor: bool, berths: int | None
) -> None:
    harbour = Harbour(boat=Boat(length=length, oars=oars, sail=sail, motor=motor, berths=berths))
    assert check(Harbour, tomllib.loads(write_toml(harbour)), "here") == harbour


def test_a_recipe_anywhere_may_extend_a_preset(tmp_path: Path) -> None:
    (tmp_path / "presets").mkdir()
    write(tmp_path / "presets" / "base.toml", "[model]\nlayers = 5\n")
    path = write(tmp_path / "mine.toml", 'extends = "base.toml"\n\n[model]\nwidth = 7\n')
    assert read_values(path, [tmp_path / "presets"]) == {"model": {"layers": 5, "width": 7}}


class Cart(Section):
    kind: Literal["cart"] = "cart"
    wheels: int = 4


class Sledge(Section):
    kind: Literal["sledge"] = "sledge"
    runners: int = 2


class Yard(Section):
    vehicle: Cart | Sledge = Field(Cart(), discriminator="kind")
    boat: Boat = Boat()


def test_a_section_of_another_kind_begins_anew_and_one_of_the_same_goes_on() -> None:
    cart = {"vehicle": {"kind": "cart", "wheels": 3}}
    assert merge(cart, {"vehicle": {"kind": "sledge"}}) == {"vehicle": {"kind": "sledge"}}
    assert merge(cart, {"vehicle": {"kind": "cart"}}) == cart
    assert merge({}, {"vehicle": {"kind": "sledge"}}) == {"vehicle": {"kind": "sledge"}}


def test_what_names_no_kind_goes_on_whatever_comes_first() -> None:
    for words in (["vehicle.wheels=3", "vehicle.kind=cart"], ["vehicle.kind=cart", "vehicle.wheels=3"]):
        assert parse_overrides(words) == {"vehicle": {"wheels": 3, "kind": "cart"}}
    assert merge({"vehicle": {"wheels": 3}}, {"vehicle": {"kind": "cart"}}) == {
        "vehicle": {"wheels": 3, "kind": "cart"}
    }


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"vehicle": {"kind": "sledge", "runers": 3}}, "unknown key 'vehicle.runers', did you mean 'vehicle.runners'?"),
        ({"vehicle": {"kind": "sledge", "wheels": 3}}, "unknown key 'vehicle.wheels'"),
        ({"vehicle": {"kind": "cart", "wheels": "x"}}, "'vehicle.wheels': input should be a valid integer, got 'x'"),
        ({"vehicle": {"kind": "raft"}}, "'vehicle.kind': should be one of 'cart', 'sledge', got 'raft'"),
    ],
)
def test_a_mistake_in_a_section_of_several_kinds_is_named_like_any_other(values: Values, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        check(Yard, values, "here")
    assert str(caught.value).endswith(said)
