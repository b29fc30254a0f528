"""Pieces: how many there are, what they may hold, and what a text becomes that they do not cover."""

import re
from collections import Counter
from functools import cache
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dragoman.batch import BOS, EOS, PAD, UNK
from dragoman.data.vocabulary import BLANK, BYTES, SPECIALS, Algorithm, Vocabulary, train_vocabulary
from dragoman.errors import DataError

SYLLABLES = ["ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su", "tra", "ver", "wen", "zö", "ß", "ä"]

each_algorithm = pytest.mark.parametrize("algorithm", ["bpe", "unigram"])
with_and_without_bytes = pytest.mark.parametrize("byte_fallback", [True, False])


@cache
def lines() -> tuple[str, ...]:
    draw = Random(0)
    words = ["".join(draw.choices(SYLLABLES, k=draw.randint(1, 4))) for _ in range(293)]
    words += ["2017", "1031", "45", "68", ",", "."]
    return tuple(" ".join(draw.choices(words, k=draw.randint(3, 11))) for _ in range(499))


@cache
def vocabulary(algorithm: Algorithm, size: int = 97, byte_fallback: bool = True) -> Vocabulary:
    return Vocabulary(train_vocabulary(lines, size, algorithm, byte_fallback))


def learned(vocabulary: Vocabulary, byte_fallback: bool = True) -> list[str]:
    return vocabulary.pieces(range(SPECIALS + BYTES * byte_fallback, len(vocabulary)))


@each_algorithm
def test_the_four_specials_come_first_and_the_bytes_after_them(algorithm: Algorithm) -> None:
    trained = vocabulary(algorithm)
    assert trained.pieces([PAD, UNK, BOS, EOS]) == ["<pad>", "<unk>", "<s>", "</s>"]
    assert trained.pieces(range(SPECIALS, SPECIALS + BYTES)) == [f"<0x{byte:02X}>" for byte in range(BYTES)]


@pytest.mark.parametrize("size", [40, 59, 97])
@with_and_without_bytes
@each_algorithm
def test_size_counts_learned_pieces_alone(algorithm: Algorithm, byte_fallback: bool, size: int) -> None:
    trained = vocabulary(algorithm, size, byte_fallback)
    assert len(trained) == SPECIALS + (BYTES if byte_fallback else 0) + size
    assert len(set(learned(trained, byte_fallback))) == size


@each_algorithm
def test_every_character_is_a_piece_where_there_is_room(algorithm: Algorithm) -> None:
    assert set("".join(lines())) - {" "} <= set(learned(vocabulary(algorithm)))


@pytest.mark.parametrize("size", [2, 5, 11, 23])
@each_algorithm
def test_where_there_is_not_the_commonest_characters_are_and_the_rest_is_left_to_the_bytes(
    algorithm: Algorithm, size: int
) -> None:
    counts = Counter("".join(lines()))
    counts.pop(" ")
    trained = vocabulary(algorithm, size)
    pieces = set(learned(trained))
    chosen = pieces - {BLANK}
    assert (len(trained), len(chosen)) == (SPECIALS + BYTES + size, size - 1)
    assert min(counts[each] for each in chosen) >= max(counts[each] for each in counts.keys() - chosen)
    assert trained.decode(trained.encode(lines())) == list(lines())


@each_algorithm
def test_a_rare_character_does_not_hide_the_line_it_stands_in(algorithm: Algorithm) -> None:
    # Most lines hold a character that is seen once, and 37 pieces have room for the first few of them.
    words = ["the interpreter"] * 53 + ["asks for silk"] * 47
    text = [f"{word} {chr(0x4E00 + number)}" for number, word in enumerate(words)]
    trained = Vocabulary(train_vocabulary(lambda: text, 37, algorithm, byte_fallback=True))
    assert set("theinterpreterasksforsilk") <= set(learned(trained))


@each_algorithm
def test_digits_are_split_one_by_one(algorithm: Algorithm) -> None:
    trained = vocabulary(algorithm)
    assert not [piece for piece in learned(trained) if len(piece) > 1 and re.search(r"\d", piece)]
    [ids] = trained.encode(["1031 and 2017"])
    assert [piece for piece in trained.pieces(ids) if re.search(r"\d", piece)] == list("10312017")


@pytest.mark.parametrize("count", [5, 17, 43])
@with_and_without_bytes
@each_algorithm
def test_too_many_pieces_are_refused_with_the_largest_number_which_works(
    algorithm: Algorithm, byte_fallback: bool, count: int
) -> None:
    few = lines()[:count]
    with pytest.raises(DataError, match=r"^vocabulary: the corpus allows at most \d+ pieces, got 7919$") as refusal:
        train_vocabulary(lambda: few, 7919, algorithm, byte_fallback)
    largest = int(re.findall(r"\d+", refusal.value.what)[0])
    assert refusal.value.hint == f"use --vocabulary {largest} or less, or more text"
    trained = Vocabulary(train_vocabulary(lambda: few, largest, algorithm, byte_fallback))
    assert len(trained) == SPECIALS + (BYTES if byte_fallback else 0) + largest
    with pytest.raises(DataError, match=f"at most {largest} pieces, got {largest + 1}$"):
        train_vocabulary(lambda: few, largest + 1, algorithm, byte_fallback)


def test_text_that_teaches_nothing_is_refused() -> None:
    with pytest.raises(DataError, match=r"^vocabulary: .* 7 pieces|got 7$"):
        train_vocabulary(lambda: [], 7, "bpe", True)


@each_algorithm
def test_the_same_text_gives_the_same_vocabulary(algorithm: Algorithm) -> None:
    again = Vocabulary(train_vocabulary(lines, 97, algorithm, True))
    assert learned(again) == learned(vocabulary(algorithm))


@each_algorithm
def test_what_no_piece_covers_is_spelled_in_bytes(algorithm: Algorithm) -> None:
    trained = vocabulary(algorithm)
    [ids] = trained.encode(["dragoman☃"])
    assert trained.pieces(ids)[-3:] == [f"<0x{byte:02X}>" for byte in "☃".encode()]
    assert trained.decode([ids]) == ["dragoman☃"]


@each_algorithm
def test_without_bytes_what_no_piece_covers_is_unknown(algorithm: Algorithm) -> None:
    trained = vocabulary(algorithm, 97, False)
    for text in ("dragoman☃", "dragoman▁"):
        [ids] = trained.encode([text])
        assert UNK in ids
        assert trained.decode([ids]) == ["dragoman"]
    known = [*lines()[:7], " ba  zöß ", ""]
    assert trained.decode(trained.encode(known)) == known


def test_a_text_is_encoded_the_same_in_any_company() -> None:
    trained = vocabulary("unigram")
    texts = [*lines()[:31], "", "▁", " ☃ "]
    assert trained.encode(texts) == [ids for text in texts for ids in trained.encode([text])]
    assert trained.encode([]) == []


def test_specials_have_no_text() -> None:
    trained = vocabulary("bpe")
    [ids] = trained.encode(["ba zöß"])
    assert trained.decode([[BOS, *ids, EOS, PAD, PAD], [PAD], []]) == ["ba zöß", "", ""]


@pytest.mark.parametrize("text", ["<s>", "</s>", "<pad>", "<unk>", "<0x41>", "a</s>b"])
@each_algorithm
def test_the_name_of_a_special_is_text_like_any_other(algorithm: Algorithm, text: str) -> None:
    trained = vocabulary(algorithm)
    [ids] = trained.encode([text])
    assert min(ids) >= SPECIALS
    assert trained.decode([ids]) == [text]


@given(st.lists(st.integers(0, SPECIALS + BYTES + 96)))
@settings(max_examples=100, deadline=None)
def test_any_ids_have_a_text(ids: list[int]) -> None:
    [text] = vocabulary("bpe").decode([ids])
    assert isinstance(text, str)
    text.encode()


def test_nfkc_rewrites_the_text_only_where_it_is_asked_for() -> None:
    proto = vocabulary("bpe").proto
    plain, nfkc = Vocabulary(proto), Vocabulary(proto, nfkc=True)
    assert plain.decode(plain.encode(["ﬁne\u00a0²½"])) == ["ﬁne\u00a0²½"]
    assert nfkc.decode(nfkc.encode(["ﬁne\u00a0²½"])) == ["fine 21\u20442"]
    assert nfkc.encode(["ﬁne"]) == plain.encode(["fine"])
