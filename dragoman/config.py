"""TOML becomes frozen pydantic models, strictly: every mistake is named at once, with the nearest valid name."""

import json
import reprlib
import tomllib
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from dragoman.errors import ConfigError

Values = dict[str, Any]
C = TypeVar("C", bound="Section")


class Section(BaseModel):
    """A part of a recipe: a frozen value, in which a key nobody knows is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


def read_values(path: Path, presets: Sequence[Path] = (), children: tuple[Path, ...] = ()) -> Values:
    """A TOML file with what it extends, sought beside it and among the presets; that may extend in turn."""
    values = _parse_file(path)
    parent = values.pop("extends", None)
    if parent is None:
        return values
    if not isinstance(parent, str):
        raise ConfigError(path, f"'extends' should name a recipe file, got {parent!r}")
    if path.resolve() in children:
        raise ConfigError(path, "'extends' leads back to this file")
    candidates = [folder / parent for folder in (path.parent, *presets)]
    found = next((candidate for candidate in candidates if candidate.is_file()), None)
    if found is None:
        raise ConfigError(
            path, f"'extends' = {parent!r}: no such recipe, neither beside this one nor among the presets"
        )
    return merge(read_values(found, presets, (*children, path.resolve())), values)


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> Values:
    """Values of both; where both have one, the upper wins; a section of another kind begins anew."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        if not (isinstance(old, dict) and isinstance(value, dict)):
            merged[key] = value
            continue
        kinds = {each["kind"] for each in (old, value) if "kind" in each}
        merged[key] = value if len(kinds) > 1 else merge(old, value)
    return merged


def parse_overrides(overrides: Sequence[str]) -> Values:
    """Command-line words `section.key=value` become nested values; a value that is no TOML is a string."""
    values: Values = {}
    for word in overrides:
        name, equals, text = word.partition("=")
        if not equals or not all(name.split(".")):
            raise ConfigError(word, "an override has the form 'section.key=value'")
        try:
            value = tomllib.loads(f"value = {text}")["value"]
        except tomllib.TOMLDecodeError:
            value = text
        for part in reversed(name.split(".")):
            value = {part: value}
        values = merge(values, value)
    return values


def check(kind: type[C], values: Values, where: object) -> C:
    """The values as a section of this kind, or one error that names every mistake."""
    try:
        return kind.model_validate(values)
    except ValidationError as error:
        mistakes = [_describe(kind, mistake) for mistake in error.errors()]
        raise ConfigError(where, "\n".join(mistakes)) from None


def write_toml(section: Section) -> str:
    """A recipe as TOML; what is None is left out, since None is always the default of what may be None."""
    lines = []
    for name, part in section.model_dump(exclude_none=True).items():
        lines.append(f"[{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in part.items()]
        lines.append("")
    return "\n".join(lines)


def _parse_file(path: Path) -> Values:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(path, "no such recipe") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise ConfigError(path, f"not a TOML file: {error}") from None


def _describe(kind: type[Section], mistake: Any) -> str:
    keys, section = _walk(kind, mistake["loc"])
    place = ".".join(keys)
    match mistake["type"]:
        case "extra_forbidden":
            around = "".join(f"{key}." for key in keys[:-1])
            inside = [around + name for name in getattr(section, "model_fields", {})]
            elsewhere = [name for name in _names(kind) if not (around and name.startswith(around))]
            near = next((full for group in (inside, elsewhere) if (full := _nearest(keys[-1], group))), None)
            return f"unknown key '{place}'" + (f", did you mean '{near}'?" if near else "")
        case "value_error":  # raised by a validator of ours, whose message names its keys
            return str(mistake["ctx"]["error"])
        case "union_tag_invalid":
            said = mistake["ctx"]
            return f"'{place}.kind': should be one of {said['expected_tags']}, got '{said['tag']}'"
        case _:
            said = mistake["msg"][0].lower() + mistake["msg"][1:]
            return f"'{place}': {said}, got {reprlib.repr(mistake['input'])}"


def _walk(kind: type[Section], place: tuple[Any, ...]) -> tuple[list[str], Any]:
    """The keys that lead to a place and the section the last of them stands in.

    Where a section has several kinds, pydantic puts the kind between the keys.
    """
    keys: list[str] = []
    inside: Any = kind
    around: Any = kind
    for part in place:
        if part in _kinds(inside):
            inside = _kinds(inside)[part]
            continue
        keys.append(str(part))
        around = inside
        field = getattr(around, "model_fields", {}).get(part)
        inside = field.annotation if field else None
    return keys, around


def _kinds(section: Any) -> dict[str, type[Section]]:
    """The sections that may stand in a place, by the kind each says it is."""
    several = [each for each in get_args(section) if isinstance(each, type) and issubclass(each, Section)]
    return {each.model_fields["kind"].default: each for each in several}


def _nearest(key: str, names: Sequence[str]) -> str | None:
    by_key = {name.rpartition(".")[2]: name for name in reversed(names)}
    near = get_close_matches(key, by_key, n=1)
    return by_key[near[0]] if near else None


def _names(kind: type[Section], prefix: str = "") -> Sequence[str]:
    names: list[str] = []
    for name, field in kind.model_fields.items():
        inner: Any = field.annotation
        names.append(prefix + name)
        for section in _kinds(inner).values() or [inner]:
            if isinstance(section, type) and issubclass(section, Section):
                names += _names(section, f"{prefix}{name}.")
    return names
