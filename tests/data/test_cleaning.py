"""Every pair is either kept as it stands or dropped for one reason, which is counted."""

from pathlib import Path
from typing import Literal, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.data.cleaning import CHARACTERS_PER_PIECE, FREE_CHARACTERS, Cleaner, Reason
from dragoman.data.corpora import Pair
from dragoman.errors import DataError

FILES = (Path("corpus.en"), Path("corpus.de"))
LONGEST, RATIO = 13, 3.0
MOST = LONGEST * CHARACTERS_PER_PIECE


def pair_of(source: str | bytes, target: str | bytes, line: int = 1) -> Pair:
    source, target = (side.encode() if isinstance(side, str) else side for side in (source, target))
    return Pair(source, target, FILES, line)


def cleaner_of(invalid: Literal["error", "drop"] = "error") -> Cleaner:
    return Cleaner(LONGEST, RATIO, invalid)


def test_a_good_pair_is_kept_as_it_stands() -> None:
    cleaner = cleaner_of()
    assert cleaner.clean(pair_of("  ein\u00a0Öl\t", "\u202fan oil\u2028")) == ("  ein\u00a0Öl\t", "\u202fan oil\u2028")
    assert not cleaner.dropped


@pytest.mark.parametrize(("source", "target"), [("", "x"), ("x", ""), ("", ""), (" \u00a0", "x"), ("x", "\t\u2028")])
def test_a_pair_with_an_empty_side_is_dropped_and_counted(source: str, target: str) -> None:
    cleaner = cleaner_of()
    assert cleaner.clean(pair_of(source, target)) is None
    assert cleaner.dropped == {"empty": 1}


def test_a_side_may_have_so_many_characters_and_no_more() -> None:
    cleaner = cleaner_of()
    assert cleaner.clean(pair_of("ä" * MOST, "ö" * MOST)) is not None
    for sides in (("a" * (MOST + 1), "b" * MOST), ("a" * MOST, "b" * (MOST + 1))):
        assert cleaner.clean(pair_of(*sides)) is None
    assert cleaner.dropped == {"too long": 2}


def test_one_side_may_be_so_many_times_longer_and_no_more() -> None:
    cleaner = cleaner_of()
    most = int(11 * RATIO) + FREE_CHARACTERS
    for short, long in (("a" * 11, "b" * most), ("b" * most, "a" * 11)):
        assert cleaner.clean(pair_of(short, long)) is not None
    for short, long in (("a" * 11, "b" * (most + 1)), ("b" * (most + 1), "a" * 11)):
        assert cleaner.clean(pair_of(short, long)) is None
    assert cleaner.dropped == {"ratio": 2}


def test_short_phrases_may_differ_freely() -> None:
    assert cleaner_of().clean(pair_of("ok", "in Ordnung, einverstanden")) is not None


def test_a_repeated_pair_is_dropped_each_further_time() -> None:
    cleaner = cleaner_of()
    kept = [cleaner.clean(pair_of("one", "eins")) is not None for _ in range(5)]
    assert kept == [True, False, False, False, False]
    assert cleaner.dropped == {"duplicate": 4}


def test_a_source_with_another_target_is_no_duplicate() -> None:
    cleaner = cleaner_of()
    pairs = [
        ("Bank", "bank"),
        ("Bank", "bench"),
        ("bank", "Bank"),
        ("Ban", "kbank"),
        ("BANK", "bank"),
        ("Bank", "bank "),
    ]
    assert [cleaner.clean(pair_of(*pair)) for pair in pairs] == pairs


def test_each_cleaner_remembers_for_itself() -> None:
    for _ in range(2):
        assert cleaner_of().clean(pair_of("one", "eins")) is not None


@pytest.mark.parametrize(("side", "file"), list(enumerate(FILES)))
def test_an_invalid_line_is_an_error_that_names_it(side: int, file: Path) -> None:
    cleaner = cleaner_of("error")
    source, target = (b"\xff", b"fine") if side == 0 else (b"fine", b"\xff")
    with pytest.raises(DataError, match=rf"^{file}:29: not UTF-8, got byte 0xff at position 1$"):
        cleaner.clean(pair_of(source, target, line=29))


@pytest.mark.parametrize("sides", [(b"\xff", b"fine"), (b"fine", b"\xff"), (b"\xff", b"\xff"), (b"\xff", b"")])
def test_an_invalid_line_is_dropped_and_counted_where_that_is_asked_for(sides: tuple[bytes, bytes]) -> None:
    cleaner = cleaner_of("drop")
    assert cleaner.clean(pair_of(*sides)) is None
    assert cleaner.dropped == {"not UTF-8": 1}


def test_a_pair_with_too_many_pieces_is_counted_with_the_too_long_ones() -> None:
    cleaner = cleaner_of()
    cleaner.clean(pair_of("a" * (MOST + 1), "b"))
    cleaner.count_too_long()
    assert cleaner.dropped == {"too long": 2}


# Few letters and many lengths, so that every reason comes up, often several for one pair.
lines = st.one_of(
    st.binary(max_size=3),
    st.text("ab ", max_size=2).map(str.encode),
    st.integers(0, MOST + 2).map(lambda length: b"x" * length),
)


@given(st.lists(st.tuples(lines, lines), max_size=31))
@settings(max_examples=100, deadline=None)
def test_kept_and_dropped_pairs_are_all_that_were_read(pairs: list[tuple[bytes, bytes]]) -> None:
    cleaner = cleaner_of("drop")
    kept = []
    for pair in pairs:
        dropped = cleaner.dropped.total()
        texts = cleaner.clean(pair_of(*pair))
        assert cleaner.dropped.total() == dropped + (texts is None)
        kept += [texts] if texts else []
    assert len(kept) + cleaner.dropped.total() == len(pairs)
    assert cleaner.dropped.keys() <= set(get_args(Reason))
    assert len(set(kept)) == len(kept)
    assert {(source.encode(), target.encode()) for source, target in kept} <= set(pairs)
