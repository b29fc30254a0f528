"""Which languages there are, what they are called, and which one a text is in."""

from collections.abc import Collection, Iterable
from functools import lru_cache

from babel import Locale, UnknownLocaleError
from py3langid.langid import MODEL_FILE, LanguageIdentifier

from dragoman.serving.tasks import Pair

# What LibreTranslate's clients say, and what its models are called; answers use the former.
ALIASES = {"zh-hans": "zh", "zh-hant": "zt", "pt-br": "pb"}
OUTWARD = {"zh": "zh-Hans", "zt": "zh-Hant", "pb": "pt-BR"}
ENGLISH = Locale("en")


def normalise_code(code: str) -> str:
    """One spelling for each language."""
    lower = code.strip().lower().replace("_", "-")
    return ALIASES.get(lower, lower)


def outward_code(code: str) -> str:
    """The spelling that clients expect."""
    return OUTWARD.get(code, code)


def name_of(code: str, locale: Locale) -> str:
    """What a language is called in another; its code where nobody knows."""
    try:
        language = Locale.parse(outward_code(code), sep="-")
    except (ValueError, UnknownLocaleError):
        return code
    return language.get_display_name(locale) or language.get_display_name(ENGLISH) or code


def choose_locale(wishes: Iterable[str]) -> Locale:
    """The first that Babel knows, else English."""
    for wish in wishes:
        try:
            return Locale.parse(wish.strip(), sep="-")
        except (ValueError, TypeError, UnknownLocaleError):
            continue
    return ENGLISH


class Languages:
    """The languages of the models that are served."""

    def __init__(self, pairs: Collection[Pair]) -> None:
        self.pairs = pairs
        self.sources = list(dict.fromkeys(pair.source for pair in pairs))
        self.codes = list(dict.fromkeys([*self.sources, *(pair.target for pair in pairs)]))
        self._identifier = _identifier()

    def targets(self, source: str) -> list[str]:
        """What a source can be translated into."""
        return [pair.target for pair in self.pairs if pair.source == source]

    def detect(self, text: str) -> list[tuple[str, float]]:
        """Of the languages served the likeliest three, with percentages among all that can be told apart."""
        if not any(map(str.isalpha, text)):
            return []
        ranks = [(code, 100 * share) for code, share in self._identifier.rank(text) if code in self.codes]
        return [(code, round(percent, 1)) for code, percent in ranks[:3]]

    def detect_source(self, text: str, target: str) -> tuple[str, float]:
        """The likeliest source, if possible one that has this target; a guess may have no confidence at all."""
        found = [(code, percent) for code, percent in self.detect(text) if code in self.sources]
        fitting = [each for each in found if Pair(each[0], target) in self.pairs]
        fallback = next((pair.source for pair in self.pairs if pair.target == target), self.sources[0])
        return next(iter([*fitting, *found]), (fallback, 0.0))


@lru_cache(maxsize=1)
def _identifier() -> LanguageIdentifier:
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
