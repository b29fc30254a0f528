"""From parallel text to a data folder: everything is counted, and what fails leaves nothing behind."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from dragoman.data.prepare import Corpus, DataConfig, encode_anew, prepare
from dragoman.data.store import MANIFEST, Manifest, open_data, read_manifest
from dragoman.data.vocabulary import BYTES, SPECIALS, Vocabulary, train_vocabulary
from dragoman.errors import DataError

CONFIG = DataConfig(vocabulary=31, longest=43)
# 37 good pairs, then one or more for each reason to drop one.
GOOD = [(f"one {number} two", f"eins {number} zwei") for number in range(37)]
EMPTY = [("", "leer"), ("blank", " "), ("", "")]
TOO_LONG = [("x" * 3000, "y" * 3000), (" ".join("x" * 50), " ".join("y" * 50))]  # in characters, in pieces
RATIO = [("one", "eins " * 11)]
DUPLICATE = GOOD[:5]


def write(folder: Path, pairs: list[tuple[str, str]], name: str = "train") -> Corpus:
    paths = [folder / f"{name}.en", folder / f"{name}.de"]
    for side, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    return Corpus(paths[:1], paths[1:])


def prepare_quietly(
    train: Corpus,
    out: Path,
    valid: Corpus | None = None,
    config: DataConfig = CONFIG,
    languages: tuple[str | None, str | None] = (None, None),
) -> Manifest:
    return prepare(train, valid, languages, config, out, lambda text: None)


def test_the_manifest_counts_what_was_kept_and_what_was_dropped(tmp_path: Path) -> None:
    train = write(tmp_path, [*GOOD, *EMPTY, *TOO_LONG, *RATIO, *DUPLICATE])
    valid = write(tmp_path, [*GOOD[:7], *EMPTY], "valid")
    manifest = prepare_quietly(train, tmp_path / "data", valid)
    assert manifest == read_manifest(tmp_path / "data")
    assert {name: split.pairs for name, split in manifest.splits.items()} == {"train": 37, "valid": 7}
    assert manifest.splits["train"].dropped == {"empty": 3, "too long": 2, "ratio": 1, "duplicate": 5}
    assert manifest.splits["valid"].dropped == {"empty": 3}
    assert manifest.config == CONFIG.model_dump()
    assert manifest.vocabulary == (SPECIALS + BYTES + 31, SPECIALS + BYTES + 31)
    data = open_data(tmp_path / "data")
    for name, store in data.splits.items():
        source_lengths, target_lengths = store.lengths()
        split = manifest.splits[name]
        assert len(store) == split.pairs
        assert (source_lengths.sum(), target_lengths.sum()) == (split.source_tokens, split.target_tokens)
    assert data.valid is data.splits["valid"]


def test_plain_text_is_cleaned_as_pairs_are_and_has_no_source(tmp_path: Path) -> None:
    both = write(tmp_path, [*GOOD, *EMPTY, *DUPLICATE])
    plain, config = Corpus([], both.targets), CONFIG.model_copy(update={"plain": True})
    manifest = prepare_quietly(plain, tmp_path / "data", Corpus([], both.targets), config)
    split, data = manifest.splits["train"], open_data(tmp_path / "data")
    assert (split.source_tokens, manifest.languages) == (0, (None, "de"))
    texts = data.target_vocabulary.decode([data.train.pair(number)[1].tolist() for number in range(len(data.train))])
    assert texts == list(dict.fromkeys(target for _, target in [*GOOD, *EMPTY] if target.strip()))
    assert sum(split.dropped.values()) + split.pairs == len([*GOOD, *EMPTY, *DUPLICATE])


def test_a_source_that_is_missing_is_missed(tmp_path: Path) -> None:
    both = write(tmp_path, GOOD)
    with pytest.raises(DataError, match=r"train\.de: its source is missing"):
        prepare_quietly(Corpus([], both.targets), tmp_path / "data")
    with pytest.raises(DataError, match=r"train\.de: its source is missing"):
        prepare_quietly(both, tmp_path / "data", Corpus([], both.targets))
    assert not (tmp_path / "data").exists()


def test_pairs_keep_their_order(tmp_path: Path) -> None:
    prepare_quietly(write(tmp_path, [GOOD[0], *EMPTY, *GOOD]), tmp_path / "data")
    data = open_data(tmp_path / "data")
    pairs = [data.train.pair(number) for number in range(len(data.train))]
    assert data.source_vocabulary.decode([source.tolist() for source, _ in pairs]) == [source for source, _ in GOOD]
    assert data.target_vocabulary.decode([target.tolist() for _, target in pairs]) == [target for _, target in GOOD]


def test_several_files_are_one_corpus(tmp_path: Path) -> None:
    first, second = write(tmp_path, GOOD[:20], "a"), write(tmp_path, GOOD[18:], "b")
    both = Corpus([*first.sources, *second.sources], [*first.targets, *second.targets])
    manifest = prepare_quietly(both, tmp_path / "data")
    assert manifest.splits["train"].pairs == 37
    assert manifest.splits["train"].dropped == {"duplicate": 2}


def test_the_same_text_gives_the_same_folder(tmp_path: Path) -> None:
    train = write(tmp_path, GOOD)
    assert prepare_quietly(train, tmp_path / "a") == prepare_quietly(train, tmp_path / "b")


def test_languages_come_from_the_suffixes_unless_they_are_given(tmp_path: Path) -> None:
    train = write(tmp_path, GOOD)
    assert prepare_quietly(train, tmp_path / "a").languages == ("en", "de")
    assert prepare_quietly(train, tmp_path / "b", languages=("cs", None)).languages == ("cs", "de")
    plain = [path.rename(path.with_suffix(".txt")) for path in (*train.sources,)]
    assert prepare_quietly(Corpus(plain, train.targets), tmp_path / "c").languages == (None, "de")


def test_a_vocabulary_is_shared_unless_each_side_shall_have_its_own(tmp_path: Path) -> None:
    train = write(tmp_path, [(source, target.upper()) for source, target in GOOD])
    prepare_quietly(train, tmp_path / "shared", config=DataConfig(vocabulary=23))
    prepare_quietly(train, tmp_path / "apart", config=DataConfig(vocabulary=23, shared=False))
    shared, apart = open_data(tmp_path / "shared"), open_data(tmp_path / "apart")
    assert shared.source_vocabulary.proto == shared.target_vocabulary.proto
    learned = range(SPECIALS + BYTES, SPECIALS + BYTES + 23)
    assert "w" in shared.target_vocabulary.pieces(learned)
    assert "W" in apart.target_vocabulary.pieces(learned)
    assert "w" not in apart.target_vocabulary.pieces(learned)
    assert "W" not in apart.source_vocabulary.pieces(learned)


def test_nfkc_touches_the_source_alone(tmp_path: Path) -> None:
    pairs = [(f"{source} ﬁ²", f"{target} ﬁ²") for source, target in GOOD]
    prepare_quietly(write(tmp_path, pairs), tmp_path / "data", config=DataConfig(vocabulary=31, source_nfkc=True))
    data = open_data(tmp_path / "data")
    source, target = data.train.pair(0)
    assert data.source_vocabulary.decode([source.tolist()]) == ["one 0 two fi2"]
    assert data.target_vocabulary.decode([target.tolist()]) == ["eins 0 zwei ﬁ²"]
    assert data.source_vocabulary.encode(["ﬁ²"]) == data.source_vocabulary.encode(["fi2"])


def test_a_line_that_is_not_utf8_may_be_dropped_with_its_pair(tmp_path: Path) -> None:
    train = write(tmp_path, GOOD)
    train.targets[0].write_bytes(train.targets[0].read_bytes().replace(b"eins 3 zwei", b"eins \xff zwei"))
    manifest = prepare_quietly(train, tmp_path / "data", config=DataConfig(vocabulary=31, invalid="drop"))
    assert manifest.splits["train"].pairs == 36
    assert manifest.splits["train"].dropped == {"not UTF-8": 1}


def test_validation_text_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    valid = write(tmp_path, TOO_LONG[1:], "valid")
    with pytest.raises(DataError, match=r"valid.en and .*valid.de: no pair is left after cleaning"):
        prepare_quietly(write(tmp_path, GOOD), tmp_path / "data", valid)
    assert not (tmp_path / "data").exists()


def test_files_that_were_mixed_up_are_refused(tmp_path: Path) -> None:
    train, valid = write(tmp_path, GOOD), write(tmp_path, GOOD, "valid")
    turned = Corpus(valid.targets, valid.sources)
    with pytest.raises(DataError, match=r"goes de -> en by its files' suffixes, but the training text en -> de"):
        prepare_quietly(train, tmp_path / "data", turned)
    with pytest.raises(DataError, match=r"train.en: given as source and as target"):
        prepare_quietly(Corpus(train.sources, train.sources), tmp_path / "data")
    assert not (tmp_path / "data").exists()


def test_only_whole_files_stand_in_the_folder(tmp_path: Path) -> None:
    prepare_quietly(write(tmp_path, GOOD), tmp_path / "data")
    names = {path.name for path in (tmp_path / "data").iterdir()}
    assert names == {"source.model", "target.model", "train.ids", "train.offsets", MANIFEST}
    assert {path.name for path in tmp_path.iterdir()} == {"train.en", "train.de", "data"}
    assert json.loads((tmp_path / "data" / MANIFEST).read_text())["files"].keys() == names - {MANIFEST}


def test_an_empty_folder_may_stand_where_the_data_shall_go_and_parents_are_made(tmp_path: Path) -> None:
    train = write(tmp_path, GOOD)
    (tmp_path / "empty").mkdir()
    for out in (tmp_path / "empty", tmp_path / "new" / "deep" / "data"):
        prepare_quietly(train, out)
        assert len(open_data(out).train) == 37


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_what_already_stands_there_is_never_replaced(kind: str, tmp_path: Path) -> None:
    out = tmp_path / "data"
    kept = out if kind == "file" else out / "precious"
    kept.parent.mkdir(exist_ok=True)
    kept.write_text("kept")
    with pytest.raises(DataError, match=f"^{out}: already exists$") as refusal:
        prepare_quietly(write(tmp_path, GOOD), out)
    assert "--out" in refusal.value.report()
    assert kept.read_text() == "kept"


def unequal(folder: Path) -> Corpus:
    train = write(folder, GOOD)
    train.targets[0].write_text("one line\n")
    return train


def not_utf8(folder: Path) -> Corpus:
    train = write(folder, GOOD)
    train.sources[0].write_bytes(b"\xff" + train.sources[0].read_bytes())
    return train


def missing(folder: Path) -> Corpus:
    train = write(folder, GOOD)
    train.targets[0].unlink()
    return train


FAILURES: dict[str, tuple[Callable[[Path], Corpus], DataConfig, str]] = {
    "empty corpus": (lambda folder: write(folder, []), CONFIG, r"train.en and .*train.de: holds no pairs$"),
    "all dropped": (
        lambda folder: write(folder, [*EMPTY, *RATIO]),
        CONFIG,
        r"train.en and .*train.de: no pair is left of 4: 3 empty, 1 ratio$",
    ),
    "all too long in pieces": (
        lambda folder: write(folder, GOOD),
        DataConfig(vocabulary=13, longest=2),
        r"train.en and .*train.de: no pair is left after cleaning, dropped \{'too long': 37\}$",
    ),
    "unequal lines": (unequal, CONFIG, "line counts differ, got 37 and 1$"),
    "not UTF-8": (not_utf8, CONFIG, r"train.en:1: not UTF-8, got byte 0xff at position 1$"),
    "missing file": (missing, CONFIG, "train.de: no such file$"),
    "vocabulary too large": (
        lambda folder: write(folder, GOOD),
        DataConfig(vocabulary=7919),
        r"vocabulary: the corpus allows at most \d+ pieces, got 7919$",
    ),
}


ONLY_IN_TRAINING = {"all too long in pieces", "vocabulary too large"}


@pytest.mark.parametrize(
    ("failure", "which"),
    [(failure, "train") for failure in FAILURES]
    + [(each, "valid") for each in sorted(FAILURES.keys() - ONLY_IN_TRAINING)],
)
def test_a_failure_leaves_nothing_behind(failure: str, which: str, tmp_path: Path) -> None:
    make, config, message = FAILURES[failure]
    (tmp_path / "bad").mkdir()
    bad, good = make(tmp_path / "bad"), write(tmp_path, GOOD)
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(DataError, match=message):
        prepare_quietly(
            *((bad, tmp_path / "data", good) if which == "train" else (good, tmp_path / "data", bad)), config
        )
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interruption_leaves_nothing_behind(tmp_path: Path) -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    train = write(tmp_path, GOOD)
    with pytest.raises(KeyboardInterrupt):
        prepare(train, None, (None, None), CONFIG, tmp_path / "data", interrupt)
    assert {path.name for path in tmp_path.iterdir()} == {"train.en", "train.de"}


def test_the_same_text_can_be_written_in_the_pieces_of_another_vocabulary(tmp_path: Path) -> None:
    train, valid = write(tmp_path, [*GOOD, *EMPTY]), write(tmp_path, GOOD[:7], "valid")
    old = prepare_quietly(train, tmp_path / "old", valid, languages=("en", "cs"))
    proto = train_vocabulary(lambda: [target for _, target in GOOD], 17, "bpe", byte_fallback=True)
    config = DataConfig(vocabulary=17)
    encode_anew(open_data(tmp_path / "old"), (Vocabulary(proto), Vocabulary(proto)), config, tmp_path / "new")
    new = open_data(tmp_path / "new")
    assert new.manifest.languages == ("en", "cs")
    assert new.manifest.config == config.model_dump()
    assert new.manifest.vocabulary == (SPECIALS + BYTES + 17, SPECIALS + BYTES + 17)
    assert {name: split.pairs for name, split in new.manifest.splits.items()} == {"train": 37, "valid": 7}
    assert new.manifest.splits["train"].dropped == old.splits["train"].dropped
    assert new.source_vocabulary.proto == proto
    sources = [new.train.pair(number)[0].tolist() for number in range(37)]
    assert new.source_vocabulary.decode(sources) == [source for source, _ in GOOD]


def test_writing_anew_replaces_nothing_either(tmp_path: Path) -> None:
    prepare_quietly(write(tmp_path, GOOD), tmp_path / "data")
    data = open_data(tmp_path / "data")
    vocabularies = (data.source_vocabulary, data.target_vocabulary)
    with pytest.raises(DataError, match=f"^{tmp_path / 'data'}: already exists$"):
        encode_anew(data, vocabularies, CONFIG, tmp_path / "data")
