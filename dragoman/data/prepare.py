"""From parallel text to a data folder: corpora > cleaning > vocabulary > store.

Everything is written into a folder beside the one asked for and renamed at the end: nothing half-written is left.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from dragoman.config import Section
from dragoman.data.cleaning import Cleaner
from dragoman.data.corpora import language_of, read_pairs
from dragoman.data.store import FORMAT, Data, Manifest, Split, StoreWriter, file_sha256, write_manifest
from dragoman.data.vocabulary import Algorithm, Vocabulary, normalise, train_vocabulary
from dragoman.durable import new_folder
from dragoman.errors import DataError

SIDES = ("source", "target")
LINES_AT_ONCE = 10_000


class DataConfig(Section):
    """The [data] section of a recipe: how text becomes pieces; settled here, and kept with the model."""

    vocabulary: int = Field(37000, ge=2, le=10_000_000)  # learned pieces; specials and byte pieces come on top
    algorithm: Algorithm = "bpe"
    plain: bool = False  # text by itself, without a source: what a model learns to go on writing
    shared: bool = True  # one vocabulary for both languages
    byte_fallback: bool = True  # what no piece covers is spelled in bytes
    source_nfkc: bool = False  # the source alone may be normalised; by default no text is rewritten
    longest: int = Field(250, ge=1)  # pieces a sentence may have
    ratio: float = Field(4.0, ge=1)  # how many times the characters of one side the other may have
    invalid: Literal["error", "drop"] = "error"  # what to do with a line that is not UTF-8

    @field_validator("shared")
    @classmethod
    def _plain_text_has_one_vocabulary(cls, shared: bool, others: Any) -> bool:
        if others.data.get("plain") and not shared:
            raise ValueError("'data.shared' = false needs two sides, but 'data.plain' = true has one")
        return shared


@dataclass(frozen=True)
class Corpus:
    """Parallel files of one split; plain text has no sources."""

    sources: Sequence[Path]
    targets: Sequence[Path]

    def __str__(self) -> str:
        return " and ".join(str(files[0]) for files in (self.sources, self.targets) if files)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """What the suffixes of the first files say."""
        source, target = (language_of(files[0]) if files else None for files in (self.sources, self.targets))
        return source, target


def prepare(
    train: Corpus,
    valid: Corpus | None,
    languages: tuple[str | None, str | None],
    config: DataConfig,
    out: Path,
    say: Callable[[str], None],
) -> Manifest:
    """Clean the text, learn its pieces, and write the data folder."""
    corpora = {"train": train} | ({"valid": valid} if valid else {})
    _check_files(corpora, config)
    with _data_folder(out) as folder:
        cleaners = {}
        for split, corpus in corpora.items():
            cleaners[split] = _write_clean_text(corpus, folder, split, config, say)
        vocabularies = _learn_vocabularies(folder, config, say)
        splits = {
            split: _encode(folder, split, vocabularies, cleaner, config.longest) for split, cleaner in cleaners.items()
        }
        for split, corpus in corpora.items():
            if splits[split].pairs == 0:
                raise DataError(corpus, f"no pair is left after cleaning, dropped {splits[split].dropped}")
        found = (languages[0] or train.languages[0], languages[1] or train.languages[1])
        return _finish(folder, found, config, vocabularies, splits)


def encode_anew(data: Data, vocabularies: tuple[Vocabulary, Vocabulary], config: DataConfig, out: Path) -> None:
    """Write the same text in the pieces of another vocabulary; pieces lose nothing, so they are all it takes."""
    if not data.manifest.config["byte_fallback"]:
        what = "prepared without byte fallback, so its text cannot be read back"
        raise DataError("--data", what, hint="prepare it again with data.byte_fallback=true")
    old = (data.source_vocabulary, data.target_vocabulary)
    with _data_folder(out) as folder:
        splits = {}
        for split, store in data.splits.items():
            with StoreWriter(folder, split, max(map(len, vocabularies))) as writer:
                for first in range(0, len(store), LINES_AT_ONCE):
                    pairs = [store.pair(number) for number in range(first, min(first + LINES_AT_ONCE, len(store)))]
                    ids = [[side.tolist() for side in column] for column in zip(*pairs, strict=True)]
                    sides = zip(old, vocabularies, ids, strict=True)
                    recoded = [new.encode(before.decode(side)) for before, new, side in sides]
                    for source, target in zip(*recoded, strict=True):
                        writer.add(source, target)
                splits[split] = writer.close(data.manifest.splits[split].dropped)
        _finish(folder, data.manifest.languages, config, vocabularies, splits)


def _check_files(corpora: dict[str, Corpus], config: DataConfig) -> None:
    """Files that were mixed up: a file beside itself, a source too many, a validation set that goes the other way."""
    for corpus in corpora.values():
        if bool(corpus.sources) == config.plain:
            what = "plain text has no source" if config.plain else "its source is missing"
            raise DataError(corpus, what, hint="prepare either takes --source with every --target, or none at all")
        for files in zip(corpus.sources, corpus.targets, strict=False):
            if files[0] == files[1]:
                raise DataError(files[0], "given as source and as target")
    there, here = corpora["train"].languages, corpora.get("valid", corpora["train"]).languages
    if any(None not in pair and pair[0] != pair[1] for pair in zip(there, here, strict=True)):
        names = " -> ".join(map(str, here))
        what = f"goes {names} by its files' suffixes, but the training text {' -> '.join(map(str, there))}"
        raise DataError(corpora["valid"], what)


@contextmanager
def _data_folder(out: Path) -> Iterator[Path]:
    taken = DataError(out, "already exists", hint="choose another --out, or remove it first")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise taken
    try:
        with new_folder(out) as folder:
            yield folder
    except FileExistsError:  # somebody else was faster
        raise taken from None
    except (NotADirectoryError, PermissionError) as error:
        raise DataError(out, f"cannot be written: {error.filename}: {error.strerror}") from None


def _write_clean_text(
    corpus: Corpus, folder: Path, split: str, config: DataConfig, say: Callable[[str], None]
) -> Cleaner:
    cleaner = Cleaner(config.longest, config.ratio, config.invalid)
    files = [(folder / f"{split}.{side}.txt").open("w", encoding="utf-8", newline="\n") for side in SIDES]
    total = 0
    with files[0], files[1]:
        for total, pair in enumerate(read_pairs(corpus.sources or corpus.targets, corpus.targets), start=1):
            texts = cleaner.clean(pair)
            if texts:
                files[0].write("\n" if config.plain else texts[0] + "\n")
                files[1].write(texts[1] + "\n")
            if total % 100_000 == 0:
                say(f"{split}: read {total:,} pairs")
    if total == sum(cleaner.dropped.values()):
        dropped = ", ".join(f"{count} {reason}" for reason, count in cleaner.dropped.items())
        what = f"no pair is left of {total}: {dropped}" if total else "holds no pairs"
        raise DataError(corpus, what)
    return cleaner


def _learn_vocabularies(folder: Path, config: DataConfig, say: Callable[[str], None]) -> tuple[Vocabulary, Vocabulary]:
    say(f"learning {config.vocabulary:,} pieces ({config.algorithm})")

    def learn(*sides: str) -> bytes:
        def lines() -> Iterator[str]:
            for side in sides:
                text = _read_text(folder / f"train.{side}.txt")
                is_rewritten = side == "source" and config.source_nfkc
                yield from (normalise(line) for line in text) if is_rewritten else text

        return train_vocabulary(lines, config.vocabulary, config.algorithm, config.byte_fallback)

    source = learn("source", "target") if config.shared else learn("source")
    target = source if config.shared else learn("target")
    return Vocabulary(source, config.source_nfkc), Vocabulary(target)


def _encode(
    folder: Path, split: str, vocabularies: tuple[Vocabulary, Vocabulary], cleaner: Cleaner, longest: int
) -> Split:
    texts = [_read_text(folder / f"{split}.{side}.txt") for side in SIDES]
    with StoreWriter(folder, split, max(map(len, vocabularies))) as writer:
        while lines := [list(islice(text, LINES_AT_ONCE)) for text in texts]:
            if not lines[0]:
                break
            ids = [vocabulary.encode(side) for vocabulary, side in zip(vocabularies, lines, strict=True)]
            for source, target in zip(*ids, strict=True):
                if max(len(source), len(target)) > longest:
                    cleaner.count_too_long()
                else:
                    writer.add(source, target)
        for side in SIDES:
            (folder / f"{split}.{side}.txt").unlink()
        return writer.close({str(reason): count for reason, count in cleaner.dropped.items()})


def _finish(
    folder: Path,
    languages: tuple[str | None, str | None],
    config: DataConfig,
    vocabularies: tuple[Vocabulary, Vocabulary],
    splits: dict[str, Split],
) -> Manifest:
    for side, vocabulary in zip(SIDES, vocabularies, strict=True):
        (folder / f"{side}.model").write_bytes(vocabulary.proto)
    manifest = Manifest(
        FORMAT,
        languages,
        config.model_dump(),
        (len(vocabularies[0]), len(vocabularies[1])),
        splits,
        {path.name: file_sha256(path) for path in sorted(folder.iterdir())},
    )
    write_manifest(folder, manifest)
    return manifest


def _read_text(path: Path) -> Iterator[str]:
    with path.open("rb") as file:
        for line in file:
            yield line[:-1].decode()
