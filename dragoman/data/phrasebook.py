"""The demo's corpus: parallel phrases for any two locales, written from the CLDR data inside Babel.

A kind of phrase draws values (a moment, an amount in a currency, some countries) and writes each of them in
both locales, in one of several forms (long, short, a list with "and" or with "or"). The laws:

- one source has one target: where two forms read the same in the source, the longer one's target holds;
- words that only one phrase would show (a name, "1 mile", a dual in Arabic) are always in training;
- the phrases held out are the same for every `size`, and their texts occur nowhere else.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from functools import partial
from itertools import islice
from operator import attrgetter
from random import Random
from typing import Any, Generic, Literal, TypeVar, get_args

from babel import Locale, UnknownLocaleError
from babel.dates import TIMEDELTA_UNITS, format_date, format_datetime, format_time, format_timedelta
from babel.languages import get_official_languages
from babel.lists import format_list
from babel.numbers import format_currency, format_decimal, format_percent, get_territory_currencies
from babel.units import format_unit

from dragoman.errors import DataError

Value = TypeVar("Value")
Span = Literal["year", "month", "week", "day", "hour", "minute", "second"]
Amount = tuple[Decimal, str]
Form = Callable[..., str]  # called with a value and `locale=`, as Babel's functions are
Names = Mapping[str, str]
Pair = tuple[Locale, Locale]

LENGTHS = ("full", "long", "medium", "short")
SPANS: tuple[Span, ...] = get_args(Span)
SECONDS = dict(TIMEDELTA_UNITS)
# No two zones at one offset, for the long form of a time may name the offset alone.
HOURS = {"UTC": 0, "Europe/Berlin": 1, "Europe/Moscow": 3, "Asia/Tokyo": 9, "America/New_York": -5}
ZONES = [timezone(timedelta(hours=hours), name) for name, hours in HOURS.items()]
# Babel knows no populations, so the well-known countries are listed; their languages and money follow.
_COUNTRIES = {
    "OECD": "AU AT BE CA CL CO CR CZ DK EE FI FR DE GR HU IS IE IL IT JP KR LV LT LU MX NL NZ NO PL PT SK SI "
    "ES SE CH TR GB US",
    "other members of the EU or the G20": "BG HR CY MT RO AR BR CN IN ID RU SA ZA",
    "others of more than 30 million people": "PK NG BD ET PH EG CD VN IR TH TZ KE MM SD UG DZ IQ AF YE MA AO "
    "UA UZ MY MZ GH PE MG CI",
}
_UNITS = {
    "length": "kilometer meter centimeter millimeter mile yard foot inch nautical-mile light-year",
    "mass": "tonne kilogram gram milligram pound ounce",
    "volume": "cubic-meter liter milliliter gallon pint cup tablespoon teaspoon",
    "area": "square-kilometer hectare square-meter square-mile acre square-foot",
    "duration": "year month week day hour minute second millisecond",
    "digital": "terabyte gigabyte megabyte kilobyte byte bit",
    "speed": "kilometer-per-hour meter-per-second mile-per-hour knot",
    "temperature": "celsius fahrenheit",
    "energy": "kilowatt-hour joule kilocalorie",
    "power": "kilowatt watt horsepower",
    "electric": "volt ampere",
    "frequency": "gigahertz hertz",
}
COUNTRIES = [code for codes in _COUNTRIES.values() for code in codes.split()]
UNITS = [f"{measure}-{name}" for measure, names in _UNITS.items() for name in names.split()]
# A kind has run out of new phrases when this many draws in a row gave none.
PATIENCE = 500


@dataclass(frozen=True)
class Phrase:
    """One text in two languages, and which kind of phrase it is."""

    kind: str
    source: str
    target: str


@dataclass(frozen=True)
class Phrasebook:
    """Phrases to learn from, phrases to watch while learning, and phrases to be judged by."""

    train: list[Phrase]
    valid: list[Phrase]
    test: list[Phrase]


def make_phrasebook(
    source: str, target: str, seed: int = 0, held_out: int = 1000, valid: int = 200, size: int = 50_000
) -> Phrasebook:
    """Write a phrasebook from one locale to another: about `size` phrases to train on, others held out."""
    locales = _load_locale(source), _load_locale(target)
    if locales[0] == locales[1]:
        raise DataError(f"{source}-{target}", "source and target are the same locale", "name two locales")
    kinds = _list_kinds(locales)
    known: set[str] = set()
    taught = [phrase for kind in kinds for phrase in _teach(kind, locales, known)]
    streams = [_draw(kind, locales, Random(f"{seed} {kind.name}"), known) for kind in kinds]
    test, watched = _take_evenly(streams, held_out), _take_evenly(streams, valid)
    if len(test) < held_out or len(watched) < valid:
        raise DataError(f"{source}-{target}", f"no {held_out + valid} phrases to hold out", "ask for fewer")
    train = taught + _take_evenly(streams, max(0, size - len(taught)))
    for phrases in (train, watched, test):
        Random(seed).shuffle(phrases)
    return Phrasebook(train, watched, test)


@dataclass(frozen=True)
class _Kind(Generic[Value]):
    """How to draw a value and the forms to write it in, the longest first; `taught` must be in training."""

    name: str
    draw: Callable[[Random], Value]
    forms: Sequence[Form]
    taught: Sequence[Value] = ()


def _list_kinds(locales: Pair) -> list[_Kind[Any]]:
    owners: dict[str, str] = {}
    singular_and_dual = [(count, span) for span in SPANS for count in (1, 2, -1, -2)]
    draw_measure = partial(_draw_number, digits=4, decimals=1)
    return [
        _Kind("dates", _draw_time, [partial(format_date, format=length) for length in LENGTHS]),
        _Kind("times", _draw_time, [partial(format_time, format=length) for length in LENGTHS]),
        # The two longer forms would show nothing that dates and times do not, in phrases twice as long.
        _Kind("date-times", _draw_time, [partial(format_datetime, format=length) for length in LENGTHS[2:]]),
        _Kind("relative times", _draw_count, [_write_relative], singular_and_dual),
        _amounts("money", _currencies(), _draw_price, [_write_price, _write_symbol], locales[0]),
        _amounts("quantities", UNITS, draw_measure, [_write_long, _write_short], locales[0]),
        _Kind("numbers", _draw_signed, [format_decimal]),
        _Kind("percentages", _draw_share, [partial(format_percent, decimal_quantization=False)]),
        _names("countries", COUNTRIES, attrgetter("territories"), locales, owners),
        _names("languages", _languages(), attrgetter("languages"), locales, owners),
        _names("currencies", _currencies(), attrgetter("currencies"), locales, owners),
    ]


def _teach(kind: _Kind[Value], locales: Pair, known: set[str]) -> Iterator[Phrase]:
    phrases = (_write(kind, value, form, locales) for value in kind.taught for form in kind.forms)
    return (phrase for phrase in phrases if _is_new(phrase, known))


def _draw(kind: _Kind[Value], locales: Pair, random: Random, known: set[str]) -> Iterator[Phrase]:
    misses = 0
    while misses < PATIENCE:
        phrase = _write(kind, kind.draw(random), random.choice(kind.forms), locales)
        misses += 1
        if _is_new(phrase, known):
            misses = 0
            yield phrase


def _write(kind: _Kind[Value], value: Value, form: Form, locales: Pair) -> Phrase:
    source, target = locales
    text = form(value, locale=source)
    longest = next(other for other in kind.forms if other(value, locale=source) == text)
    return Phrase(kind.name, text, longest(value, locale=target))


def _is_new(phrase: Phrase, known: set[str]) -> bool:
    """Whether a phrase is well formed and its source unknown; that source is known from then on."""
    if any(text.splitlines() != [text.strip()] for text in (phrase.source, phrase.target)):
        return False
    before = len(known)
    known.add(phrase.source)
    return len(known) > before


def _take_evenly(streams: Sequence[Iterator[Phrase]], count: int) -> list[Phrase]:
    share, rest = divmod(count, len(streams))
    return [phrase for i, stream in enumerate(streams) for phrase in islice(stream, share + (i < rest))]


def _draw_time(random: Random) -> datetime:
    # One century exactly, so that two digits of a year tell which one it is.
    start = datetime(1950, 1, 1, tzinfo=random.choice(ZONES))
    return start + timedelta(days=random.randrange(36_525), seconds=random.randrange(86_400))


def _draw_count(random: Random) -> tuple[int, Span]:
    return random.choice((1, -1)) * (1 + int(_draw_number(random, digits=3))), random.choice(SPANS)


def _write_relative(value: tuple[int, Span], locale: Locale) -> str:
    # The threshold keeps "in 14 days" from becoming "in 2 weeks". In short forms Babel 2.18 has no direction.
    seconds, never = value[0] * SECONDS[value[1]], float("inf")
    return format_timedelta(seconds, value[1], threshold=never, add_direction=True, locale=locale)


def _amounts(
    name: str, codes: list[str], draw: Callable[[Random], Decimal], forms: list[Form], source: Locale
) -> _Kind[Amount]:
    distinct = _distinct(codes, lambda code: [form((Decimal(5), code), locale=source) for form in forms], {})
    taught = [(Decimal(count), code) for code in distinct for count in range(3)]
    return _Kind(name, lambda random: (draw(random), random.choice(distinct)), forms, taught)


def _draw_price(random: Random) -> Decimal:
    return _draw_number(random, digits=5) + Decimal(random.randrange(100)) / 100


def _write_price(value: Amount, locale: Locale) -> str:
    return format_currency(int(value[0]), value[1], None, locale, currency_digits=False, format_type="name")


def _write_symbol(value: Amount, locale: Locale) -> str:
    return format_currency(value[0], value[1], locale=locale)


def _write_long(value: Amount, locale: Locale) -> str:
    text = format_unit(value[0], value[1], "long", locale=locale)
    # Babel shows the unit's identifier where a locale lacks the form; CLDR would have the short one.
    return _write_short(value, locale) if value[1] in text else text


def _write_short(value: Amount, locale: Locale) -> str:
    text = format_unit(value[0], value[1], "short", locale=locale)
    return "" if value[1] in text else text


def _draw_signed(random: Random) -> Decimal:
    number = _draw_number(random, digits=7, decimals=2)
    return -number if number and random.random() < 0.125 else number


def _draw_share(random: Random) -> Decimal:
    return _draw_number(random, digits=3, decimals=2) / 100


def _draw_number(random: Random, digits: int, decimals: int = 0) -> Decimal:
    """Draw a number, as often a short one as a long one."""
    places = random.randint(0, decimals)
    number = random.randrange(10 ** (random.randint(1, digits) + places))
    # Not "1.0": Babel writes that as 1, but in the plural.
    return Decimal(number).scaleb(-places) if number % 10 else Decimal(number // 10**places)


def _names(
    kind: str, codes: list[str], names: Callable[[Locale], Names], locales: Pair, owners: dict[str, str]
) -> _Kind[tuple[str, ...]]:
    shared = [code for code in codes if all(code in names(locale) for locale in locales)]
    distinct = _distinct(shared, lambda code: [names(locales[0])[code]], owners)

    def draw(random: Random) -> tuple[str, ...]:
        return tuple(random.sample(distinct, random.randint(2, 4)))

    def write(style: Literal["standard", "or"], value: tuple[str, ...], locale: Locale) -> str:
        return format_list([names(locale)[code] for code in value], style, locale)

    forms = [partial(write, "standard"), partial(write, "or")]
    return _Kind(kind, draw, forms, [(code,) for code in distinct])


def _distinct(codes: list[str], texts: Callable[[str], list[str]], owners: dict[str, str]) -> list[str]:
    """Drop the codes that share a text with an earlier one: their phrases could not be told apart."""
    return [code for code in codes if all(owners.setdefault(text, code) == code for text in texts(code))]


def _languages() -> list[str]:
    codes = (code for land in COUNTRIES for code in get_official_languages(land, de_facto=True))
    return list(dict.fromkeys(codes))


def _currencies() -> list[str]:
    # What was legal tender on one day: by default Babel takes today, and a seed must give one corpus.
    day = date(2025, 1, 1)
    codes = (code for land in COUNTRIES for code in get_territory_currencies(land, day, day))
    return list(dict.fromkeys(codes))


def _load_locale(name: str) -> Locale:
    hint = "try one that CLDR describes well, such as de, fr, ko or pt_BR"
    try:
        locale = Locale.parse(name.replace("-", "_"))
    except (UnknownLocaleError, ValueError):
        raise DataError(name, "no such locale", hint) from None
    if gaps := _find_gaps(locale):
        raise DataError(name, f"CLDR says too little of this locale: no {', no '.join(gaps)}", hint)
    return locale


def _find_gaps(locale: Locale) -> list[str]:
    """List what a locale lacks, or merely inherits from CLDR's root, which is of no language."""
    root = Locale.parse("root")
    spans, amounts = [(5, span) for span in SPANS], [(Decimal(5), unit) for unit in UNITS]
    found = {
        "countries": [code in locale.territories for code in COUNTRIES],
        "languages": [code in locale.languages for code in _languages()],
        "currencies": [code in locale.currencies for code in _currencies()],
        "months": [locale.months["format"]["wide"][1] != root.months["format"]["wide"][1]],
        "relative times": [_write_relative(span, locale) != _write_relative(span, root) for span in spans],
        "units": [_write_long(amount, locale) != _write_long(amount, root) for amount in amounts],
    }
    return [what for what, hits in found.items() if 2 * sum(hits) < len(hits)]
