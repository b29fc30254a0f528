"""Text is not rewritten: what goes in comes out, character for character, on every way through the program."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from dragoman.batch import EOS
from dragoman.data.batches import Updates
from dragoman.data.prepare import Corpus, DataConfig, encode_anew, prepare
from dragoman.data.store import Store, open_data
from dragoman.data.vocabulary import Algorithm, Vocabulary, train_vocabulary

# Every one of these has been lost or rewritten by some tokeniser.
AWKWARD = [
    "2\u00a0km, 5\u202f%",
    "²½ ﬁ Å e\u0301 \u212b",
    "\u2581",
    "\u2581a\u2581\u2581 b \u2581",
    " \u2581 ",
    " leading",
    "trailing ",
    "  two  blanks  ",
    "tab\tand\rreturn",
    "NUL\0inside",
    "\0",
    "👩\u200d👩\u200d👧 🏳\ufe0f\u200d🌈 \U0010ffff",
    "\u200fعربي\u202e \u2067abc\u2069",
    "zero\u200bwidth\ufeff",
    "\u2028\u2029\x0b\x0c\x1c\x85",
    "\u2585 \ufffd \ufdd0 ⁇  ⁇ ",
    "<s> </s> <unk> <pad> <0x41>",
    "\uff13\uff14 ٣٤ 1234567890",
    "漢字かな交じり文、한국어",
]
BLANK_ALONE = ["", " ", "   ", "\u00a0", "\t"]
# What ends a line cannot stand in one, and a lone surrogate is no text.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\n"))
# Text in which what is awkward stands next to what is learned.
mixed = st.lists(st.sampled_from([*AWKWARD, *BLANK_ALONE, "ba", " zöß", "\u2581", " ", "7"])).map("".join)

each_algorithm = pytest.mark.parametrize("algorithm", ["bpe", "unigram"])


@cache
def lines() -> tuple[str, ...]:
    draw = Random(0)
    syllables = ["ba", "de", "fi", "go", "lu", "ma", "ne", "pi", "ro", "su", "tra", "ver", "wen", "zö", "ß", "ä"]
    words = ["".join(draw.choices(syllables, k=draw.randint(1, 4))) for _ in range(293)] + ["2017", "1031", ","]
    return tuple(" ".join(draw.choices(words, k=draw.randint(3, 11))) for _ in range(499))


@cache
def vocabulary(algorithm: Algorithm, awkward: bool = False) -> Vocabulary:
    learnt_from = (*lines(), *AWKWARD * 3) if awkward else lines()
    return Vocabulary(train_vocabulary(lambda: learnt_from, 173 if awkward else 97, algorithm, byte_fallback=True))


def explicitly(*awkward: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add_examples(test: Callable[..., None]) -> Callable[..., None]:
        for text in awkward:
            test = example(text=text)(test)
        return test

    return add_examples


@pytest.mark.parametrize("awkward", [False, True], ids=["learned without", "learned from such text"])
@each_algorithm
@explicitly(*AWKWARD, *BLANK_ALONE, *lines()[:7])
@given(text=texts | mixed)
@settings(max_examples=150, deadline=None)
def test_decoding_what_was_encoded_gives_the_text(algorithm: Algorithm, awkward: bool, text: str) -> None:
    trained = vocabulary(algorithm, awkward)
    ids = trained.encode([text])
    assert min(ids[0], default=EOS + 1) > EOS
    assert trained.decode(ids) == [text]


def corpus(folder: Path) -> tuple[list[tuple[str, str]], Corpus]:
    """Awkward lines beside plain ones, with the pair's number in each so that none is a duplicate."""
    plain = [(f"{line} {number}", line[::-1]) for number, line in enumerate(lines())]
    pairs = plain + [(f"{text}{number}", f"{number}{text}") for number, text in enumerate(AWKWARD)]
    for name, side in (("text.en", 0), ("text.de", 1)):
        (folder / name).write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    return pairs, Corpus([folder / "text.en"], [folder / "text.de"])


def texts_of(store: Store, vocabularies: tuple[Vocabulary, Vocabulary]) -> list[tuple[str, ...]]:
    pairs = [store.pair(number) for number in range(len(store))]
    sides = zip(vocabularies, zip(*pairs, strict=True), strict=True)
    return list(zip(*(each.decode([ids.tolist() for ids in side]) for each, side in sides), strict=True))


@pytest.mark.parametrize("shared", [True, False])
@each_algorithm
def test_a_prepared_corpus_holds_the_text_it_was_made_from(algorithm: Algorithm, shared: bool, tmp_path: Path) -> None:
    pairs, files = corpus(tmp_path)
    config = DataConfig(vocabulary=151, algorithm=algorithm, shared=shared)
    manifest = prepare(files, files, (None, None), config, tmp_path / "data", lambda text: None)
    data = open_data(tmp_path / "data")
    assert {name: split.pairs for name, split in manifest.splits.items()} == {"train": len(pairs), "valid": len(pairs)}
    for store in data.splits.values():
        assert texts_of(store, (data.source_vocabulary, data.target_vocabulary)) == pairs


def test_a_prepared_corpus_holds_its_text_in_the_pieces_of_another_vocabulary_too(tmp_path: Path) -> None:
    pairs, files = corpus(tmp_path)
    prepare(files, files, (None, None), DataConfig(vocabulary=151), tmp_path / "old", lambda text: None)
    others = (vocabulary("unigram"), vocabulary("bpe", True))
    config = DataConfig(vocabulary=97, shared=False)
    encode_anew(open_data(tmp_path / "old"), others, config, tmp_path / "new")
    data = open_data(tmp_path / "new")
    assert data.splits.keys() == {"train", "valid"}
    for store in data.splits.values():
        assert texts_of(store, (data.source_vocabulary, data.target_vocabulary)) == pairs
        assert texts_of(store, others) == pairs


def test_the_sentences_of_the_updates_are_the_text(tmp_path: Path) -> None:
    pairs, files = corpus(tmp_path)
    prepare(files, None, (None, None), DataConfig(vocabulary=151), tmp_path / "data", lambda text: None)
    data = open_data(tmp_path / "data")
    found: dict[int, tuple[str, str]] = {}
    for update in Updates(data.train, batch_tokens=1009, row_length=128, seed=0).epoch(0):
        read = []
        for row in range(len(update.batch)):
            source, target, labels = update.batch.source, update.batch.target, update.batch.labels
            for segment in range(1, int(target.segments[row].max()) + 1):
                source_ids = source.ids[row][source.segments[row] == segment].tolist()
                target_ids = labels[row][target.segments[row] == segment].tolist()
                [source_text] = data.source_vocabulary.decode([source_ids])
                [target_text] = data.target_vocabulary.decode([target_ids])
                read.append((source_text, target_text))
        found.update(zip(update.pairs, read, strict=True))
    assert [found[number] for number in range(len(pairs))] == pairs
