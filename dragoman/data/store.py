"""The prepared corpus on disk: ids in one flat file, offsets in another, read through a memory map.

`docs/format.md` gives every byte. A store is one split ("train", "valid") of a data folder, whose manifest names each
file's sha-256.
"""

import hashlib
import json
from array import array
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dragoman.data.vocabulary import Vocabulary
from dragoman.errors import DataError

FORMAT = 1
MANIFEST = "manifest.json"


@dataclass(frozen=True)
class Split:
    """What the manifest says of one split."""

    pairs: int
    source_tokens: int
    target_tokens: int
    dropped: dict[str, int]


@dataclass(frozen=True)
class Manifest:
    """What a data folder holds, and what its files must hash to."""

    format: int
    languages: tuple[str | None, str | None]
    config: dict[str, Any]  # the [data] section the text was prepared with
    vocabulary: tuple[int, int]  # sizes, source and target
    splits: dict[str, Split]
    files: dict[str, str]  # name -> sha-256

    @property
    def sha256(self) -> str:
        """One hash for the whole folder: a run remembers the data it was trained on."""
        return hashlib.sha256(json.dumps(self.files, sort_keys=True).encode()).hexdigest()

    @property
    def without_validation(self) -> str | None:
        """What it costs not to have validation text, where there is none."""
        if "valid" in self.splits:
            return None
        given = "--valid-target" if self.config.get("plain") else "--valid-source and --valid-target"
        lost = "no BLEU is seen while a model learns, and its last checkpoint is taken for its best"
        return f"validation text: none; {lost} (`dragoman prepare` takes {given})"


class Store:
    """The pairs of one split: source ids and target ids, without BOS and EOS."""

    def __init__(self, folder: Path, split: str, vocabulary: int) -> None:
        self.offsets: NDArray[np.uint64] = np.memmap(folder / f"{split}.offsets", dtype="<u8", mode="r")
        # A file of no bytes cannot be mapped; a split of no pairs is never written.
        self.ids: NDArray[Any] = np.memmap(folder / f"{split}.ids", dtype=id_type(vocabulary), mode="r")

    def __len__(self) -> int:
        return len(self.offsets) // 2

    def lengths(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many source and how many target ids each pair has."""
        lengths = np.diff(self.offsets).astype(np.int64)
        return lengths[0::2], lengths[1::2]

    def pair(self, number: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """Source and target ids of one pair."""
        first, middle, last = self.offsets[2 * number : 2 * number + 3].tolist()
        return self.ids[first:middle], self.ids[middle:last]

    def sentences(self, pairs: NDArray[np.int64], side: int) -> NDArray[Any]:
        """The ids of one side (0: source, 1: target) of some pairs, one sentence behind the other."""
        first, last = (self.offsets[2 * pairs + side + more].astype(np.int64) for more in (0, 1))
        lengths = last - first
        before = lengths.cumsum() - lengths
        return self.ids[np.repeat(first - before, lengths) + np.arange(int(lengths.sum()))]


class StoreWriter:
    """Writes the two files of a split pair by pair."""

    def __init__(self, folder: Path, split: str, vocabulary: int) -> None:
        self._type = id_type(vocabulary)
        self._ids = (folder / f"{split}.ids").open("wb")
        self._offsets_path = folder / f"{split}.offsets"
        self._offsets = array("Q", [0])
        self.tokens = [0, 0]

    def __enter__(self) -> "StoreWriter":
        return self

    def __exit__(self, *_: object) -> None:
        self._ids.close()

    def add(self, source: Iterable[int], target: Iterable[int]) -> None:
        """Append one pair."""
        for side, sentence in enumerate((source, target)):
            ids = np.fromiter(sentence, self._type)
            self._ids.write(ids.tobytes())
            self._offsets.append(self._offsets[-1] + len(ids))
            self.tokens[side] += len(ids)

    def close(self, dropped: dict[str, int]) -> Split:
        """Finish the files and say what they hold."""
        self._ids.close()
        self._offsets_path.write_bytes(np.array(self._offsets, dtype="<u8").tobytes())
        source_tokens, target_tokens = self.tokens
        return Split(len(self._offsets) // 2, source_tokens, target_tokens, dropped)


@dataclass(frozen=True)
class Data:
    """A data folder, opened: its splits and its two vocabularies (equal where they are shared)."""

    manifest: Manifest
    splits: dict[str, Store]
    source_vocabulary: Vocabulary
    target_vocabulary: Vocabulary

    @property
    def train(self) -> Store:
        """What to learn from."""
        return self.splits["train"]

    @property
    def valid(self) -> Store | None:
        """What to validate on, if there is any."""
        return self.splits.get("valid")


def open_data(folder: Path) -> Data:
    """Open a data folder after checking every file against the manifest."""
    manifest = read_manifest(folder)
    for name, expected in manifest.files.items():
        if not (folder / name).is_file() or file_sha256(folder / name) != expected:
            raise DataError(folder / name, "damaged or changed since it was prepared", hint="prepare the data again")
    source = Vocabulary((folder / "source.model").read_bytes(), bool(manifest.config["source_nfkc"]))
    target = Vocabulary((folder / "target.model").read_bytes())
    stores = {name: Store(folder, name, max(manifest.vocabulary)) for name in manifest.splits}
    return Data(manifest, stores, source, target)


def read_manifest(folder: Path) -> Manifest:
    """What the folder says it holds."""
    try:
        text = (folder / MANIFEST).read_text()
        values = json.loads(text)
        if values["format"] != FORMAT:
            raise DataError(folder, f"written in format {values['format']}, this version reads format {FORMAT}")
        splits = {name: Split(**split) for name, split in values["splits"].items()}
        languages = (values["languages"][0], values["languages"][1])
        sizes = (int(values["vocabulary"][0]), int(values["vocabulary"][1]))
        manifest = Manifest(values["format"], languages, values["config"], sizes, splits, values["files"])
        if text != _manifest_text(manifest):
            raise DataError(
                folder / MANIFEST, "damaged or changed since it was prepared", hint="prepare the data again"
            )
        return manifest
    except (OSError, UnicodeDecodeError, ValueError, KeyError, TypeError, AttributeError):
        hint = "make one with: dragoman prepare --source ... --target ... --out DATA"
        raise DataError(folder, "not a data folder", hint=hint) from None


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the last file of a data folder."""
    (folder / MANIFEST).write_text(_manifest_text(manifest))


def _manifest_text(manifest: Manifest) -> str:
    values = asdict(manifest)
    digest = hashlib.sha256(json.dumps(values).encode()).hexdigest()
    return json.dumps(values | {"sha256": digest}, indent=2) + "\n"


def file_sha256(path: Path) -> str:
    """The hash of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def id_type(vocabulary: int) -> str:
    """Two bytes an id where they suffice, else four; little-endian."""
    return "<u2" if vocabulary <= 1 << 16 else "<u4"
