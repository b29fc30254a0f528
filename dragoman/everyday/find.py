"""Which model that comes along translates into which language."""

from pathlib import Path

from dragoman.errors import ConfigError

SOURCE = "en"
TARGET = "de"  # unless another is asked for


def everyday_models() -> dict[str, Path]:
    """Their folders, by the language that they translate English into."""
    return {
        folder.name.removeprefix(f"{SOURCE}-"): folder for folder in sorted(Path(__file__).parent.glob(f"{SOURCE}-*"))
    }


def find_everyday(language: str | None = None) -> Path:
    """The one that translates into this language."""
    known, language = everyday_models(), TARGET if language is None else language
    if language.lower() not in known:
        hint = f"there are: {', '.join(known)}; or name a MODEL"
        raise ConfigError("--to", f"no model into {language!r} comes along", hint=hint)
    return known[language.lower()]
