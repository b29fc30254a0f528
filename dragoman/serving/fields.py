"""The fields of a request, each of the type it should have or refused in LibreTranslate's words."""

import re
from typing import get_args

from dragoman.serving.documents import Format
from dragoman.serving.languages import ENGLISH, Languages, name_of, normalise_code, outward_code
from dragoman.serving.limits import Limits
from dragoman.serving.reading import Fields, RequestError
from dragoman.serving.tasks import Kind, Pair


def read_text(fields: Fields, name: str) -> str:
    """A text that must be there."""
    value = fields.get(name)
    if value is None or value == "" or value == []:
        raise RequestError(400, f"Invalid request: missing {name} parameter")
    if not isinstance(value, str):
        raise RequestError(400, f"Invalid request: {name} parameter is not a text")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RequestError(400, f"Invalid request: {name} parameter holds half a surrogate pair") from None
    return value


def read_texts(fields: Fields, name: str, limits: Limits) -> list[str]:
    """A text or several, none of them too long."""
    value = fields.get(name)
    if not isinstance(value, list):
        return [check_length(read_text(fields, name), limits)]
    if not value:
        raise RequestError(400, f"Invalid request: missing {name} parameter")
    if len(value) > limits.texts:
        raise RequestError(400, f"Invalid request: request ({len(value)}) exceeds text limit ({limits.texts})")
    return [check_length(read_text({name: each}, name) if each != "" else "", limits) for each in value]


def check_length(text: str, limits: Limits) -> str:
    """The text, unless it is longer than a text may be."""
    if len(text) > limits.characters:
        raise RequestError(400, f"Invalid request: request ({len(text)}) exceeds text limit ({limits.characters})")
    return text


def read_alternatives(fields: Fields, most: int) -> int:
    """How many translations beside the best."""
    value = fields.get("alternatives", 0)
    number = read_integer({"alternatives": 0 if value in (None, "") else value}, "alternatives")
    if number > most:
        raise RequestError(400, f"Invalid request: alternatives parameter must be <= {most}")
    return max(0, number)


def read_integer(fields: Fields, name: str) -> int:
    """A number, which a form can only spell."""
    value = fields.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", value):
        return int(value)
    raise RequestError(400, f"Invalid request: {name} parameter is not a number")


def read_flag(fields: Fields, name: str) -> bool:
    """Whether something more is asked for."""
    value = fields.get(name, False)
    return value is True or (isinstance(value, str) and value.lower() in ("1", "true"))


def read_format(fields: Fields) -> Format:
    """Text unless said."""
    match fields.get("format") or "text":
        case "text":
            return "text"
        case "html":
            return "html"
        case other:
            raise RequestError(400, f"{str(other)[:40]} format is not supported")


def read_kind(fields: Fields) -> Kind:
    """Which attention is meant."""
    for kind in get_args(Kind):
        if fields.get("kind", "cross") == kind:
            return kind
    raise RequestError(400, f"Invalid request: kind parameter should be one of {', '.join(get_args(Kind))}")


def read_pair(fields: Fields, languages: Languages, text: str) -> tuple[Pair, float | None]:
    """The pair that is asked for, and how sure a source is that had to be guessed."""
    source = normalise_code(read_text(fields, "source"))
    target = normalise_code(read_text(fields, "target"))
    for code in (source, target):
        if code not in languages.codes and not (code == "auto" and code is source):
            raise RequestError(400, f"{printable(code)} is not supported")
    confidence = None
    if source == "auto":
        source, confidence = languages.detect_source(text, target)
    pair = Pair(source, target)
    if pair not in languages.pairs:
        names = [f"{name_of(code, ENGLISH)} ({outward_code(code)})" for code in (target, source)]
        raise RequestError(400, f"{names[0]} is not available as a target language from {names[1]}")
    return pair, confidence


def printable(text: str) -> str:
    """What a stranger wrote, short enough to be said again."""
    return text if len(text) <= 40 else f"{text[:40]}..."
