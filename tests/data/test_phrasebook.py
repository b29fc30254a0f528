"""The laws of the demo's corpus, for several pairs of locales."""

import hashlib
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache

import pytest
from babel import Locale

from dragoman.data import phrasebook
from dragoman.data.phrasebook import COUNTRIES, UNITS, Phrase, Phrasebook, make_phrasebook
from dragoman.errors import DataError

each_pair = pytest.mark.parametrize(
    "pair", [("en", "de"), ("en", "fr"), ("de", "en"), ("en", "ko"), ("en", "ar"), ("ja", "ru")], ids="-".join
)


@cache
def book(source: str, target: str, seed: int = 0, size: int = 6000) -> Phrasebook:
    """A small phrasebook, written once for all tests."""
    return make_phrasebook(source, target, seed=seed, size=size)


def phrases_of(written: Phrasebook) -> list[Phrase]:
    """All phrases, whatever they are for."""
    return written.train + written.valid + written.test


def digest(written: Phrasebook) -> str:
    """A fingerprint that depends on every phrase and on their order."""
    return hashlib.sha256(repr(written).encode()).hexdigest()


@each_pair
def test_one_source_has_one_target_whatever_the_seed(pair: tuple[str, str]) -> None:
    targets: dict[str, str] = {}
    for seed in (0, 1):
        for phrase in phrases_of(book(*pair, seed=seed)):
            assert targets.setdefault(phrase.source, phrase.target) == phrase.target


@each_pair
def test_no_text_occurs_twice_so_held_out_ones_are_unseen(pair: tuple[str, str]) -> None:
    sources = Counter(phrase.source for phrase in phrases_of(book(*pair)))
    assert set(sources.values()) == {1}


@each_pair
def test_held_out_phrases_are_drawn_evenly_from_the_kinds(pair: tuple[str, str]) -> None:
    written = book(*pair)
    assert (len(written.train), len(written.valid), len(written.test)) == (6000, 200, 1000)
    counts = Counter(phrase.kind for phrase in written.test)
    assert counts.keys() == {phrase.kind for phrase in written.train}
    assert len(counts) == 11
    assert set(counts.values()) == {90, 91}


@each_pair
def test_every_single_name_is_in_training(pair: tuple[str, str]) -> None:
    taught = {phrase.source for phrase in book(*pair).train}
    source, target = (Locale.parse(name) for name in pair)
    named = [(source.territories, target.territories, COUNTRIES)]
    named.append((source.languages, target.languages, phrasebook._languages()))
    named.append((source.currencies, target.currencies, phrasebook._currencies()))
    for names, translations, codes in named:
        assert {names[code] for code in codes if code in names and code in translations} <= taught


@each_pair
def test_every_phrase_is_one_line_without_blanks_around_it(pair: tuple[str, str]) -> None:
    for phrase in phrases_of(book(*pair)):
        for text in (phrase.source, phrase.target):
            assert text.splitlines() == [text.strip()]


@each_pair
def test_no_phrase_shows_an_identifier_where_a_unit_lacks_a_form(pair: tuple[str, str]) -> None:
    identifier = re.compile("|".join(map(re.escape, UNITS)))
    texts = [text for phrase in phrases_of(book(*pair)) for text in (phrase.source, phrase.target)]
    assert not list(filter(identifier.search, texts))


def test_where_two_forms_read_the_same_the_longer_one_is_the_target() -> None:
    phrases = phrases_of(book("en", "de"))
    days = [phrase.target for phrase in phrases if re.fullmatch(r"[\d.,]+ days", phrase.source)]
    days_of_may = [phrase.target for phrase in phrases if re.fullmatch(r"May \d+, \d{4}", phrase.source)]
    assert days
    assert all(target.endswith(" Tage") for target in days)
    assert days_of_may
    assert all(" Mai " in target for target in days_of_may)


def test_a_name_with_two_meanings_keeps_the_first() -> None:
    # "Belanda" is the Netherlands and Dutch, "Malta" is Malta and Maltese.
    kinds = {phrase.kind for phrase in phrases_of(book("id", "en")) if "Belanda" in phrase.source}
    assert kinds == {"countries"}


def test_unbreakable_blanks_are_kept() -> None:
    french = "".join(phrase.target for phrase in book("en", "fr").train)
    assert "\u202f" in french
    assert "\u00a0" in french


def test_a_seed_gives_one_corpus_in_every_process() -> None:
    code = (
        "from dragoman.data.phrasebook import make_phrasebook as m; import hashlib;"
        "print(hashlib.sha256(repr(m('en', 'de', seed=3, size=2000)).encode()).hexdigest())"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "1234"}
    other = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=True)
    assert other.stdout.decode().strip() == digest(make_phrasebook("en", "de", seed=3, size=2000))


def test_another_seed_gives_another_corpus() -> None:
    assert set(book("en", "de").test) != set(book("en", "de", seed=1).test)


def test_the_same_phrases_are_held_out_for_every_size() -> None:
    small, large = book("en", "de", size=2000), book("en", "de")
    assert (small.valid, small.test) == (large.valid, large.test)
    assert set(small.train) < set(large.train)


def test_a_locale_may_be_written_with_a_hyphen() -> None:
    assert book("en", "pt-BR", size=1500) == book("en", "pt_BR", size=1500)


@pytest.mark.parametrize("name", ["xx", "tlh", "no such", "de_XX"])
def test_an_unknown_locale_is_refused_by_name(name: str) -> None:
    with pytest.raises(DataError, match=f"^{name}: no such locale$") as refusal:
        make_phrasebook("en", name)
    assert "pt_BR" in refusal.value.report()


@pytest.mark.parametrize(("name", "gap"), [("gv", "countries"), ("root", "months"), ("tt", "units")])
def test_a_locale_without_the_data_is_refused_by_name(name: str, gap: str) -> None:
    with pytest.raises(DataError, match=f"^{name}: CLDR says too little of this locale: .*no {gap}"):
        make_phrasebook(name, "en")


@pytest.mark.parametrize("names", [("de", "de"), ("pt-BR", "pt_BR")])
def test_the_same_locale_twice_is_refused(names: tuple[str, str]) -> None:
    with pytest.raises(DataError, match="the same locale"):
        make_phrasebook(*names)


def test_more_held_out_phrases_than_there_are_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(phrasebook, "PATIENCE", 0)
    with pytest.raises(DataError, match="no 1200 phrases to hold out"):
        make_phrasebook("en", "de")
